"""Performs what scripts ask for, each kind in its way: models, tools, time."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from actors.delivery import Deliver, plain
from actors.drives import Back
from actors.model_performer import STOPPED, ModelPerformer, stopped_read
from actors.ports import Profiles, Toolbox, ToolCall
from actors.run_commands import StopCall
from actors.script_steps import Doing
from actors.steps import failure
from actors.tool_performer import ToolPerformer
from eventstore.catalogue import RunAdmitted

LONGEST_SLEEP_MS = 86_400_000


class Clocks(Protocol):
    """Calls back later; `Timer` with the clock's zero taken care of."""

    def later(self, key: Hashable, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds."""

    def now(self) -> int:
        """Return UTC in microseconds."""

    def cancel(self, key: Hashable) -> None:
        """Forget a callback."""


class CallPerformer:
    """Implements `script_steps.Calls`."""

    def __init__(self, models: ModelPerformer, tools: ToolPerformer, clocks: Clocks, profiles: Profiles) -> None:
        self._models, self._tools, self._clocks, self._profiles = models, tools, clocks, profiles
        self._lock = threading.Lock()
        self._sleeps: dict[str, set[int]] = {}

    def perform(self, doing: Doing, deliver: Deliver, back: Back) -> None:
        """Begin a call; from any thread, without waiting.

        Raises:
            Refused: there is no room for it now.
        """
        call, run_id = doing.call, doing.admitted.run_id
        match call.kind:
            case "request":
                self._models.request(run_id, call.number, doing.admitted.provider, call.payload, deliver)
            case "read":
                self._models.read(run_id, call.number, call.payload, deliver)
            case "call_tool":
                self._run_tool(doing, back)
            case "sleep":
                self._sleep(doing, deliver)
            case kind:
                deliver(plain(call.number, failure("unsupported_call", f"this server does not perform {kind} yet")))

    def stop_tool(self, run_id: str, number: int) -> None:
        """Tell a tool call that it is not wanted."""
        self._tools.stop(run_id, number)

    def cut(self, run_id: str, request: int) -> None:
        """Cut the stream of a request; a read that waits for it returns."""
        self._models.stop(run_id, request)

    def stop_all(self, run_id: str) -> None:
        """End every call of a run."""
        self._models.stop_all(run_id)
        self._tools.stop_all(run_id)
        with self._lock:
            sleeps = self._sleeps.pop(run_id, ())
        for number in sleeps:
            self._clocks.cancel(("sleep", run_id, number))

    def stop(self, effect: StopCall, payload: dict[str, Any], deliver: Deliver) -> None:
        """End a call that the script stopped; a tool reports its own end."""
        match effect.kind:
            case "call_tool":
                self._tools.stop(effect.run_id, effect.number)
            case "read" if isinstance(of := payload.get("of"), int):
                self._models.stop(effect.run_id, of)
                deliver(stopped_read(effect.number, of))
            case "request":
                self._models.stop(effect.run_id, effect.number)
                deliver(plain(effect.number, failure(*STOPPED)))
            case _:
                self._woken(effect.run_id, effect.number)
                self._clocks.cancel(("sleep", effect.run_id, effect.number))
                deliver(plain(effect.number, failure(*STOPPED)))

    def toolbox(self, admitted: RunAdmitted) -> Toolbox | None:
        """Return the tools of a run's profile, if that is still configured."""
        profile = self._profiles.find(admitted.profile)
        return profile.toolbox if profile is not None else None

    def _run_tool(self, doing: Doing, back: Back) -> None:
        payload, number = doing.call.payload, doing.call.number
        name = str(payload.get("name"))
        toolbox = self.toolbox(doing.admitted)
        key = f"{doing.admitted.run_id}/{number}"
        call = ToolCall(key, doing.admitted.run_id, number, name, payload.get("arguments"))
        self._tools.run(toolbox.find(name) if toolbox is not None else None, call, doing.effect.attempt, back)

    def _sleep(self, doing: Doing, deliver: Deliver) -> None:
        """Wait for what is left since the call was recorded: a restart makes no sleep longer."""
        ms, number = doing.call.payload.get("ms"), doing.call.number
        if not isinstance(ms, int) or not 0 <= ms <= LONGEST_SLEEP_MS:
            deliver(plain(number, failure("invalid_call", f"ms must be a whole number from 0 to {LONGEST_SLEEP_MS}")))
            return
        left = max(0.0, ms / 1_000 - max(0, self._clocks.now() - doing.issued) / 1_000_000)
        run_id = doing.admitted.run_id

        def wake() -> None:
            self._woken(run_id, number)
            deliver(plain(number, {"ok": True}))

        with self._lock:
            self._sleeps.setdefault(run_id, set()).add(number)
        self._clocks.later(("sleep", run_id, number), left, wake)

    def _woken(self, run_id: str, number: int) -> None:
        with self._lock:
            sleeps = self._sleeps.get(run_id, set())
            sleeps.discard(number)
            if not sleeps:
                self._sleeps.pop(run_id, None)
