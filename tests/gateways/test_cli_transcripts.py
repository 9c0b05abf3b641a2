"""`deedbox policy transcripts`: recorded answers through the adapters, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateways.cli import main
from rss_policy.transcript_folder import BundledAdapter

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
PROTOCOLS = ("openai_chat", "openai_responses", "anthropic_messages")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in PROTOCOLS:
        rows = [json.loads(path.read_text("utf-8")) for path in sorted((FIXTURES / name).glob("*.json"))[:20]]
        (tmp_path / f"{name}.jsonl").write_text("\n".join([json.dumps(row) for row in rows]) + "\n", "utf-8")
    return tmp_path


def transcripts(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["policy", "transcripts", *arguments])


def test_nothing_is_lost_of_good_recordings(folder: Path) -> None:
    result = transcripts(str(folder))
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == list(PROTOCOLS)
    told = json.loads(transcripts(str(folder), "--json").stdout)
    assert {name: (report["recordings"], report["lost"]) for name, report in told.items()} == dict.fromkeys(
        PROTOCOLS, (20, 0)
    )


def test_what_is_lost_is_told_and_the_command_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(adapter: BundledAdapter, name: str) -> None:
        made(adapter, name)
        decode = adapter.decode

        def forgetful(body_text: str) -> dict[str, Any]:
            answer = decode(body_text)
            return {**answer, "response": {**answer["response"], "usage": None}} if answer["ok"] else answer

        adapter.decode = forgetful

    made = BundledAdapter.__init__
    monkeypatch.setattr(BundledAdapter, "__init__", deaf)
    result = transcripts(str(folder))
    assert result.exit_code == 1
    assert "of fixture, cut whole: usage" in result.stdout
    assert json.loads(transcripts(str(folder), "--json").stdout)["anthropic_messages"]["losses"][0]["what"] == "usage"


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"id": 1}', '{"id": 1, "stream": true, "status": "x", "body": ""}'])
def test_a_line_that_is_no_recording_is_told_by_its_number(folder: Path, line: str) -> None:
    path = folder / "openai_chat.jsonl"
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    result = transcripts(str(folder))
    assert result.exit_code != 0
    assert "openai_chat.jsonl:21 is no recording" in result.stderr


def test_a_folder_without_recordings_says_what_it_should_hold(tmp_path: Path) -> None:
    assert "holds none of openai_chat.jsonl" in transcripts(str(tmp_path)).stderr
