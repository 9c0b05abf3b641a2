"""What the import contracts cannot say: where SQL and provider formats live, how large files are, what is installed."""

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest

from tests.docs.tables import ROOT

PACKAGES = ("actors", "eventstore", "gateways", "rss_policy")
PRODUCT = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")])
TEXTS = sorted(
    path
    for pattern in ("*.py", "*.md", "*.toml", "*.cfg", "*.txt", "Makefile", ".ci/run")
    for path in ROOT.rglob(pattern)
    if not {".venv", "var", "build", "dist"} & set(path.relative_to(ROOT).parts)
)

SQL = re.compile(
    r"^\s*(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX|VIEW)"
    r"|PRAGMA\s+\w+|BEGIN\s+IMMEDIATE)\b",
    re.DOTALL | re.IGNORECASE,
)
PROVIDER_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        choices max_completion_tokens reasoning_content reasoning_details prompt_tokens completion_tokens
        prompt_tokens_details content_block content_block_delta content_block_start input_json_delta thinking_delta
        signature_delta redacted_thinking message_delta tool_use tool_result stop_sequences stop_sequence cache_control
        cache_creation_input_tokens overloaded_error pause_turn output_item encrypted_content function_call
        function_call_output tool_call_id image_url x_groq refusal_delta extra_content
        message_start message_stop content_block_stop text_delta citations_delta server_tool_use web_search_tool_result
        tool_use_id is_error input_schema budget_tokens cache_read_input_tokens stop_details
        output_text input_text input_image input_file summary_text reasoning_text output_index
        summary_index content_index input_tokens_details output_tokens_details completion_tokens_details
        incomplete_details previous_response_id max_tool_calls
        """,
    )
)
OPENAI_ROUTE = re.compile(r"gateways/http/(openai\w*|chat\w*|completion\w*|schemas\w*|errors)(\.py|/)")
MACHINE_PATHS = re.compile(r"/(work|root|home|Users)/\w")


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


def strings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_sql_is_nowhere_but_in_the_event_store() -> None:
    outside = [path for path in PRODUCT if not path.is_relative_to(ROOT / "eventstore") and ".rss" not in path.name]
    assert [str(path) for path in outside if any(SQL.search(text) for text in strings(path))] == []
    assert any(SQL.search(text) for path in (ROOT / "eventstore").rglob("*.py") for text in strings(path))


def test_provider_formats_are_nowhere_but_in_scripts_and_the_compatible_route() -> None:
    found = []
    for path in PRODUCT:
        place = path.relative_to(ROOT).as_posix()
        if place.startswith("rss_policy/") or OPENAI_ROUTE.match(place):
            continue
        found += [f"{place}: {text}" for text in strings(path) if text in PROVIDER_WORDS]
    assert found == []


@pytest.mark.parametrize("path", named(PRODUCT))
def test_a_file_of_the_product_is_short_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text("utf-8")
    # The catalogue of events is one file by decision: it is read from top to bottom, as a list.
    assert len(text.splitlines()) < (600 if path.name == "catalogue.py" else 350)
    if path.suffixes == [".py"] and text.strip():
        assert ast.get_docstring(ast.parse(text)), "open the file with one sentence that says what it owns"


@pytest.mark.parametrize("path", named(TESTS))
def test_a_file_of_tests_is_not_too_long(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 500


def test_no_file_is_named_after_nothing() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|managers?|base|common|misc)(_|\.)")
    assert [str(path) for path in PRODUCT if vague.search(path.name)] == []


def test_the_distribution_that_only_looks_like_the_bot_library_is_not_installed() -> None:
    # `telebot` on the package index is another project; the library that `import telebot` means is pyTelegramBotAPI.
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("telebot")


@pytest.mark.parametrize("path", named([path for path in TEXTS if path.name != "test_architecture.py"]))
def test_no_file_knows_a_machine(path: Path) -> None:
    assert not MACHINE_PATHS.search(path.read_text("utf-8"))


def test_the_pages_that_are_named_in_the_architecture_exist_and_it_is_short() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    assert text.count("```mermaid") == 3


def test_every_link_between_pages_leads_somewhere() -> None:
    links = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
    pages = [path for path in TEXTS if path.suffix == ".md"]
    found = [(page, target) for page in pages for target in links.findall(page.read_text("utf-8")) if "://" not in target]
    assert [f"{page}: {target}" for page, target in found if not (page.parent / target).exists()] == []


def test_every_page_that_a_text_names_exists() -> None:
    names = re.compile(r"`(docs/[\w/.-]+\.(?:md|py))`")
    pages = [path for path in TEXTS if path.suffix in (".md", ".py")]
    found = [(page, target) for page in pages for target in names.findall(page.read_text("utf-8"))]
    assert [f"{page}: {target}" for page, target in found if not (ROOT / target).exists()] == []
