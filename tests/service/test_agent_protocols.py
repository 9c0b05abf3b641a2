"""The bundled agent in the real engine, over real HTTP, by each of the three protocols; the provider checks its requests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from actors.ports import Exchange, ModelCall
from actors.sse import events_of
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint
from gateways.provider.transport import ProviderTransport
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_bundle
from rss_policy.replay import Replayed, replay
from rss_policy.script import Call
from tests.fakes.adapter import SCRIPTS
from tests.fakes.agent_host import AgentHost
from tests.fakes.grammar import faults
from tests.fakes.provider import Answer, FakeProvider, Faults, Reasoning, Status, Text, ToolCall, Usage, says
from tests.fakes.scripts import CONTEXT

Json = dict[str, Any]
PROTOCOLS = ("openai_chat", "openai_responses", "anthropic_messages")
BUNDLE = load_bundle(SCRIPTS)
ADD, SUB, MUL = ToolCall("add", '{"x":1}', "call_a"), ToolCall("sub", '{"y":2}', "call_b"), ToolCall("mul", "{}", "call_c")


@dataclass
class WiredHost(AgentHost):
    """Performs requests and reads over real connections."""

    transport: ProviderTransport | None = None
    exchanges: dict[int, Exchange] = field(default_factory=dict)

    def _settle(self, call: Call, streams: dict[int, Any]) -> Json:
        if call.kind == "request":
            return self._open(call)
        if call.kind == "read":
            batch = self.exchanges[call.payload["of"]].read()
            if batch.error is not None:
                return {"ok": False, "error": batch.error, "events": events_of(batch.raw)}
            return {"ok": True, "events": events_of(batch.raw), "done": batch.done}
        return super()._settle(call, streams)

    def _open(self, call: Call) -> Json:
        assert self.transport is not None
        self.requests.append(call.payload)
        asked = ModelCall(
            "fake",
            call.payload["path"],
            call.payload["body"],
            stream=call.payload["stream"],
            headers=call.payload["headers"],
        )
        self.exchanges[call.number] = self.transport.exchange(asked)
        return self.exchanges[call.number].open()


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    engine = MontyEngine(2)
    yield engine
    engine.close()


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key="sk-test") as fake:
        yield fake


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(fake: FakeProvider, protocol: str) -> Iterator[WiredHost]:
    auth: Any = "x-api-key" if protocol == "anthropic_messages" else "bearer"
    endpoint = Endpoint("fake", fake.url, auth=auth, secret="sk-test")  # noqa: S106 - of the fake
    transport = ProviderTransport({"fake": endpoint}.get, SystemClock())
    tools: dict[str, Callable[[Any], Json]] = dict.fromkeys(("add", "sub", "mul"), good)
    yield WiredHost([], tools=tools, transport=transport)
    transport.close()


def good(arguments: Any) -> Json:
    return {"ok": True, "outcome": "ok", "content": f"got {sorted(arguments)}", "error": None, "truncated": False}


def tool(name: str) -> Json:
    return {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}, "client": False}


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def context(protocol: str, **more: Any) -> Json:
    provider: Json = {
        "name": "fake", "adapter": protocol, "capabilities": {}, "models": {}, "reasoning_replay": "always",
        "prices": {"fake-model": {"input": 1_000_000, "output": 2_000_000, "cached": 100_000}},
    }  # fmt: skip
    tools = [tool("add"), tool("mul"), tool("sub")]
    return {
        **CONTEXT,
        "model": "fake-model",
        "provider": provider,
        "tool_schemas": tools,
        "system_prompt": "Be brief.",
        **more,
    }


def play(engine: MontyEngine, host: WiredHost, asked: Json) -> Json:
    result: Json = host.play(engine, BUNDLE, asked)
    for request in host.requests:
        assert faults(asked["provider"]["adapter"], request["body"]) == []
    return result


def test_a_run_with_reasoning_and_parallel_tools_goes_through(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    usage = Usage(input=100, output=20, cached=40)
    fake.then(Answer((Reasoning("I need all three. "), Text("I look."), ADD, SUB, MUL)))
    fake.then(Answer((Reasoning("Good."), Text("It is done.")), usage=usage))
    result = play(engine, host, context(protocol))
    assert (result["finish_reason"], result["error"]) == ("stop", None)
    assert result["output"]["content"][-1]["text"] == "It is done."
    assert [event["arguments"] for event in host.of("tool.requested")] == [{"x": 1}, {"y": 2}, {}]
    assert host.most_open_tools == 3
    told = host.of("model.delta")
    assert "".join(event.get("text", "") for event in told) == "I look.It is done."
    assert "".join(event.get("reasoning", "") for event in told) == "I need all three. Good."
    counted = host.of("model.completed")[1]["usage"]
    assert (counted["input_tokens"], counted["output_tokens"], counted["cached_tokens"]) == (100, 20, 40)
    assert (counted["cost_micros"], counted["price"]["cached"]) == (60 + 40 + 4, 100_000)
    assert host.of("note.repaired") == []


def test_what_a_model_thought_goes_back_to_it_unchanged_and_not_to_another(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    fake.then(Answer((Reasoning("Secret thoughts."), Text("Hm."), ADD)), says("done"), says("again"), says("other"))
    play(engine, host, context(protocol))
    first = host.of("model.completed")[0]["message"]
    results = [{"role": "tool", "call_id": "call_a", "name": "add", "content": "1", "ok": True}]
    history = [*CONTEXT["input"], first, *results, {**host.of("model.completed")[1]["message"]}]
    play(engine, host, context(protocol, messages=history, input=[user("more")]))
    assert "Secret thoughts." in str(host.requests[2]["body"])
    play(engine, host, context(protocol, messages=history, input=[user("more")], model="fake-model-2"))
    assert "Secret thoughts." not in str(host.requests[3]["body"])
    assert "call_a" in str(host.requests[3]["body"])


def test_deltas_come_as_they_arrive(engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str) -> None:
    fake.then(says("one two three four five six", pace=0.06))
    play(engine, host, context(protocol))
    assert len(host.of("model.delta")) >= 3


def test_without_streaming_the_answer_is_the_same(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    fake.then(Answer((Reasoning("Hm."), Text("Yes."), ADD)), says("done"))
    asked = context(protocol)
    asked["provider"]["capabilities"] = {"stream": False}
    assert play(engine, host, asked)["output"]["content"][0]["text"] == "done"
    assert host.of("model.delta")[0]["text"] == "Yes."
    assert [request["stream"] for request in host.requests] == [False, False]


@pytest.mark.parametrize(
    "fault",
    [Faults(cut_after=400), Faults(no_end=True), Faults(error_after=3), Faults(garbage_after=3, garbage=b"data: {\n\n")],
)
def test_a_broken_stream_is_tried_again_and_never_a_short_answer(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str, fault: Faults
) -> None:
    fake.then(Answer((Text("The answer is " + "long " * 50),), faults=fault), says("ok"))
    result = play(engine, host, context(protocol))
    if not (fault.no_end and protocol == "openai_chat"):  # A finish reason without the mark behind it is an end too.
        assert [part["text"] for part in result["output"]["content"]] == ["ok"]
        assert len(host.of("model.discarded")) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "provider_auth"), (404, "provider_refused"), (413, "context_overflow"), (403, "provider_auth")],
)
def test_an_error_that_no_retry_mends_ends_the_run_with_its_code(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str, status: int, code: str
) -> None:
    fake.then(Status(status, "no"))
    error = play(engine, host, context(protocol))["error"]
    assert (error["code"], error["status"]) == (code, status)
    assert host.sleeps == []


def test_the_time_that_a_provider_asks_for_is_waited(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    fake.then(Status(429, "slow down", retry_after="3"), Status(529, "busy", retry_after_ms=250), says("ok"))
    assert play(engine, host, context(protocol))["error"] is None
    assert host.sleeps == [3_000, 250]


def test_a_session_that_went_through_everything_still_works(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    call: Json = {"type": "tool_call", "id": "functions.add:0", "name": "add", "arguments": {}}
    history: list[Json] = [
        {"role": "assistant", "content": [{"type": "text", "text": "cut off at its start"}]},
        user(" "), user("go"),
        {"role": "assistant", "content": [{**call, "raw_arguments": "{"}, call], "provider": "x", "model": "y"},
        {"role": "tool", "call_id": "functions.add:0", "name": "add", "content": "", "ok": False},
        user("still there?"),
        {"role": "assistant", "content": [{"type": "text", "text": "I was"}, call], "aborted": True},
        {"role": "tool", "call_id": "gone", "name": "add", "content": "orphan", "ok": True},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
    ]  # fmt: skip
    fake.then(says("I am here."))
    result = play(engine, host, context(protocol, messages=history))
    assert result["output"]["content"][0]["text"] == "I am here."
    (note,) = host.of("note.repaired")
    assert {"aborted_trimmed", "blank_text", "result_missing", "result_without_call", "system_hoisted"} <= set(
        note["repairs"]
    )


def test_a_run_is_replayed_from_its_record_to_the_same_events(
    engine: MontyEngine, fake: FakeProvider, host: WiredHost, protocol: str
) -> None:
    fake.then(Answer((Reasoning("Hm."), Text("I look."), ADD, SUB), piece=2), says("done"))
    asked = context(protocol)
    play(engine, host, asked)
    assert isinstance(replay(engine, BUNDLE, asked, tuple(host.steps)), Replayed)
