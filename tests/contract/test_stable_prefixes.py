"""Prompt caches live on prefixes: what one turn sent, the next one sends again, byte for byte, and more behind it."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.encoding import ADD, PROTOCOLS, body, call, result, said, thought, user
from tests.fakes.grammar import faults

Json = dict[str, Any]
TOOLS = [{"name": name, "description": "", "parameters": {"type": "object"}} for name in ("zoom", "add", "mul")]
PREFIXES = {
    "openai_chat": ("tools", "messages"),
    "openai_responses": ("instructions", "tools", "input"),
    "anthropic_messages": ("system", "tools", "messages"),
}


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def assert_prefix(protocol: str, before: Json, after: Json) -> None:
    *fixed, growing = PREFIXES[protocol]
    for name in fixed:
        assert dumped(before.get(name)) == dumped(after.get(name))
    elements, more = [dumped(one) for one in before[growing]], [dumped(one) for one in after[growing]]
    assert more[: len(elements)] == elements
    # What the server hashes begins the same too: the serialised list without its closing bracket.
    assert dumped(after[growing]).startswith(dumped(before[growing])[:-1])


def turns(protocol: str, kinds: list[str]) -> list[list[Json]]:
    """Return the histories of a session's requests, each longer than the one before."""
    history: list[Json] = []
    asked: list[list[Json]] = []
    for number, kind in enumerate(kinds):
        history = [*history, user(f"question {number}")]
        asked.append(history)
        if kind != "plain":
            calls = [call(f"c{number}_{at}", {"x": at}) for at in range(3 if kind == "three" else 1)]
            parts: list[Any] = [thought(protocol, f"t{number}")] if kind == "thinking" else ["I look."]
            results = [result(f"c{number}_{at}", f"r{at}") for at in range(len(calls))]
            history = [*history, said(*parts, *calls), *results]
            asked.append(history)
        history = [*history, said(f"answer {number}", aborted=True) if kind == "aborted" else said(f"answer {number}")]
    return asked


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_request_begins_with_the_one_before(protocol: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.sampled_from(["plain", "one", "three", "thinking", "aborted"]), min_size=2, max_size=6))
    def check(kinds: list[str]) -> None:
        sent = [body(protocol, history, tools=TOOLS) for history in turns(protocol, kinds)]
        for before, after in pairwise(sent):
            assert_prefix(protocol, before, after)
            assert faults(protocol, after) == []

    check()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_order_in_which_tools_are_given_does_not_matter(protocol: str) -> None:
    first, second = (body(protocol, [user("go")], tools=tools) for tools in (TOOLS, TOOLS[::-1]))
    assert dumped(first) == dumped(second)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_repair_stays_as_it_is_when_the_history_grows(protocol: str) -> None:
    broken = [user("go"), said(call("a"), call("a"), call("b:1", raw_arguments="{")), result("a")]
    before = body(protocol, [*broken, user("still there?")])
    after = body(protocol, [*broken, user("still there?"), said("yes", call("a")), result("a"), user("good")])
    assert_prefix(protocol, before, after)


def test_cache_marks_stand_on_system_tools_and_first_message_and_never_move() -> None:
    marked = []
    for history in turns("anthropic_messages", ["one", "plain", "three", "plain"]):
        made = body("anthropic_messages", history, tools=TOOLS)
        assert "cache_control" in made["system"][-1]
        assert ["cache_control" in tool for tool in made["tools"]] == [False, False, True]
        blocks = [block for turn in made["messages"] for block in turn["content"]]
        marked.append([at for at, block in enumerate(blocks) if "cache_control" in block])
    assert marked == [[0]] * len(marked)


def test_where_the_provider_has_it_the_end_of_the_conversation_is_cached_without_a_mark_that_moves() -> None:
    provider = {"name": "anthropic", "capabilities": {}, "models": {}, "cache": "automatic"}
    made = body("anthropic_messages", [user("go")], provider=provider, tools=[ADD])
    assert made["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in body("anthropic_messages", [user("go")])
