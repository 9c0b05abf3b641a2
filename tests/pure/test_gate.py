"""The grammar gate: whatever a history went through, what is sent is valid, and every repair has a name."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.adapter import script_names

Json = dict[str, Any]


def gate(history: list[Any], **more: Any) -> Json:
    checked: Json = script_names()["gate_check"](history, **more)
    return checked


def user(text: str = "hello") -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said(*parts: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": list(parts), **more}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def call(call_id: str, name: str = "add", arguments: Any = None, **more: Any) -> Json:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": {} if arguments is None else arguments, **more}


def result(call_id: str, content: str = "3") -> Json:
    return {"role": "tool", "call_id": call_id, "name": "add", "content": content, "ok": True}


def shape(messages: list[Json]) -> list[str]:
    return [message["role"] if message["role"] != "tool" else f"tool {message['call_id']}" for message in messages]


def faults(messages: list[Json]) -> list[str]:
    """Check by the written rules, sharing nothing with the gate; this is what providers refuse."""
    found, waiting = list[str](), list[str]()
    for message in messages:
        if message["role"] == "tool":
            expected = waiting.pop(0) if waiting else None
            found += ["a result that answers nothing, or out of order"] * (expected != message["call_id"])
            found += ["a blank result"] * (not message["content"].strip())
            continue
        found += ["a call without a result directly behind it"] * bool(waiting)
        found += faults_of_message(message)
        waiting = [part["id"] for part in message["content"] if part["type"] == "tool_call"]
    return found + ["an open call at the end"] * bool(waiting)


def faults_of_message(message: Json) -> list[str]:
    found = [f"role {message['role']}"] * (message["role"] not in ("user", "assistant"))
    found += ["a message without content"] * (not message["content"])
    for part in message["content"]:
        if part["type"] == "text":
            found += ["a blank text"] * (not part["text"].strip())
        if part["type"] == "tool_call":
            whole = isinstance(part["arguments"], dict) and part["name"] and part["id"]
            found += ["a malformed call"] * (not whole)
    return found


def test_a_valid_history_passes_unchanged() -> None:
    history = [user(), said(text("Hm"), call("a"), call("b")), result("a"), result("b"), said(text("done")), user()]
    assert gate(history) == {"system": [], "messages": history, "repairs": [], "error": None}


@pytest.mark.parametrize(
    ("history", "after", "repair"),
    [
        ([user(), said(call("a"))], ["user", "assistant", "tool a"], "result_missing"),
        ([user(), said(call("a")), user()], ["user", "assistant", "tool a", "user"], "result_missing"),
        ([user(), result("a")], ["user"], "result_without_call"),
        ([result("a"), user(), said(call("a")), result("a")], ["user", "assistant", "tool a"], "result_without_call"),
        ([user(), said(call("a")), result("a"), result("a")], ["user", "assistant", "tool a"], "result_without_call"),
        ([user(), said(call("a")), user(), result("a")], ["user", "assistant", "tool a", "user"], "result_moved"),
        ([user(), said(text(" ")), user()], ["user", "user"], "blank_text"),
        ([user(), {"role": "user", "content": []}], ["user"], "blank_message"),
        ([user(), said({"type": "reasoning", "text": "hm"})], ["user"], "blank_message"),
        ([user(), said(text("so f"), call("a"), aborted=True)], ["user", "assistant"], "aborted_trimmed"),
        ([user(), said(call("a"), aborted=True)], ["user"], "aborted_trimmed"),
        ([user(), {"role": "developer", "content": "x"}], ["user"], "role_unknown"),
        ([user(), said({"type": "video"}, text("x"))], ["user", "assistant"], "part_unknown"),
        ([user(), said(call("")), result("")], ["user", "assistant", "tool call_0"], "call_id_missing"),
        ([user(), said(call("a")), result("a", " ")], ["user", "assistant", "tool a"], "blank_result"),
        ([user(), said(call("a", "no such name")), result("a")], ["user", "assistant", "tool a"], "call_name_invalid"),
        ([user(), {"role": "system", "content": "be brief"}], ["user"], "system_hoisted"),
    ],
)
def test_each_repair_is_made_and_named(history: list[Json], after: list[str], repair: str) -> None:
    checked = gate(history)
    assert shape(checked["messages"]) == after
    assert repair in checked["repairs"]
    assert faults(checked["messages"]) == []


def test_results_come_in_the_order_of_the_calls_and_the_same_id_twice_is_answered_twice() -> None:
    history = [user(), said(call("x"), call("y"), call("x")), result("y", "2"), result("x", "1"), result("x", "3")]
    assert [message["content"] for message in gate(history)["messages"][2:]] == ["1", "2", "3"]


def test_an_id_that_a_later_turn_uses_again_is_answered_in_each_turn() -> None:
    history = [user(), said(call("0")), result("0", "one"), said(call("0")), result("0", "two")]
    assert gate(history)["messages"] == history


def test_a_crash_between_call_and_result_is_told_to_the_model_as_unknown() -> None:
    made = gate([user(), said(call("a")), user("and?")])["messages"][2]
    assert (made["ok"], made["outcome"]) == (False, "unknown")
    assert "unknown" in made["content"]


def test_invalid_arguments_become_an_empty_object_and_a_result_that_shows_them() -> None:
    checked = gate([user(), said(call("a", arguments='{"x": 1,,'))])
    assistant, made = checked["messages"][1:]
    assert (assistant["content"][0]["arguments"], "arguments_invalid" in checked["repairs"]) == ({}, True)
    assert '{"x": 1,,' in made["content"]
    assert made["outcome"] == "failed"


def test_arguments_that_hold_an_object_as_text_are_read() -> None:
    assert gate([user(), said(call("a", arguments='{"x": 1}'))])["messages"][1]["content"][0]["arguments"] == {"x": 1}


def test_leading_system_messages_go_in_front_without_being_a_repair() -> None:
    checked = gate([{"role": "system", "content": "one"}, {"role": "system", "content": [text("two")]}, user()])
    assert (checked["system"], checked["repairs"], shape(checked["messages"])) == (["one", "two"], [], ["user"])


def test_nothing_to_send_is_an_error_and_no_exception() -> None:
    assert gate([])["error"]["code"] == "invalid_request"
    assert gate([None, 7, "x", {}, {"role": "user"}])["error"]["code"] == "invalid_request"


def test_several_middling_results_together_are_held_to_the_limit_of_their_turn() -> None:
    history = [user(), said(call("a"), call("b"), call("c")), *(result(one, one * 5_000) for one in "abc")]
    checked = gate(history, group_limit=6_000)
    contents = [message["content"] for message in checked["messages"][2:]]
    assert sum(map(len, contents)) < 6_500
    assert all("characters left out" in content for content in contents)
    assert checked["repairs"] == ["results_trimmed"]


IDS = st.sampled_from(["", "a", "b", "c"])
PARTS = st.one_of(
    st.builds(text, st.sampled_from(["", " ", "x"])),
    st.builds(call, IDS, st.sampled_from(["", "add", "a b"]), st.sampled_from([{}, {"x": 1}, "{", '{"x":1}', None, [1]])),
    st.just({"type": "reasoning", "text": "hm"}),
    st.just({"type": "image", "url": "https://example.test/a.png"}),
    st.sampled_from([None, 1, {}, {"type": 3}, {"type": "text"}]),
)
MESSAGES = st.one_of(
    st.builds(result, IDS, st.sampled_from(["", "ok"])),
    st.builds(lambda role, parts, more: {"role": role, "content": parts, **more},
              st.sampled_from(["user", "assistant", "assistant", "system", "tool", None]), st.lists(PARTS, max_size=4),
              st.sampled_from([{}, {}, {"aborted": True}])),
    st.sampled_from([None, [], "x", {"role": "user", "content": "x"}, {"role": "assistant", "content": None}]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(MESSAGES, max_size=12))
def test_any_history_becomes_valid_and_a_second_pass_finds_nothing(history: list[Any]) -> None:
    checked = gate(history)
    assert faults(checked["messages"]) == []
    assert (checked["error"] is None) == bool(checked["messages"])
    again = gate(checked["messages"])
    assert json.dumps(again["messages"]) == json.dumps(checked["messages"])
    assert again["repairs"] == []


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=8), st.lists(st.builds(user, st.sampled_from(["x", "y"])), min_size=1, max_size=3))
def test_new_messages_leave_what_was_sent_before_as_it_was(history: list[Any], later: list[Json]) -> None:
    before, after = gate(history)["messages"], gate([*history, *later])["messages"]
    assert json.dumps(after[: len(before)]) == json.dumps(before)


@pytest.mark.parametrize("broken", [
    [user(), result("a")], [user(), said(call("a"))], [said(text(" "))], [user(), said(call("a")), user(), result("a")],
    [user(), said(call("a", arguments="x")), result("a")],
])  # fmt: skip
def test_the_checker_of_these_tests_sees_faults(broken: list[Json]) -> None:
    assert faults(broken)
