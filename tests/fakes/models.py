"""A scripted model transport: each exchange plays the next plan; nothing leaves the process."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from actors.ports import Exchange, ModelCall, StreamBatch

CANCELLED = {"code": "cancelled", "message": "the exchange was cut"}


def sse(*data: Any) -> bytes:
    """Return server-sent events with these payloads."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in data)


@dataclass
class Plan:
    """How one exchange goes.

    `batches` of a stream, each waiting for `gate` if there is one; `fault`: the error of the last read; `failure`: no
    answer at all; `body`: a whole answer.
    """

    batches: Sequence[bytes] = ()
    fault: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    status: int = 200
    body: str = ""
    gate: threading.Semaphore | None = None
    stuck: bool = False


def stream(*texts: str, **more: Any) -> Plan:
    """Return a plan of a stream with one event a batch."""
    return Plan(batches=[f"data: {text}\n\n".encode() for text in texts], **more)


@dataclass
class ScriptedModels:
    """Plays plans in order; the last one again and again when they are used up."""

    plans: Sequence[Plan]
    calls: list[ModelCall] = field(default_factory=list)
    exchanges: list["ScriptedExchange"] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def exchange(self, call: ModelCall, on_first_byte: Callable[[], None] | None = None) -> Exchange:
        with self._lock:
            plan = self.plans[min(len(self.calls), len(self.plans) - 1)]
            exchange = ScriptedExchange(plan, call)
            self.calls.append(call)
            self.exchanges.append(exchange)
        return exchange


class ScriptedExchange:
    def __init__(self, plan: Plan, call: ModelCall) -> None:
        self._plan, self._call = plan, call
        self._left = list(plan.batches)
        self._cut = threading.Event()
        self.opened = False

    @property
    def cut(self) -> bool:
        return self._cut.is_set()

    def open(self) -> dict[str, Any]:
        self.opened = True
        if self._plan.stuck:
            self._cut.wait(10)
        if self.cut:
            return {"ok": False, "error": CANCELLED}
        if self._plan.failure is not None:
            return {"ok": False, "error": self._plan.failure}
        head = {"ok": True, "status": self._plan.status, "headers": {}}
        return {**head, "stream": True} if self._call.stream and self._plan.batches else {**head, "body": self._plan.body}

    def read(self) -> StreamBatch:
        gate = self._plan.gate
        while gate is not None and not gate.acquire(timeout=0.005) and not self.cut:
            pass
        if self.cut:
            return StreamBatch(b"", done=True, error=CANCELLED)
        raw = self._left.pop(0) if self._left else b""
        last = not self._left
        return StreamBatch(raw, done=last and self._plan.fault is None, error=self._plan.fault if last else None)

    def cancel(self) -> None:
        self._cut.set()
