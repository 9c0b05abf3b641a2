"""Tool calls put together from pieces: whatever the cut, the same calls, and the pieces that are told add up."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.adapter import ScriptAdapter

Json = dict[str, Any]
CHAT = ScriptAdapter("chat")
OBJECTS = st.dictionaries(
    st.text(max_size=3), st.integers() | st.text(max_size=6) | st.sampled_from([{"{": "}"}, {}]), max_size=3
)


def streamed(pieces: list[Json]) -> tuple[list[Json], list[Json]]:
    """Return the calls of the answer and the events that were told."""
    state, told = CHAT.begin(), list[Json]()
    for piece in pieces:
        chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}
        told += CHAT.feed(state, {"event": "message", "data": json.dumps(chunk)})
    CHAT.feed(state, {"event": "message", "data": "[DONE]"})
    return CHAT.end(state)["response"]["message"]["content"], told


def piece(index: int, text: str, call_id: str | None = None, name: str | None = None) -> Json:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": text}}


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.data())
def test_any_cut_and_any_mixture_of_parallel_calls_gives_the_same_calls(wanted: list[Json], data: st.DataObject) -> None:
    texts = [json.dumps(arguments, ensure_ascii=False) for arguments in wanted]
    pieces = [piece(at, "", f"id{at}", f"tool{at}") for at in range(len(texts))]
    places = [0] * len(texts)
    while open_calls := [at for at, text in enumerate(texts) if places[at] < len(text)]:
        at = data.draw(st.sampled_from(open_calls))
        size = data.draw(st.integers(1, 9))
        pieces.append(piece(at, texts[at][places[at] : places[at] + size]))
        places[at] += size
    calls, told = streamed(pieces)
    assert [(call["id"], call["name"], call["arguments"]) for call in calls] == [
        (f"id{at}", f"tool{at}", arguments) for at, arguments in enumerate(wanted)
    ]
    for at, text in enumerate(texts):
        mine = [event for event in told if event["index"] == at]
        assert (mine[0]["id"], mine[0]["name"]) == (f"id{at}", f"tool{at}")
        assert "".join(event["arguments"] for event in mine) in (text, "" if text == "{}" else text)


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_whole_calls_stay_apart_without_ids_or_without_indexes(wanted: list[Json], with_id: bool, with_index: bool) -> None:
    pieces = [
        {"function": {"name": "tool", "arguments": json.dumps(arguments)}}
        | ({"id": f"id{at}"} if with_id else {})
        | ({"index": at} if with_index else {})
        for at, arguments in enumerate(wanted)
    ]
    calls, _ = streamed(pieces)
    assert [call["arguments"] for call in calls] == wanted
    assert len({call["id"] for call in calls}) == len(wanted)


def test_an_id_that_comes_late_is_told_when_it_comes() -> None:
    calls, told = streamed([piece(0, '{"x"', None, "add"), piece(0, ":1}", "a")])
    assert [(event["id"], event["name"]) for event in told] == [(None, "add"), ("a", None)]
    assert calls[0]["id"] == "a"


def test_a_placeholder_is_not_told_because_it_could_not_be_taken_back() -> None:
    _, told = streamed([piece(0, "{}", "a", "add"), piece(0, '{"x":'), piece(0, "1}")])
    assert "".join(event["arguments"] for event in told) == '{"x":1}'


def test_calls_without_ids_get_the_same_ids_each_time_and_others_in_another_answer() -> None:
    def ids(answer_id: str) -> list[str]:
        message = {"tool_calls": [{"function": {"name": "now", "arguments": "{}"}}] * 2}
        body = {"id": answer_id, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        return [call["id"] for call in CHAT.decode(json.dumps(body))["response"]["message"]["content"]]

    assert ids("resp-1") == ids("resp-1")
    assert not set(ids("resp-1")) & set(ids("resp-2"))
    assert len(set(ids("resp-1"))) == 2
