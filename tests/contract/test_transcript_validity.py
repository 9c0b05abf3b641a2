"""What bricks sessions elsewhere, by every protocol: whatever a history went through, what goes out is valid."""

from typing import Any

import pytest

from tests.fakes.encoding import PROTOCOLS, body, call, encoded, result, said, thought, user
from tests.fakes.grammar import faults

Json = dict[str, Any]
CALLS = [user("1+2"), said("Hm.", call("a"), call("b")), result("a"), result("b"), said("3"), user("and?"), said(call("c")),
         result("c"), said("done"), user("more")]  # fmt: skip


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def valid(protocol: str, history: list[Any], **more: Any) -> str:
    made = body(protocol, history, **more)
    assert faults(protocol, made) == []
    return str(made)


def test_a_history_cut_anywhere_by_compaction_is_valid(protocol: str) -> None:
    for cut in range(len(CALLS)):
        valid(protocol, CALLS[cut:])
        valid(protocol, [user("A summary."), *CALLS[cut:]])


def test_a_history_that_broke_off_anywhere_is_valid(protocol: str) -> None:
    for end in range(1, len(CALLS)):
        sent = valid(protocol, [*CALLS[:end], user("still there?")])
        assert "still there?" in sent


def test_a_call_that_a_crash_left_open_gets_a_result_that_says_so(protocol: str) -> None:
    assert "whether it had an effect is unknown" in valid(
        protocol, [user("go"), said(call("a"), call("b")), result("a"), user("?")]
    )


def test_a_result_whose_call_is_gone_does_not_go_along(protocol: str) -> None:
    assert "ORPHAN" not in valid(protocol, [user("go"), result("gone", "ORPHAN"), said("hi"), user("?")])


def test_a_result_that_came_late_is_put_behind_its_call(protocol: str) -> None:
    history = [user("go"), said(call("a")), user("wait"), said("Yes?"), result("a", "LATE"), user("?")]
    sent = valid(protocol, history)
    assert sent.index("LATE") < sent.index("wait")


def test_arguments_that_are_no_object_go_out_as_an_empty_one_with_an_error(protocol: str) -> None:
    broken = call("a", raw_arguments='{"x": 1,,')
    sent = valid(protocol, [user("go"), said(broken), user("?")])
    assert "were not a JSON object" in sent


def test_ids_that_a_provider_gives_again_and_again_keep_their_results_apart(protocol: str) -> None:
    history = [user("go"), said(call("a"), call("a")), result("a", "FIRST"), result("a", "SECOND"), said(call("a")),
               result("a", "THIRD"), user("?")]  # fmt: skip
    sent = valid(protocol, history)
    assert sent.index("FIRST") < sent.index("SECOND") < sent.index("THIRD")


def test_an_id_goes_back_as_its_provider_gave_it(protocol: str) -> None:
    assert "call_9-Zz" in valid(protocol, [user("go"), said(call("call_9-Zz")), result("call_9-Zz"), user("?")])


@pytest.mark.parametrize("call_id", ["functions.add:0", "call_" + "z" * 90, "", "é"])
def test_an_id_of_another_vendor_is_made_to_fit(protocol: str, call_id: str) -> None:
    foreign = {**said(call(call_id)), "provider": "other"}
    valid(protocol, [user("go"), foreign, result(call_id), user("?")])


def test_what_a_model_thought_goes_back_unchanged_and_in_order(protocol: str) -> None:
    history = [user("go"), said(thought(protocol, "ONE"), "Hm.", thought(protocol, "TWO"), call("a")), result("a")]
    sent = valid(protocol, history)
    if protocol == "openai_chat":
        assert "TWO" in sent
    else:
        assert (
            sent.index("ONE") < sent.index("Hm.") < sent.index("TWO") < sent.index("call" if "call" in sent else "tool_use")
        )


@pytest.mark.parametrize("change", [{"model": "m-2"}, {"provider": {"name": "other", "capabilities": {}, "models": {}}}])
@pytest.mark.parametrize("maker", PROTOCOLS)
def test_what_another_model_thought_is_dropped_whole(protocol: str, maker: str, change: Json) -> None:
    history = [user("go"), said(thought(maker), "Hm.", call("a")), result("a"), user("?")]
    sent = valid(protocol, history, **change)
    assert "Secret" not in sent
    assert "Hm." in sent


@pytest.mark.parametrize("maker", PROTOCOLS)
def test_blocks_of_one_protocol_mean_nothing_to_another_even_for_the_same_model(protocol: str, maker: str) -> None:
    raws: dict[str, Json] = {
        "openai_chat": {"extra": 1},
        "openai_responses": {"responses_item": {"id": "fc_1", "type": "function_call"}},
        "anthropic_messages": {"messages_block": {"caller": {"type": "direct"}}},
    }
    if maker != protocol:
        sent = valid(protocol, [user("go"), said(thought(maker), call("a", raw=raws[maker])), result("a")])
        assert "fc_1" not in sent
        assert "direct" not in sent


def test_a_message_of_thoughts_alone_does_not_go_along(protocol: str) -> None:
    assert "Secret" not in valid(protocol, [user("go"), said(thought(protocol)), user("?")])


def test_of_a_broken_off_answer_the_text_remains(protocol: str) -> None:
    history = [user("go"), said(thought(protocol), "I was about", call("a"), aborted=True), user("?")]
    sent = valid(protocol, history)
    assert "I was about" in sent
    assert "Secret" not in sent
    assert "'a'" not in sent


def test_blank_texts_do_not_go_along(protocol: str) -> None:
    valid(protocol, [user("go"), said(" ", call("a")), result("a", ""), said("\n"), user(""), user("?")], system=" ")


def test_neighbours_of_one_role_are_valid(protocol: str) -> None:
    sent = valid(protocol, [said("Hi."), said("Hello."), user("a"), user("b"), said("c"), said("d"), user("e")])
    assert [sent.index(word) for word in ("Hi.", "Hello.", "'d'", "'e'")] == sorted(
        sent.index(word) for word in ("Hi.", "Hello.", "'d'", "'e'")
    )


def test_huge_results_of_one_turn_are_cut_together(protocol: str) -> None:
    calls = [call(f"c{number}") for number in range(10)]
    results = [result(f"c{number}", "x" * 100_000) for number in range(10)]
    assert len(valid(protocol, [user("go"), said(*calls), *results])) < 450_000


def test_half_a_surrogate_pair_nul_and_wide_letters_pass(protocol: str) -> None:
    decoded = '{"x": "\\ud835 \\u0000 \U0001d573"}'
    valid(protocol, [user("\x00 \U0001d573"), said(call("a", {"x": decoded})), result("a", decoded)])


def test_images_for_a_model_without_eyes_are_refused_now_and_left_out_later(protocol: str) -> None:
    image = {"role": "user", "content": [{"type": "image", "url": "https://example.test/a.png"}]}
    blind = {"name": "fake", "capabilities": {"images": False}, "models": {}}
    refused = encoded(protocol, [user("a"), image], provider=blind)
    assert (refused["ok"], refused["error"]["code"], refused["error"]["kind"]) == (False, "unsupported_images", "client")
    later = encoded(protocol, [image, said("I see."), user("and now?")], provider=blind)
    assert later["repairs"] == ["images_left_out"]
    assert "example.test" not in str(later["body"])
    assert faults(protocol, later["body"]) == []


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([{"name": "a b", "parameters": {}}], "invalid_tool_name"),
        ([{"name": "a", "parameters": {}}] * 2, "invalid_tool_name"),
        ([{"name": "n" * 129, "parameters": {}}], "invalid_tool_name"),
    ],
)
def test_tools_that_no_provider_would_take_are_refused(protocol: str, tools: list[Json], code: str) -> None:
    assert encoded(protocol, [user("go")], tools=tools)["error"]["code"] == code


def test_tools_for_a_model_without_them_are_refused(protocol: str) -> None:
    handless = {"name": "fake", "capabilities": {}, "models": {"m-1": {"capabilities": {"tools": False}}}}
    assert encoded(protocol, [user("go")], provider=handless)["error"]["code"] == "unsupported_tools"


def test_a_choice_of_a_tool_that_is_not_there_is_an_error_before_anything_is_sent(protocol: str) -> None:
    refused = encoded(protocol, [user("go")], tool_choice={"name": "fly"})
    assert (refused["error"]["code"], refused["error"]["kind"]) == ("invalid_request", "client")


def test_a_request_without_end_is_an_overflow_before_anything_is_sent(protocol: str) -> None:
    refused = encoded(protocol, [user("x" * 30_000_001)])
    assert (refused["error"]["code"], refused["error"]["kind"]) == ("request_too_large", "overflow")


def test_options_of_the_providers_own_go_under_their_own_keys_and_never_over_ours(protocol: str) -> None:
    options = {"model": "evil", "stream": False, "messages": [], "input": [], "future_option": {"a": 1}}
    made = body(protocol, [user("go")], provider_options=options)
    assert (made["model"], made["stream"], made["future_option"]) == ("m-1", True, {"a": 1})
    assert "go" in str(made)
