"""One worker process in the hands of one run: taken, fed, killed, given back."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from pydantic_monty import ExternalModule, Monty, MontySession

from rss_policy.manifest import Limits

RAW_STUBS = """
def start(call: str, at: str) -> int: ...
async def join(number: int, at: str) -> str: ...
async def any_of(numbers: str, at: str) -> int: ...
def note(event: str, at: str) -> None: ...
def stop(number: int, at: str) -> None: ...
def answer(kind: str, at: str) -> str: ...
def context() -> str: ...
"""
RAW_NAMES = ("start", "join", "any_of", "note", "stop", "answer", "context")
CLOCKLESS: Any = {"datetime": "call_host", "sleep": "call_host", "process_time": "zero", "random_start": {"seed": 0}}
"""No clock and no sleep of its own; the one random source that is left is seeded, so that even it repeats."""

_SUSPENSIONS_PER_CALL = 4


def _never(*_: object) -> None:
    """Stand for a raw host call; the engine answers them itself, so that this runs only while a bundle is loaded."""
    raise RuntimeError("a host function can only be called while run(context) runs, not while a module loads")


RAW = {"raw": ExternalModule(dict.fromkeys(RAW_NAMES, _never), stubs=RAW_STUBS)}


def discard_output(_stream: str, _text: str) -> None:
    """Drop what a script prints: it would bypass the record, and redaction."""


class Lease:
    """A worker that one run holds; `kill` from any thread, all else from one at a time."""

    def __init__(self, pool: Monty, limits: Limits, on_return: Callable[[], None], *, typed: bool = False) -> None:
        """Take a worker of the pool; `on_return` is called once, when it was given back.

        Raises:
            TimeoutError: no worker came free in the pool's time.
        """
        self._lock = threading.Lock()
        self._on_return = on_return
        self._session = _checkout(pool, limits, typed=typed)
        self.session = self._session.__enter__()
        self._pid = self.session.worker_pid

    @property
    def pid(self) -> int | None:
        """Process id of the worker while this run holds it."""
        return self._pid

    def kill(self) -> None:
        """End the worker at once, if this run still holds it; who waits for it wakes with a crash."""
        with self._lock:
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def give_back(self) -> None:
        """Return the worker to the pool; a second call does nothing."""
        with self._lock:
            if self._pid is None:
                return
            self._pid = None
        try:
            self._session.__exit__(None, None, None)
        finally:
            self._on_return()


def _checkout(pool: Monty, limits: Limits, *, typed: bool) -> MontySession:
    return pool.checkout(
        script_name="policy",
        limits={
            "max_suspensions": limits.host_calls * _SUSPENSIONS_PER_CALL,
            "max_turn_duration_secs": limits.step_seconds,
            "max_memory": limits.memory_mb * 1_000_000,
            "max_recursion_depth": limits.recursion,
        },
        type_check=typed,
        type_check_format="concise" if typed else None,
        os_policy=CLOCKLESS,
        external_modules=RAW,
    )
