"""A host for one agent run: drives a script through the real engine with a scripted provider and scripted tools."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from actors.sse import events_of
from rss_policy.bundle import Bundle
from rss_policy.replay import recorded
from rss_policy.script import Call, Emit, Ended, Engine, Halt, Raised, RecordedStep, Waiting

Json = dict[str, Any]
NOW = 1_700_000_000_000_000


def answer(body: str, status: int = 200, headers: Json | None = None) -> Json:
    return {"ok": True, "status": status, "headers": headers or {}, "body": body}


def failure(code: str) -> Json:
    return {"ok": False, "error": {"code": code, "message": f"{code} happened"}}


@dataclass
class Stream:
    """Batches of raw bytes; `fault` is the code of the error that the last read brings."""

    batches: list[bytes]
    fault: str | None = None

    def read(self, number: int) -> Json:
        events = events_of(self.batches[number]) if number < len(self.batches) else []
        last = number >= len(self.batches) - 1
        if last and self.fault is not None:
            return {**failure(self.fault), "events": events}
        return {"ok": True, "events": events, "done": last}


@dataclass
class AgentHost:
    """Answers one run's calls; `provider` is used up in order, `tools` by name, `steer` before each model request."""

    provider: list[Json | Stream]
    tools: dict[str, Callable[[Any], Json]] = field(default_factory=dict)
    steer: list[list[Json]] = field(default_factory=list)
    pick: Callable[[list[int]], int] = min
    events: list[Json] = field(default_factory=list)
    requests: list[Json] = field(default_factory=list)
    tool_calls: list[Json] = field(default_factory=list)
    sleeps: list[int] = field(default_factory=list)
    steps: list[RecordedStep] = field(default_factory=list)
    most_open_tools: int = 0
    draws: int = 0

    def play(self, engine: Engine, bundle: Bundle, context: Json) -> Any:
        """Run to the end and return what the script returned."""
        script, _ = engine.open(bundle, context)
        open_calls: dict[int, Call] = {}
        streams: dict[int, tuple[Stream, Iterable[int]]] = {}
        try:
            halt = self._take(script.begin(self._answer), None, None, open_calls)
            while isinstance(halt, Waiting):
                self.most_open_tools = max(self.most_open_tools, sum(c.kind == "call_tool" for c in open_calls.values()))
                number = self.pick(sorted(set(halt.on) & set(open_calls)))
                outcome = self._settle(open_calls.pop(number), streams)
                halt = self._take(script.settle(number, outcome, self._answer), number, outcome, open_calls)
        finally:
            script.close()
        assert not isinstance(halt, Raised), f"{halt.code} at {halt.at}: {halt.message}"
        assert isinstance(halt, Ended)
        return halt.result

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["type"] == kind]

    def _take(self, halt: Halt, number: int | None, outcome: Any, open_calls: dict[int, Call]) -> Halt:
        for act in halt.acts:
            if isinstance(act, Emit):
                self.events.append(act.event)
            if isinstance(act, Call):
                open_calls[act.number] = act
        self.steps.append(RecordedStep(number, outcome, tuple(recorded(act) for act in halt.acts)))
        return halt

    def _answer(self, kind: str) -> Any:
        if kind == "new_messages":
            return self.steer.pop(0) if self.steer else []
        self.draws += 1
        return NOW if kind == "now" else f"id_{self.draws}"

    def _settle(self, call: Call, streams: dict[int, Any]) -> Json:
        if call.kind == "request":
            self.requests.append(call.payload)
            given = self.provider.pop(0)
            if isinstance(given, Stream):
                streams[call.number] = (given, iter(range(10_000)))
                return {"ok": True, "status": 200, "headers": {}, "stream": True}
            return given
        if call.kind == "read":
            stream, counter = streams[call.payload["of"]]
            outcome: Json = stream.read(next(counter))
            return outcome
        if call.kind == "call_tool":
            self.tool_calls.append(call.payload)
            return self._run_tool(call.payload)
        assert call.kind == "sleep"
        self.sleeps.append(call.payload["ms"])
        return {"ok": True}

    def _run_tool(self, payload: Json) -> Json:
        name = payload["name"]
        if name not in self.tools:
            return {
                **failure("unknown_tool"),
                "outcome": "failed",
                "content": f"there is no tool {name}",
                "truncated": False,
            }
        return self.tools[name](payload["arguments"])
