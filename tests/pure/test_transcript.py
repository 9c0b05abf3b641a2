"""Transcripts as a model may read them: every call with its result, no result alone, ids that are used again."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.transcript import NO_RESULT, paired

Json = dict[str, Any]


def user(text: str = "hi") -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def calls(*ids: str) -> Json:
    return {"role": "assistant", "content": [{"type": "tool_call", "id": each, "name": "n"} for each in ids]}


def result(call_id: str, content: str = "r") -> Json:
    return {"role": "tool", "call_id": call_id, "name": "n", "content": content, "ok": True}


def test_a_whole_transcript_stays_as_it_is() -> None:
    whole = [user(), calls("a", "b"), result("a"), result("b"), user()]
    assert paired(whole) == whole


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    assert paired([calls("a", "b"), user("steered"), result("b"), result("a")]) == [
        calls("a", "b"),
        result("a"),
        result("b"),
        user("steered"),
    ]


def test_a_missing_result_is_filled_in_unless_the_input_brings_it() -> None:
    [_, filled] = paired([calls("a")])
    assert (filled["content"], filled["ok"], filled["outcome"]) == (NO_RESULT, False, "unknown")
    assert paired([calls("a")], [result("a")]) == [calls("a")]


def test_a_result_that_stands_alone_is_left_out() -> None:
    assert paired([result("x"), user()]) == [user()]


def test_an_id_that_a_provider_used_again_gets_the_later_result() -> None:
    twice = [calls("a"), result("a", "1"), calls("a"), result("a", "2")]
    assert paired(twice) == twice
    assert [each.get("content") for each in paired([calls("a"), calls("a"), result("a", "2")])][1::2] == ["2", NO_RESULT]


MESSAGES = st.lists(
    st.one_of(
        st.just(user()),
        st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(lambda ids: calls(*ids)),
        st.sampled_from("abc").map(result),
    ),
    max_size=12,
)


@given(MESSAGES)
def test_whatever_is_on_record_every_call_is_followed_by_its_results_and_nothing_else_changes(said: list[Json]) -> None:
    whole = paired(said)
    assert paired(whole) == whole
    rest = [each for each in whole if each["role"] != "tool"]
    assert rest == [each for each in said if each["role"] != "tool"]
    expected: list[str] = []
    for each in whole:
        if each["role"] == "tool":
            assert expected.pop(0) == each["call_id"]
        else:
            assert expected == []
            expected = [part["id"] for part in each["content"] if part["type"] == "tool_call"]
    assert expected == []
