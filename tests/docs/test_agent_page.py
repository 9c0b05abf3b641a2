"""docs/agent.md says what the bundled agent does."""

import re
from pathlib import Path

from actors.settings import RUN_LIMITS
from gateways.config import Config
from tests.fakes.adapter import SCRIPTS, script_names

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")


def test_every_repair_is_described_and_no_other() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (SCRIPTS / "llm").glob("*.rss.py")]
    rules = {rule for source in sources for rule in re.findall(r'repairs\["(\w+)"\]', source)}
    section = PAGE.split("## What is repaired")[1].split("\n## ")[0]
    fitted = {f"{name}_left_out" for _, name in script_names()["FIT_KINDS"]}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == rules | fitted


def test_every_class_of_failure_stands_in_the_table_with_its_retries() -> None:
    for kind, (retries, _, _) in script_names()["RETRY_TABLE"].items():
        assert kind == "interrupted" or f"| `{kind}` | {retries} |" in PAGE
    assert all(f"`{kind}`" in PAGE for kind in script_names()["RUN_CODE_OF_KIND"])


def test_the_limit_of_turns_is_one_number_in_the_page_the_agent_the_settings_and_the_configuration() -> None:
    found = re.search(r"`max_turns` \((\d+)\)", PAGE)
    assert found is not None
    assert {int(found.group(1)), script_names()["DEFAULT_MAX_TURNS"], RUN_LIMITS["max_turns"]} == {Config().limits.max_turns}


def test_every_module_is_named() -> None:
    for path in SCRIPTS.rglob("*.rss.py"):
        name = path.relative_to(SCRIPTS).as_posix().removesuffix(".rss.py")
        assert name in PAGE or "…" + name.removeprefix("llm/openai_chat") in PAGE
