"""A clock that is moved by hand, and ids that count."""

import threading
from collections.abc import Callable


class ManualClock:
    """Stands still until `advance`; whoever waits by it asks to be woken with `on_advance`."""

    def __init__(self, now: int = 1_750_000_000_000_000, monotonic: float = 1_000.0) -> None:
        self._lock = threading.Lock()
        self._now, self._monotonic = now, monotonic
        self._woken: list[Callable[[], None]] = []

    def now(self) -> int:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += round(seconds * 1_000_000)
            self._monotonic += seconds
        for wake in self._woken:
            wake()

    def on_advance(self, wake: Callable[[], None]) -> None:
        self._woken.append(wake)


class SequentialIds:
    """`run_00000000000000000000000001` and so on; one count for all prefixes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str) -> str:
        with self._lock:
            self._last += 1
            return f"{prefix}_{self._last:026}"
