"""The guide for authors says what the loader and the engine do: its examples pass their check, its tables are complete."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rss_policy.bundle import Bundle
from rss_policy.dialect import REFUSED_NAMES
from rss_policy.drive import CALL_KINDS
from rss_policy.engine import MontyEngine
from rss_policy.loader import PRELUDE, load_files
from rss_policy.manifest import Limits, Manifest
from rss_policy.modules import STANDARD
from rss_policy.script import Ended, Waiting
from tests.fakes.scripts import CONTEXT, answers

GUIDE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
SCRIPTS = [text for kind, text in BLOCKS if kind == "python"]


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    opened = MontyEngine(1)
    yield opened
    opened.close()


def first_policy() -> Bundle:
    manifest = next(text for kind, text in BLOCKS if kind == "toml")
    return load_files({"policy.toml": manifest, "agent/main.rss.py": SCRIPTS[0], "agent/words.rss.py": SCRIPTS[1]})


def test_the_first_policy_passes_its_check_and_runs(engine: MontyEngine) -> None:
    bundle = first_policy()
    engine.check_types(bundle)
    script, _ = engine.open(bundle, CONTEXT)
    assert isinstance(script.begin(answers), Waiting)
    assert isinstance(script.settle(1, {"ok": False}, answers), Waiting)
    assert isinstance(script.settle(2, {"ok": True}, answers), Waiting)
    halt = script.settle(3, {"ok": True, "content": "found"}, answers)
    assert isinstance(halt, Ended)
    assert halt.result["output"]["content"] == [{"type": "text", "text": "found"}]


@pytest.mark.parametrize("text", SCRIPTS[2:])
def test_every_other_example_passes_its_check(engine: MontyEngine, text: str) -> None:
    main = "async def run(context):\n    return {}\n"
    manifest = 'name = "x"\nversion = "1"\nentry = "main"\n'
    engine.check_types(load_files({"policy.toml": manifest, "main.rss.py": main, "example.rss.py": text}))


def test_every_limit_is_listed_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", GUIDE, re.MULTILINE))
    assert listed == {name: str(getattr(Limits(), name)) for name in Limits.__struct_fields__}


def test_every_host_function_and_kind_of_call_is_listed() -> None:
    functions = re.findall(r"^(?:async )?def (\w+)", PRELUDE, re.MULTILINE)
    assert re.findall(r"^\| `(?:await )?(\w+)\(", GUIDE, re.MULTILINE) == functions
    kinds = re.search(r"^Kinds of calls: (.*?)\. ", GUIDE, re.MULTILINE | re.DOTALL)
    assert kinds is not None
    assert set(re.findall(r"`(\w+)`", kinds[1])) == CALL_KINDS


def test_every_key_of_the_manifest_and_of_the_context_is_listed() -> None:
    manifest = GUIDE.split("## The manifest")[1].split("##")[0]
    assert set(re.findall(r"`\[?(\w+)\]?`", manifest)) >= set(Manifest.__struct_fields__)
    context = GUIDE.split("has exactly these keys:")[1].split("It has at most")[0]
    assert set(re.findall(r"`(\w+)`", context)) >= CONTEXT.keys()


def test_what_is_refused_is_listed() -> None:
    dialect = GUIDE.split("## The dialect")[1].split("Modules import")[0]
    explained = {"SystemExit", "KeyboardInterrupt", "locals", "globals", "super", "BaseException"}
    assert {name for name in REFUSED_NAMES if f"`{name}`" not in dialect} <= explained
    assert all(f"`{name}`" in dialect for name in STANDARD)
