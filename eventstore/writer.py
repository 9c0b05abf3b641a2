"""The one thread that writes: takes what waits, has it recorded together, then answers and publishes.

Both logs use it, so that tests with the memory log see the same order of calls on the same kind of thread.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from eventstore.errors import StoreBusy, StoreError, Unwritten
from eventstore.intake import Prepared
from eventstore.log import Answer, Committed, Envelope, Failed

MOST = 256
"""Appends that go into one transaction at most."""
CAPACITY = 4096
"""Appends that may wait; one more is refused."""

_log = logging.getLogger(__name__)
T = TypeVar("T")
Listener = Callable[[tuple[Envelope, ...]], None]


@dataclass(frozen=True, slots=True)
class _Wish:
    """An append that waits; `prepared` is an error where it could not be prepared."""

    prepared: Prepared | Unwritten
    answer: Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class _Work:
    """Something else for the writer's thread, between two transactions."""

    do: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _End:
    """Nothing comes after this."""


class Writer:
    """Owns the inbox and the thread.

    `record` writes all requests in one transaction and gives one answer for each; `settle` is called after each
    transaction, when everybody has been answered.  Both run on the writer's thread and do not raise.
    """

    def __init__(
        self,
        record: Callable[[Sequence[Prepared]], Sequence[Answer]],
        settle: Callable[[], None] = lambda: None,
        capacity: int = CAPACITY,
    ) -> None:
        self._record, self._settle = record, settle
        self._capacity = capacity
        self._inbox: SimpleQueue[_Wish | _Work | _End] = SimpleQueue()
        self._listeners: tuple[Listener, ...] = ()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="eventstore-writer", daemon=True)
        self._thread.start()

    def append(self, prepared: Prepared | Unwritten, answer: Callable[[Answer], None]) -> None:
        """Take a request, from any thread.

        Raises:
            StoreBusy: too much is waiting.
            StoreError: the log is closed.
        """
        with self._gate:
            self._refuse_if_closed()
            if self._inbox.qsize() >= self._capacity:
                raise StoreBusy(f"{self._capacity} appends are waiting for the disk")
            self._inbox.put(_Wish(prepared, answer))

    def do(self, work: Callable[[], T]) -> T:
        """Run `work` on the writer's thread, between two transactions, and return what it returns or raise what it raises.

        Raises:
            StoreError: the log is closed.
        """
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as exc:  # noqa: BLE001 - it is raised again, on the thread that asked
                errors.append(exc)
            done.set()

        with self._gate:
            self._refuse_if_closed()
            self._inbox.put(_Work(run))
        done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def publish(self, envelopes: tuple[Envelope, ...]) -> None:
        """Tell the listeners what is durable now; on the writer's thread only."""
        for listener in self._listeners if envelopes else ():
            _call(listener, envelopes)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `EventLog.subscribe`."""
        with self._gate:
            self._listeners = (*self._listeners, listener)

        def leave() -> None:
            with self._gate:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return leave

    def close(self) -> None:
        """Finish what was taken and end the thread; a second call only waits for that."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._inbox.put(_End())
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError("the log is closed")

    def _run(self) -> None:
        while True:
            wishes, then = self._waiting()
            if wishes:
                self._serve(wishes)
            match then:
                case _Work(do):
                    do()
                case _End():
                    return
                case None:
                    pass

    def _waiting(self) -> tuple[list[_Wish], _Work | _End | None]:
        """Wait for something; return the appends that wait, in order, and what was found behind them."""
        wishes: list[_Wish] = []
        item = self._inbox.get()
        while isinstance(item, _Wish):
            wishes.append(item)
            if len(wishes) == MOST:
                return wishes, None
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return wishes, None
        return wishes, item

    def _serve(self, wishes: list[_Wish]) -> None:
        requests = [wish.prepared for wish in wishes if isinstance(wish.prepared, Prepared)]
        answers = iter(self._record(requests) if requests else ())
        envelopes: list[Envelope] = []
        for wish in wishes:
            answer = Failed(wish.prepared) if isinstance(wish.prepared, Unwritten) else next(answers)
            if isinstance(answer, Committed):
                envelopes += answer.envelopes
            _call(wish.answer, answer)
        self.publish(tuple(envelopes))
        self._settle()


def _call(outside: Callable[[T], None], value: T) -> None:
    try:
        outside(value)
    except BaseException:  # noqa: BLE001 - see below
        # A listener that breaks its promise must not take the writer, and with it every other actor, down.
        _log.exception("a callback of the log raised")
