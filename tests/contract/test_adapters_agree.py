"""Every wire adapter through the same conversations: what comes out does not tell which protocol it came in by."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.sse import Parser
from rss_policy.transcripts import recording_of
from tests.fakes.adapter import ScriptAdapter, script_names
from tests.fakes.provider import Answer, Reasoning, Received, Refusal, Text, ToolCall, Usage
from tests.fakes.provider import anthropic_messages as messages_wire
from tests.fakes.provider import openai_chat as chat_wire
from tests.fakes.provider import openai_responses as responses_wire
from tests.fakes.provider.request import ProtocolName

Json = dict[str, Any]
WIRES: dict[ProtocolName, tuple[ScriptAdapter, ModuleType]] = {
    "openai_chat": (ScriptAdapter("chat"), chat_wire),
    "openai_responses": (ScriptAdapter("responses"), responses_wire),
    "anthropic_messages": (ScriptAdapter("messages"), messages_wire),
}
NAMES = list(WIRES)
FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
PROVIDER: Json = {"name": "fake", "capabilities": {}, "models": {}, "reasoning_replay": "always"}
TOOLS = [{"name": name, "description": "", "parameters": {"type": "object"}} for name in ("add", "sub", "mul")]
ADD, SUB, MUL = ToolCall("add", '{"x":1}', "c1"), ToolCall("sub", '{"y":[2,"é"]}', "c2"), ToolCall("mul", "{}", "c3")

CONVERSATIONS: dict[str, list[Answer]] = {
    "text": [Answer((Text("Hello there, friend."),))],
    "text in one piece": [Answer((Text("Hello."),), piece=0)],
    "reasoning": [Answer((Reasoning("Let me think. "), Text("42")))],
    "cut short": [Answer((Text("Once upon"),), finish="length")],
    "one call": [Answer((ADD,)), Answer((Text("It is 3."),))],
    "three parallel calls": [Answer((Text("I look."), ADD, SUB, MUL), piece=1), Answer((Text("Done."),))],
    "reasoning before calls": [Answer((Reasoning("Hm."), ADD, SUB)), Answer((Reasoning("So."), Text("Done.")))],
    "ids that come again": [Answer((ADD,)), Answer((ADD,)), Answer((Text("Done."),))],
    "arguments that are no object": [Answer((ToolCall("add", '{"x":1,,', "c1"),)), Answer((Text("Sorry."),))],
    "usage": [Answer((Text("Hi"),), usage=Usage(input=100, output=20, cached=64))],
    "strange text": [Answer((Text("\u2028 tab\t\U0001d573 \\ \" \x7f end"),), piece=1)],
}  # fmt: skip


def request_of(messages: list[Json], stream: bool) -> Json:
    made: Json = script_names()["llm_request"]("fake-model", "Be brief.", messages, TOOLS, {"stream": stream})
    return made


def received(name: ProtocolName, body: Json, number: int) -> Received:
    return Received(number, "POST", "/", {"anthropic-version": "1"}, b"", json.loads(json.dumps(body)), name)


def raw_stream(name: ProtocolName, answer: Answer, request: Received) -> bytes:
    return "".join(f"{event}\n\n" for event in WIRES[name][1].events(answer, request)).encode()


def streamed(name: ProtocolName, pieces: Iterator[bytes] | list[bytes]) -> Json:
    adapter, parser = WIRES[name][0], Parser()
    state = adapter.begin()
    told = [event for piece in pieces for one in parser.feed(piece) for event in adapter.feed(state, one)]
    result: Json = json.loads(json.dumps(adapter.end(state)))
    return {**result, "told": told}


def answered(name: ProtocolName, answer: Answer, body: Json, number: int) -> Json:
    adapter, wire = WIRES[name]
    request = received(name, body, number)
    wire.check(request)
    if body["stream"]:
        return streamed(name, [raw_stream(name, answer, request)])
    decoded: Json = adapter.decode(json.dumps(wire.body(answer, request)))
    return decoded


def conversation(name: ProtocolName, answers: list[Answer], stream: bool) -> Iterator[Json]:
    history: list[Json] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    for number, answer in enumerate(answers, 1):
        checked = script_names()["gate_check"](history)
        encoded = WIRES[name][0].encode(request_of(checked["messages"], stream), PROVIDER)
        assert encoded["ok"], encoded
        result = answered(name, answer, encoded["body"], number)
        assert result["ok"], result
        message = {**result["response"]["message"], "provider": "fake", "model": "fake-model"}
        results = [
            {"role": "tool", "call_id": part["id"], "name": part["name"], "content": f"result of {part['name']}", "ok": True}
            for part in message["content"]
            if part["type"] == "tool_call"
        ]
        history = [*history, message, *results]
        yield result["response"]


def plain(response: Json) -> Json:
    parts = [{name: value for name, value in part.items() if name != "raw"} for part in response["message"]["content"]]
    usage = {name: response["usage"][name] for name in ("input_tokens", "output_tokens", "cached_tokens")}
    return {"parts": parts, "stop": response["stop_reason"], "usage": usage, "model": response["model"]}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [name for name in CONVERSATIONS if name != "arguments that are no object"])
def test_one_conversation_gives_the_same_canonical_answers_by_every_protocol(script: str, stream: bool) -> None:
    first, *others = [[plain(response) for response in conversation(name, CONVERSATIONS[script], stream)] for name in NAMES]
    assert others == [first, first]
    assert len(first) == len(CONVERSATIONS[script])


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_and_a_whole_answer_say_the_same(name: ProtocolName) -> None:
    for script, answers in CONVERSATIONS.items():
        if script != "arguments that are no object" or name != "anthropic_messages":
            streams = [plain(response) for response in conversation(name, answers, True)]
            assert streams == [plain(response) for response in conversation(name, answers, False)]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_that_are_no_object_are_kept_as_text_and_go_back_as_an_object(name: ProtocolName) -> None:
    first, last = conversation(name, CONVERSATIONS["arguments that are no object"], True)
    part = first["message"]["content"][0]
    assert (part["arguments"], part["raw_arguments"]) == ({}, '{"x":1,,')
    assert last["message"]["content"][-1]["text"] == "Sorry."


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_has_its_own_stop_reason(name: ProtocolName) -> None:
    answer = Answer((Refusal("I cannot."),), finish="refusal")
    (response,) = conversation(name, [answer], True)
    texts = [part["text"] for part in response["message"]["content"]]
    assert (response["stop_reason"], texts) == ("refusal", ["I cannot."])


def test_calls_whose_deltas_are_mixed_come_out_the_same() -> None:
    found = []
    for name in NAMES:
        row = json.loads((FIXTURES / name / "stream_three_calls_interleaved.json").read_text("utf-8"))
        result = streamed(name, [recording_of(row).body.encode()])
        found.append([(part["id"], part["name"], part["arguments"]) for part in result["response"]["message"]["content"]])
        told: dict[int, str] = {}
        for event in result["told"]:
            told[event["index"]] = told.get(event["index"], "") + event["arguments"]
        assert [json.loads(text) for text in told.values()] == [arguments for _, _, arguments in found[-1]]
    assert found[0] == found[1] == found[2] == [("a", "add", {"x": 1}), ("b", "sub", {"y": 2}), ("c", "mul", {"z": 3})]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "client"), (401, "auth"), (403, "auth"), (404, "client"), (413, "overflow"), (429, "rate"), (500, "server"),
     (503, "overload"), (529, "overload")],
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_an_error_has_the_same_class_by_every_protocol(name: ProtocolName, status: int, kind: str) -> None:
    adapter, wire = WIRES[name]
    # A vendor's own code comes first: Anthropic has no type for 503.
    error = adapter.error(status, {"retry-after": "2"}, json.dumps(wire.error("something went wrong", status)))
    assert error["kind"] in (kind, "server" if status == 503 else kind)
    assert (error["status"], error["retry_after_ms"], error["message"]) == (status, 2_000, "something went wrong")


@pytest.mark.parametrize("name", NAMES)
def test_an_error_inside_a_stream_ends_it_as_an_error(name: ProtocolName) -> None:
    request = received(name, {"model": "fake-model"}, 1)
    raw = raw_stream(name, Answer((Text("Hello there"),)), request).split(b"\n\n")[:4]
    error = WIRES[name][1].error_event("it broke").encode()
    result = streamed(name, [b"\n\n".join([*raw, error, b""])])
    assert (result["ok"], result["error"]["message"]) == (False, "it broke")
    assert result["error"]["kind"] in ("server", "overload")
    assert [event["type"] for event in result["told"]][-1] == "error"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_is_cut_anywhere_is_an_error_or_the_whole_answer(name: ProtocolName) -> None:
    request = received(name, {"model": "fake-model"}, 1)
    raw = raw_stream(name, Answer((Reasoning("Hm."), Text("Hello there"), ADD, SUB)), request)
    whole = streamed(name, [raw])["response"]["message"]
    for end in range(0, len(raw), 3):
        result = streamed(name, [raw[:end]])
        assert result["response"]["message"] == whole if result["ok"] else result["error"]["code"] == "stream_cut"


@pytest.mark.parametrize("name", NAMES)
def test_any_split_of_the_bytes_gives_the_same_result(name: ProtocolName) -> None:
    parts = st.one_of(
        st.builds(Text, st.text(min_size=1).filter(lambda text: text.isprintable() and text.strip() != "")),
        st.builds(Reasoning, st.text(min_size=1)),
        st.builds(ToolCall, st.just("add"), st.just('{"x": "\\u00e9"}'), st.sampled_from(["a", "b", None])),
    )

    @settings(max_examples=25, deadline=None)
    @given(st.lists(parts, min_size=1, max_size=4), st.sampled_from([None, 0, 1, 3]), st.data())
    def check(told: list[Any], piece: int | None, data: st.DataObject) -> None:
        request = received(name, {"model": "fake-model"}, 1)
        raw = raw_stream(name, Answer(tuple(told), piece=piece), request)
        edges = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw)), max_size=12))})
        whole = streamed(name, [raw])
        assert streamed(name, [raw[start:end] for start, end in pairwise(edges)]) == whole
        assert streamed(name, [raw[at : at + 1] for at in range(len(raw))]) == whole

    check()


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "index", "delta", "text", "id", "content", "usage", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def spoiled(value: Any, data: st.DataObject) -> Any:
    """Return a value with something in it replaced by something else."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(value)))
        return {**value, name: spoiled(value[name], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], spoiled(value[at], data), *value[at + 1 :]]
    return data.draw(JSONS)


@pytest.mark.parametrize("name", NAMES)
def test_garbage_never_raises(name: ProtocolName) -> None:
    adapter, wire = WIRES[name]
    request = received(name, {"model": "fake-model"}, 1)
    answer = Answer((Reasoning("Hm."), Text("Hello"), ADD, SUB), piece=0)
    events = [json.loads(line[6:]) for line in raw_stream(name, answer, request).decode().split("\n")
              if line.startswith("data: {")]  # fmt: skip

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        body = spoiled(wire.body(answer, request), data)
        assert "ok" in adapter.decode(json.dumps(body))
        state = adapter.begin()
        for event in events:
            held = spoiled(event, data) if data.draw(st.integers(0, 3)) == 0 else event
            adapter.feed(state, {"event": "message", "data": json.dumps(held)})
        result = adapter.end(state)
        json.dumps(result)
        assert result["ok"] or result["error"]["kind"]
        assert adapter.error(500, {}, json.dumps(body))["kind"]

    check()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f"data: {text}\n\n".encode()))
def test_bytes_that_are_no_protocol_are_an_error(name: ProtocolName, raw: bytes) -> None:
    assert streamed(name, [raw])["ok"] is False
    assert WIRES[name][0].decode(raw.decode("utf-8", "replace"))["ok"] is False
