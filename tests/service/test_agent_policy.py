"""The bundled agent in the real engine: turns, tools, steering, and how runs end."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from eventstore.catalogue import TAGS, CanonicalEvent, NoteTaken
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_bundle
from tests.fakes.adapter import SCRIPTS
from tests.fakes.agent_host import AgentHost, Stream, answer
from tests.fakes.chat_wire import calls, chunk, ending, whole
from tests.fakes.scripts import CONTEXT

Json = dict[str, Any]
PROVIDER: Json = {
    "name": "fake",
    "adapter": "openai_chat",
    "capabilities": {},
    "models": {},
    "prices": {"some-model": {"input": 1_000_000, "output": 2_000_000}},
    "reasoning_replay": "never",
}
BUNDLE = load_bundle(SCRIPTS)


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(2)
    yield engine
    engine.close()


def tool(name: str, *, client: bool = False) -> Json:
    return {"name": name, "description": "", "parameters": {"type": "object"}, "client": client}


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def good(arguments: Any) -> Json:
    return {"ok": True, "outcome": "ok", "content": f"got {arguments}", "error": None, "truncated": False}


def play(engine: MontyEngine, host: AgentHost, **context: Any) -> Json:
    result: Json = host.play(engine, BUNDLE, {**CONTEXT, "provider": PROVIDER, **context})
    return result


def test_an_answer_streams_out_as_one_delta_a_batch_and_ends_the_run(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="Hel") + chunk(content="lo"), chunk(content="!"), ending()])])
    result = play(engine, host)
    assert [event["type"] for event in host.events] == ["model.started", "model.delta", "model.delta", "model.completed"]
    assert [event["text"] for event in host.of("model.delta")] == ["Hello", "!"]
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello!"}],
        "provider": "fake",
        "model": "some-model",
    }
    assert result == {"output": message, "finish_reason": "stop", "error": None}
    completed = host.of("model.completed")[0]
    assert (completed["turn"], completed["attempt"], completed["message"], completed["model"]) == (1, 1, message, "m-1")
    assert completed["usage"]["cost_micros"] == 20
    assert completed["usage"]["price"] == {"input": 1_000_000, "output": 2_000_000}


def test_an_unknown_price_is_null_and_never_zero(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="Hi"), ending()])])
    play(engine, host, provider={**PROVIDER, "prices": {}})
    assert host.of("model.completed")[0]["usage"].get("cost_micros") is None


def test_without_streaming_the_whole_answer_is_one_delta(engine: MontyEngine) -> None:
    host = AgentHost([answer(whole(content="Hi", reasoning_content="hm"))])
    result = play(engine, host, provider={**PROVIDER, "capabilities": {"stream": False}})
    assert (host.requests[0]["stream"], host.requests[0]["body"]["stream"]) == (False, False)
    assert [{**event} for event in host.of("model.delta")] == [
        {"type": "model.delta", "attempt": 1, "text": "Hi", "reasoning": "hm"}
    ]
    assert result["finish_reason"] == "stop"


def test_a_provider_that_ignores_the_wish_to_stream_is_understood(engine: MontyEngine) -> None:
    assert play(engine, AgentHost([answer(whole(content="Hi"))]))["output"]["content"][0]["text"] == "Hi"


def test_tools_run_side_by_side_and_their_results_go_back_in_the_order_of_the_calls(engine: MontyEngine) -> None:
    asked = Stream([calls(("b", "add", '{"x":1}'), ("a", "add", '{"x":2}')), ending("tool_calls")])
    host = AgentHost([asked, Stream([chunk(content="done"), ending()])], tools={"add": good}, pick=max)
    result = play(engine, host, tool_schemas=[tool("add")])
    assert host.most_open_tools == 2
    assert [event["call_id"] for event in host.of("tool.requested")] == ["b", "a"]
    sent = host.requests[1]["body"]["messages"][-2:]
    assert [(message["tool_call_id"], message["content"]) for message in sent] == [
        ("b", "got {'x': 1}"),
        ("a", "got {'x': 2}"),
    ]
    assert (result["finish_reason"], [event["turn"] for event in host.of("model.completed")]) == ("stop", [1, 2])
    assert [event["attempt"] for event in host.of("model.started")] == [1, 2]


def test_an_unknown_tool_is_a_result_that_the_model_can_read(engine: MontyEngine) -> None:
    host = AgentHost([Stream([calls(("a", "fly", "{}")), ending("tool_calls")]), Stream([chunk(content="ok"), ending()])])
    assert play(engine, host)["error"] is None
    assert host.requests[1]["body"]["messages"][-1]["content"] == "there is no tool fly"


def test_arguments_that_are_no_object_never_reach_a_tool_as_if_they_were(engine: MontyEngine) -> None:
    host = AgentHost(
        [Stream([calls(("a", "add", '{"x": 1,,')), ending("tool_calls")]), Stream([chunk(content="ok"), ending()])]
    )
    play(engine, host, tool_schemas=[tool("add")])
    asked = host.of("tool.requested")[0]
    assert (asked["arguments"], asked["raw_arguments"]) == ({}, '{"x": 1,,')
    assert host.tool_calls[0]["arguments"] == '{"x": 1,,'
    assert host.requests[1]["body"]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_call_for_the_client_ends_the_run_after_the_servers_own_calls(engine: MontyEngine) -> None:
    asked = Stream([calls(("a", "mine", "{}"), ("b", "theirs", '{"y":1}')), ending("tool_calls")])
    host = AgentHost([asked], tools={"mine": good})
    result = play(engine, host, tool_schemas=[tool("mine"), tool("theirs", client=True)])
    assert [call["name"] for call in host.tool_calls] == ["mine"]
    assert result["finish_reason"] == "tool_calls"
    assert [part["name"] for part in result["output"]["content"]] == ["mine", "theirs"]


def test_a_clients_results_come_back_as_input_and_stand_behind_their_call(engine: MontyEngine) -> None:
    call = {"type": "tool_call", "id": "b", "name": "theirs", "arguments": {}}
    history = [user("go"), {"role": "assistant", "content": [call], "provider": "fake", "model": "some-model"}]
    back = {"role": "tool", "call_id": "b", "name": "theirs", "content": "42", "ok": True}
    host = AgentHost([Stream([chunk(content="42!"), ending()])])
    play(engine, host, messages=history, input=[back], tool_schemas=[tool("theirs", client=True)])
    assert [message["role"] for message in host.requests[0]["body"]["messages"]] == ["user", "assistant", "tool"]
    assert host.of("note.repaired") == []


def test_a_message_that_steers_joins_at_the_next_model_boundary(engine: MontyEngine) -> None:
    turns = [Stream([calls(("a", "add", "{}")), ending("tool_calls")]), Stream([chunk(content="ok"), ending()])]
    host = AgentHost([*turns], tools={"add": good}, steer=[[], [user("hurry")]])
    play(engine, host, tool_schemas=[tool("add")])
    assert [message["role"] for message in host.requests[1]["body"]["messages"]] == ["user", "assistant", "tool", "user"]


def test_each_turns_request_begins_with_the_one_before(engine: MontyEngine) -> None:
    turns = [Stream([calls((f"c{n}", "add", "{}")), ending("tool_calls")]) for n in range(3)]
    host = AgentHost([*turns, Stream([chunk(content="ok"), ending()])], tools={"add": good})
    play(engine, host, tool_schemas=[tool("mul"), tool("add")], system_prompt="Be brief.")
    for before, after in zip(host.requests, host.requests[1:], strict=False):
        assert after["body"]["messages"][: len(before["body"]["messages"])] == before["body"]["messages"]
        assert after["body"]["tools"] == before["body"]["tools"]
    assert [one["function"]["name"] for one in host.requests[0]["body"]["tools"]] == ["add", "mul"]


def test_a_history_that_a_crash_left_open_is_mended_and_the_repair_is_on_record_once(engine: MontyEngine) -> None:
    call = {"type": "tool_call", "id": "a", "name": "add", "arguments": {}}
    history = [user("go"), {"role": "assistant", "content": [call]}]
    turns = [Stream([calls(("b", "add", "{}")), ending("tool_calls")]), Stream([chunk(content="ok"), ending()])]
    host = AgentHost([*turns], tools={"add": good})
    play(engine, host, messages=history, tool_schemas=[tool("add")])
    assert host.of("note.repaired") == [{"type": "note.repaired", "turn": 1, "repairs": ["result_missing"]}]
    assert [message["role"] for message in host.requests[0]["body"]["messages"]] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize(("text", "finish", "code"), [("so far", "max_turns", None), ("", "error", "max_turns")])
def test_after_the_last_turn_a_run_ends_with_what_there_is(
    engine: MontyEngine, text: str, finish: str, code: str | None
) -> None:
    turns = [Stream([chunk(content=text) + calls((f"c{n}", "add", "{}")), ending("tool_calls")]) for n in range(2)]
    host = AgentHost([*turns], tools={"add": good})
    result = play(engine, host, limits={"max_turns": 2}, tool_schemas=[tool("add")])
    assert result["finish_reason"] == finish
    assert (result["error"] or {}).get("code") == code
    assert len(host.tool_calls) == 2
    assert result["output"] is None or [part["type"] for part in result["output"]["content"]] == ["text"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"provider": None}, "no_provider"),
        ({"model": None}, "no_model"),
        ({"provider": {**PROVIDER, "adapter": "smoke"}}, "unknown_adapter"),
        ({"input": []}, "invalid_request"),
        ({"input": [{"role": "user", "content": [{"type": "image", "url": "https://e.test/a.png"}]}],
          "provider": {**PROVIDER, "capabilities": {"images": False}}}, "unsupported_images"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_fails_with_its_own_code_and_sends_nothing(
    engine: MontyEngine, changed: Json, code: str
) -> None:
    host = AgentHost([])
    result = play(engine, host, **changed)
    assert (result["output"], result["error"]["code"], host.requests) == (None, code, [])


def test_options_of_a_request_arrive_under_canonical_or_openais_names(engine: MontyEngine) -> None:
    options = {
        "max_completion_tokens": 9,
        "stop": "END",
        "temperature": 0.1,
        "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "seed": 7,
    }
    host = AgentHost([Stream([chunk(content="ok"), ending()])])
    play(
        engine,
        host,
        provider_options=options,
        tool_schemas=[tool("add")],
        provider={**PROVIDER, "reasoning_field": "reasoning_effort"},
    )
    sent = host.requests[0]["body"]
    assert (sent["max_tokens"], sent["stop"], sent["temperature"], sent["reasoning_effort"], sent["seed"]) == (
        9,
        ["END"],
        0.1,
        "low",
        7,
    )
    assert sent["tool_choice"]["function"]["name"] == "add"
    assert sent["response_format"]["json_schema"] == {"name": "n", "schema": {"type": "object"}}


def test_a_model_may_speak_another_protocol_than_its_provider(engine: MontyEngine) -> None:
    provider = {**PROVIDER, "adapter": "none_such", "models": {"some-model": {"adapter": "openai_chat"}}}
    host = AgentHost([Stream([chunk(content="ok"), ending()])])
    assert play(engine, host, provider=provider)["error"] is None


def test_every_event_is_one_of_the_catalogue_with_its_fields_and_no_others(engine: MontyEngine) -> None:
    broken = Stream([chunk(content="He")], "network_error")
    asked = Stream([chunk(content="Hm") + calls(("a", "add", "{")), ending("tool_calls")])
    host = AgentHost([broken, asked, Stream([chunk(content="ok"), ending()])], tools={"add": good})
    play(engine, host, messages=[{"role": "user", "content": []}], tool_schemas=[tool("add")])
    kinds = {event["type"] for event in host.events}
    assert kinds == {"model.started", "model.delta", "model.discarded", "model.completed", "tool.requested", "note.repaired"}
    for event in host.events:
        if event["type"].startswith("note."):
            NoteTaken(kind=event["type"].removeprefix("note."), data=event)
            continue
        shape = TAGS[event["type"]]
        assert shape in get_args(CanonicalEvent)
        assert set(event) - {"type"} <= set(shape.__struct_fields__) - {"seq"}
        msgspec.convert({**event, "seq": 1}, shape)


def test_a_run_replays_to_the_same_calls_and_events(engine: MontyEngine) -> None:
    asked = Stream([calls(("a", "add", "{}"), ("b", "add", "{}")), ending("tool_calls")])
    host = AgentHost(
        [Stream([], "network_error"), asked, Stream([chunk(content="ok"), ending()])], tools={"add": good}, pick=max
    )
    context = {**CONTEXT, "provider": PROVIDER, "tool_schemas": [tool("add")]}
    host.play(engine, BUNDLE, context)
    script, halt = engine.open(BUNDLE, context, tuple(host.steps))
    script.close()
    assert halt is not None
    assert halt.acts[-1].event["type"] == "model.completed"  # type: ignore[union-attr]  # the last act is an emission


@pytest.mark.parametrize(("asked", "limit", "sent"), [(9, 5, 5), (5, 9, 5), (None, 7, 7), (7, None, 7), (None, None, None)])
def test_the_smaller_of_what_is_asked_and_what_is_allowed_bounds_an_answer(
    engine: MontyEngine, asked: int | None, limit: int | None, sent: int | None
) -> None:
    host = AgentHost([Stream([chunk(content="ok"), ending()])])
    play(engine, host, provider_options={"max_tokens": asked}, limits={"max_output_tokens": limit})
    assert host.requests[0]["body"].get("max_tokens") == sent
