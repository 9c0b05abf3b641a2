"""The README's commands work as they stand: against the real server, with its address put in place of the usual one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateways.config_load import load
from tests.docs.tables import ROOT
from tests.fakes.provider import FakeProvider
from tests.fakes.server_process import ServerProcess

TEXT = (ROOT / "README.md").read_text("utf-8")
USUAL = "http://127.0.0.1:8787"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with FakeProvider() as provider, ServerProcess(tmp_path_factory.mktemp("readme"), provider.url) as process:
        yield process


def run(server: ServerProcess, *command: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DEEDBOX_URL": server.url}
    done = subprocess.run(command, cwd=server.folder, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(server: ServerProcess, block: str) -> str:
    here = block.replace(USUAL, server.url).replace(".venv/bin/deedbox", f"{sys.executable} -m gateways")
    return run(server, "bash", "-euo", "pipefail", "-c", here)


def block_with(language: str, text: str) -> str:
    return next(block for block in blocks(language) if text in block)


def test_the_chat_command_answers(server: ServerProcess) -> None:
    assert shell(server, block_with("sh", "deedbox chat")) == "Hello from the fake provider.\n"


def test_the_openai_route_answers_to_curl(server: ServerProcess) -> None:
    answer = json.loads(shell(server, block_with("sh", "/v1/chat/completions")))
    assert answer["choices"][0]["message"]["content"] == "Hello from the fake provider."


def test_the_openai_sdk_answers(server: ServerProcess) -> None:
    program = block_with("python", "OpenAI(").replace(USUAL, server.url)
    assert run(server, sys.executable, "-c", program) == "Hello from the fake provider.\n"


def test_the_native_routes_answer_and_the_stream_ends_with_the_run(server: ServerProcess) -> None:
    start, listing, stream = block_with("sh", "/v1/runs ").splitlines()
    run_id = json.loads(shell(server, start))["run_id"]
    shown = shell(server, stream.replace("RUN_ID", run_id))
    assert "event: run.completed" in shown
    assert json.loads(shell(server, listing))["data"][0]["run_id"] == run_id


def test_the_own_provider_takes_six_lines_and_is_a_good_configuration(tmp_path: Path) -> None:
    example = block_with("toml", "[providers.custom]")
    assert len(example.strip().splitlines()) == 6
    file = tmp_path / "deedbox.toml"
    file.write_text(example, "utf-8")
    assert load(file, {}, None).config.model.provider == "custom"


def test_make_knows_the_two_commands() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = re.findall(r"^make (\w+)", block_with("sh", "make serve"), re.MULTILINE)
    assert commands == ["serve", "test"]
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)


def test_the_first_screen_is_short() -> None:
    first = TEXT.partition("## Talk to it")[0]
    assert len(first.splitlines()) < 40
