"""How much at a time: token buckets for requests, and counted slots for streams and for waiting workers."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from gateways.http.errors import ApiError

MAX_BUCKETS = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """Token buckets by name, at most `MAX_BUCKETS` of them: the one that was used longest ago goes first.

    `per_minute` 0 lets everything pass.  A minute's worth may come at once.  Any thread.
    """

    def __init__(self, per_minute: int, monotonic: Callable[[], float]) -> None:
        """Take the rate and a clock in seconds that never goes back."""
        self._per_minute, self._monotonic = per_minute, monotonic
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> None:
        """Take one token from the bucket.

        Raises:
            ApiError: `rate_limited`, with the seconds until the next token.
        """
        if self._per_minute <= 0:
            return
        with self._lock:
            bucket = self._filled(name)
            if bucket.tokens < 1:
                pause = max(1, ceil((1 - bucket.tokens) * 60 / self._per_minute))
                detail = f"More than {self._per_minute} requests came in a minute; wait {pause} seconds."
                raise ApiError("rate_limited", detail, retry_after=pause, final=False)
            bucket.tokens -= 1

    def _filled(self, name: str) -> _Bucket:
        now, full = self._monotonic(), float(self._per_minute)
        bucket = self._buckets.pop(name, None) or _Bucket(full, now)
        bucket.tokens = min(full, bucket.tokens + (now - bucket.at) * full / 60)
        bucket.at = now
        self._buckets[name] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)


class Slots:
    """Counted places, in total and for each name; a place that was taken must be given back once.  Any thread."""

    def __init__(self, total: int, each: int, *, full: str, many: str) -> None:
        """Take both bounds and the error codes for "none left at all" and "this name has enough"."""
        self._total, self._each, self._full, self._many = total, each, full, many
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> Callable[[], None]:
        """Take a place and return the way to give it back, which may be called more than once.

        Raises:
            ApiError: no place is left.
        """
        with self._lock:
            if self._taken.total() >= self._total:
                raise ApiError(self._full, f"All {self._total} places are taken; try again in a few seconds.", final=False)
            if self._taken[name] >= self._each:
                detail = f"You have {self._each} open already, which is the limit; close one first."
                raise ApiError(self._many, detail, retry_after=5, final=False)
            self._taken[name] += 1
        return _Once(lambda: self._give(name))

    def _give(self, name: str) -> None:
        with self._lock:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]

    @property
    def taken(self) -> int:
        """How many places are taken now."""
        with self._lock:
            return self._taken.total()


class _Once:
    """Calls a function at the first call only."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            action, self._action = self._action, None
        if action is not None:
            action()
