"""Answers a script's suspensions until it waits or ends, and keeps what it did meanwhile.

The only code that knows the interpreter's snapshots.  It decides nothing by time or chance but the step limit, and never
looks at the interpreter's list of pending calls, whose order is random.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from pydantic_monty import (
    ExternalResult,
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    NameLookupSnapshot,
    SyncSnapshot,
)

from rss_policy.calls import Calls, Misused
from rss_policy.errors import LimitReached, ScriptRaised, WorkerLost
from rss_policy.manifest import Limits
from rss_policy.script import Act, AnswerAtOnce, Answered, Call, Emit, Ended, Halt, Raised, Stop, Waiting
from rss_policy.wire import Unfit, from_script, to_script

CALL_KINDS = frozenset({"request", "read", "call_tool", "ask_approval", "spawn", "commit_compaction", "sleep"})
ANSWER_KINDS = frozenset({"now", "random_id", "new_messages"})
EVENT_TYPES = ("model.", "note.", "tool.requested", "compact.started")
ENTRY_FEED = "import json\njson.dumps(await run(json.loads(raw.context())))"

MAX_MESSAGE = 4_000
LIMIT_ERRORS: tuple[tuple[str, type[Exception], str], ...] = (
    ("step_seconds", TimeoutError, "turn time limit exceeded"),
    ("memory_mb", MemoryError, "memory limit exceeded"),
    ("memory_mb", MemoryError, "the worker exceeded its memory limit"),
    ("recursion", RecursionError, "maximum recursion depth exceeded"),
    ("host_calls", RuntimeError, "suspension limit"),
)
"""How the interpreter words its own limits (pinned by a contract test): it has no other mark than type and text."""

PlaceOf = Callable[[MontyError], str | None]
Observe = Callable[[Act], None]


class OverLimit(Exception):
    """A limit that deedbox itself counts was met; carries its name and a sentence."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step needs of its caller: answers, and a look at each act as it happens."""

    answer: AnswerAtOnce
    observe: Observe


class Drive:
    """Drives one script, on one thread at a time."""

    def __init__(
        self,
        context: str,
        limits: Limits,
        place_of: PlaceOf,
        monotonic: Callable[[], float],
        tools: tuple[str, ...] | None = None,
    ) -> None:
        self.calls = Calls()
        self.limits = limits
        self._tools = tools
        self._context, self._place_of, self._monotonic = context, place_of, monotonic
        self._acts: list[Act] = []
        self._started: dict[int, Call] = {}
        self._sizes: dict[int, int] = {}
        self._emitted = self._open = 0
        self._total = 0
        self._since = 0.0

    @property
    def outstanding(self) -> dict[int, Call]:
        """Calls without an outcome, by number."""
        return dict(self._started)

    def settle(self, number: int, outcome: str) -> None:
        """Keep the outcome of a call, as JSON text, and forget its payload.

        Raises:
            ValueError: no such call is outstanding.
        """
        self.calls.settle(number, outcome)
        del self._started[number]
        self._open -= self._sizes.pop(number)

    def run(self, resume: Callable[[], SyncSnapshot], turn: Turn) -> tuple[Halt, FutureSnapshot | None]:
        """Resume the script and answer it until it waits or ends; the snapshot comes with Waiting only.

        Raises:
            WorkerLost: the worker process died.
        """
        self._acts, self._emitted, self._since = [], 0, self._monotonic()
        try:
            halted = resume()
            while (following := self._next(halted, turn)) is not None:
                halted = following
            if isinstance(halted, MontyComplete):
                return self._ended(halted), None
        except OverLimit as over:
            return self._limit(over.limit, str(over)), None
        except MontyCrashedError as fault:
            return self._crashed(fault), None
        except MontyRuntimeError as fault:
            return self._failed(fault), None
        return self._waiting(halted)

    def wait_on(self) -> Halt:
        """Return where a script is that an outcome did not wake: it waits on, unless too much is kept for it."""
        self._acts, self._emitted = [], 0
        try:
            self._refuse_too_much()
        except OverLimit as over:
            return self._limit(over.limit, str(over))
        return Waiting((), self.calls.awaited)

    def _next(self, snapshot: SyncSnapshot, turn: Turn) -> SyncSnapshot | None:
        if self._monotonic() - self._since > self.limits.step_seconds:
            raise OverLimit("step_seconds", f"computed longer than {self.limits.step_seconds} s without waiting")
        match snapshot:
            case MontyComplete():
                return None
            case FutureSnapshot():
                due = self.calls.due()
                return snapshot.resume({key: {"return_value": value} for key, value in due.items()}) if due else None
            case NameLookupSnapshot():
                return snapshot.resume()
            case FunctionSnapshot() if snapshot.is_os_function:
                return snapshot.resume_not_handled()
            case FunctionSnapshot():
                return snapshot.resume(self._answer(snapshot, turn))
            case _:
                assert_never(snapshot)

    def _answer(self, snapshot: FunctionSnapshot, turn: Turn) -> ExternalResult:
        try:
            return self._asked(snapshot.function_name, snapshot.args, snapshot.call_id, turn)
        except (Misused, Unfit) as fault:
            return {"exc_type": "ValueError", "message": str(fault)}

    def _asked(self, name: str, args: tuple[Any, ...], key: int, turn: Turn) -> ExternalResult:
        match name, args:
            case "raw.join", (number, _):
                self.calls.join(key, number)
                return {"future": ...}
            case "raw.any_of", (text, _):
                self.calls.any_of(key, from_script(text))
                return {"future": ...}
            case "raw.context", ():
                text, self._context = self._context, ""
                return {"return_value": text}
            case _, (what, str(at)):
                return {"return_value": self._act(name, what, at, turn)}
            case _:
                raise Misused(f"{name} was called with {len(args)} arguments")

    def _act(self, name: str, what: Any, at: str, turn: Turn) -> Any:
        match name:
            case "raw.note":
                event = self._event(what)
                self._emitted += len(what)
                self._refuse_too_much()
                return self._did(Emit(event, at), turn)
            case "raw.start":
                kind, payload = self._call(what)
                streams = kind == "request" and bool(payload.get("stream"))
                call = Call(self.calls.start(streams=streams), kind, payload, at)
                self._started[call.number], self._sizes[call.number] = call, len(what)
                self._open += len(what)
                self._refuse_too_much()
                self._did(call, turn)
                return call.number
            case "raw.stop":
                number = self.calls.known(what)
                return self._did(Stop(number, at), turn) if self.calls.stop(number) else None
            case "raw.answer" if what in ANSWER_KINDS:
                value = turn.answer(what)
                self._did(Answered(what, value, at), turn)
                return to_script(value)
            case _:
                raise Misused(f"there is no host call {name}({what!r})")

    def _refuse_too_much(self) -> None:
        if self._emitted + self._open + self.calls.kept > self.limits.held_bytes:
            raise OverLimit("held_bytes", f"made the host keep more than {self.limits.held_bytes} characters at once")

    def _did(self, act: Act, turn: Turn) -> None:
        self._total += 1
        if self._total > self.limits.host_calls:
            raise OverLimit("host_calls", f"made more than {self.limits.host_calls} host calls")
        if len(self._acts) >= self.limits.step_acts:
            raise OverLimit("step_acts", f"made more than {self.limits.step_acts} host calls without waiting")
        self._acts.append(act)
        turn.observe(act)

    def _event(self, text: Any) -> dict[str, Any]:
        event = self._object(text, "event_bytes", self.limits.event_bytes)
        kind = event.get("type")
        if not isinstance(kind, str) or not kind.startswith(EVENT_TYPES):
            raise Misused(f"a script may not emit {kind!r}; it may emit model.*, tool.requested, compact.started, note.*")
        return event

    def _call(self, text: Any) -> tuple[str, dict[str, Any]]:
        payload = self._object(text, "call_bytes", self.limits.call_bytes)
        kind = payload.pop("kind", None)
        if kind not in CALL_KINDS:
            raise Misused(f"{kind!r} is no kind of host call; there are {', '.join(sorted(CALL_KINDS))}")
        if kind == "call_tool" and self._tools is not None and payload.get("name") not in self._tools:
            raise Misused(f"the manifest does not allow the tool {payload.get('name')!r}")
        if kind == "read":
            self.calls.known(payload.get("of"))
        return kind, payload

    def _object(self, text: Any, limit: str, most: int) -> dict[str, Any]:
        if isinstance(text, str) and len(text) > most:
            raise OverLimit(limit, f"made a value of {len(text)} characters where {most} are allowed")
        value = from_script(text)
        if not isinstance(value, dict):
            raise Misused(f"a mapping is needed, this is a {type(value).__name__}")
        return value

    def _ended(self, complete: MontyComplete) -> Halt:
        text = complete.output
        if isinstance(text, str) and len(text) > self.limits.result_bytes:
            raise OverLimit("result_bytes", f"returned {len(text)} characters where {self.limits.result_bytes} are allowed")
        try:
            return Ended(tuple(self._acts), from_script(text), self.calls.outstanding)
        except Unfit as fault:
            return self._raised(ScriptRaised.code, f"what the script returned is {fault}", None)

    def _crashed(self, fault: MontyCrashedError) -> Halt:
        if not fault.timed_out:
            raise WorkerLost(str(fault)) from fault
        return self._limit("step_seconds", str(fault))

    def _failed(self, fault: MontyRuntimeError) -> Halt:
        kind, message = type(fault.exception()), str(fault.exception())
        for limit, raised, opening in LIMIT_ERRORS:
            if kind is raised and message.startswith(opening):
                return self._limit(limit, message, self._place_of(fault))
        return self._raised(ScriptRaised.code, fault.display("type-msg"), self._place_of(fault))

    def _limit(self, limit: str, message: str, at: str | None = None) -> Halt:
        return self._raised(LimitReached.code, f"{message} (setting limits.{limit})", at)

    def _raised(self, code: str, message: str, at: str | None) -> Halt:
        return Raised(tuple(self._acts), code, message[:MAX_MESSAGE], at, self.calls.outstanding)

    def _waiting(self, snapshot: SyncSnapshot) -> tuple[Halt, FutureSnapshot | None]:
        if not isinstance(snapshot, FutureSnapshot) or not self.calls.awaited:
            return self._raised(ScriptRaised.code, "the script waits for something that is no host call", None), None
        return Waiting(tuple(self._acts), self.calls.awaited), snapshot
