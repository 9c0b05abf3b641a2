"""Real time and real randomness: the one place of the product that reads the clock and draws lots."""

import secrets
import threading
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32, which keeps the order of numbers when texts are sorted."""

RANDOM_BITS = 80


class SystemClock:
    """The machine's clock; safe from any thread."""

    def now(self) -> int:
        """Return UTC in microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return time.monotonic()


class UlidIds:
    """Ids of 48 bits of milliseconds and 80 random bits, as the ULID specification lays them out.

    Ids of one process rise strictly, also within one millisecond: the random part then counts on.  Safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str) -> str:
        """Return an id such as `run_01J…`: prefix, underscore, 26 characters that sort by time."""
        with self._lock:
            # Half of the random range stays free above the first draw, so counting on cannot spill into the time.
            fresh = (time.time_ns() // 1_000_000 << RANDOM_BITS) | secrets.randbits(RANDOM_BITS - 1)
            self._last = max(fresh, self._last + 1)
            return f"{prefix}_{_base32(self._last)}"


def _base32(number: int) -> str:
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
