"""Pooled actors: many pykka actors with bounded mailboxes on a few threads.

An actor is on the run queue only while it has mail, and there only once, so the run queue is as long as there are actors.
Built on pykka's own hooks (`_create_actor_inbox`, `_create_future`, `_start_actor_loop`): references, futures and stop
messages stay pykka's.  Unlike pykka: whatever a handler raises, in `tell` or `ask`, SystemExit too, ends that actor alone;
a put after the end raises ActorDeadError instead of being lost; pooled actors are not in pykka's registry, whose
`unregister` searches a list (with 4,000 actors, to start and end one takes 28 to 110 µs instead of 14 to 33).
"""

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import pykka
from pykka import messages
from pykka._envelope import Envelope

logger = logging.getLogger(__name__)

THROUGHPUT = 16
"""Messages that an actor handles before it lets others on."""

MAILBOX = 1_000
"""Messages that wait in front of an actor, those it has set aside included."""


class MailboxFull(Exception):
    """Too much waits in front of the actor; nothing was put."""


class Urgent:
    """Base of messages that a full mailbox takes: answers to what the actor itself asked for, so bounded by that."""

    __slots__ = ()


class PoolInbox:
    """A bounded mailbox that puts its actor on the run queue, and can be closed so that no message is lost."""

    __slots__ = ("_actor", "_closed", "_letters", "_lock", "_scheduled", "held", "limit")

    def __init__(self, limit: int = MAILBOX) -> None:
        self.limit = limit
        self.held = 0  # what the actor took out and set aside; it counts as waiting
        self._letters: deque[Envelope[Any]] = deque()
        self._lock = threading.Lock()
        self._actor: PooledActor | None = None
        self._scheduled = False
        self._closed = False

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message and schedule the actor; from any thread, without waiting.

        Raises:
            ActorDeadError: the mailbox is closed; nothing was put.
            MailboxFull: too much waits.
        """
        with self._lock:
            if self._closed:
                raise pykka.ActorDeadError("stopped")
            if len(self._letters) + self.held >= self.limit and not _passes(envelope.message):
                raise MailboxFull
            self._letters.append(envelope)
            actor = None if self._scheduled else self._actor
            self._scheduled = self._scheduled or actor is not None
        if actor is not None:
            actor.pool.submit(actor)

    def get(self) -> Envelope[Any]:
        """Take the oldest message; pykka's teardown calls it."""
        return self._letters.popleft()

    def empty(self) -> bool:
        """Return whether nothing waits."""
        return not self._letters

    def attach(self, actor: "PooledActor") -> None:
        """Let the mailbox schedule `actor`, and schedule it for its start."""
        with self._lock:
            self._actor, self._scheduled = actor, True
        actor.pool.submit(actor)

    def take(self) -> Envelope[Any] | None:
        """Return the oldest message, or leave the run queue and return None; on the actor's pool thread only."""
        with self._lock:
            if self._letters:
                return self._letters.popleft()
            self._scheduled = False
            return None

    def close(self) -> list[Envelope[Any]]:
        """Close for good and return what was never handled."""
        with self._lock:
            self._closed = True
            left = list(self._letters)
            self._letters.clear()
            return left

    def close_if(self, agrees: Callable[[], bool]) -> bool:
        """Close if nothing waits, no thread runs the actor, and `agrees()`; return whether it is closed now.

        No thread runs the actor while `agrees` looks at it, so it may read the actor's fields from any thread.
        """
        with self._lock:
            if not self._closed and not self._scheduled and not self._letters and agrees():
                self._closed = True
            return self._closed


def _passes(message: object) -> bool:
    return isinstance(message, Urgent | messages._ActorStop)  # noqa: SLF001 - pykka's stop message has no public name


class Pool:
    """A fixed number of named threads that run actors which have mail."""

    def __init__(self, threads: int, name: str = "actors") -> None:
        self._ready: queue.SimpleQueue[PooledActor | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, actor: "PooledActor") -> None:
        """Put an actor on the run queue; the mailbox sees to it that it is there once."""
        self._ready.put(actor)

    def stop(self, timeout: float) -> bool:
        """End the threads after what they run now; return whether all ended within `timeout` seconds."""
        for _ in self._threads:
            self._ready.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (actor := self._ready.get()) is not None:
            actor.run_batch()


class PooledActor(pykka.Actor):
    """An actor without a thread of its own; handlers must not block.  Set `self.pool` before the start."""

    pool: Pool
    actor_inbox: PoolInbox
    throughput = THROUGHPUT
    _begun = False
    _failed = False

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> pykka.ActorRef[Self]:
        """Start an actor as pykka does, without a place in its registry."""
        actor = cls(*args, **kwargs)
        actor.begin()
        return actor.actor_ref

    def begin(self) -> None:
        """Start this actor, for who made it and keeps it; `start` makes and starts."""
        self._start_actor_loop()

    @staticmethod
    def _create_actor_inbox() -> PoolInbox:
        return PoolInbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.attach(self)

    def run_batch(self) -> None:
        """Handle some messages, then let others on; called by the pool, never by two threads at once."""
        if not self._begun:
            self._begun = True
            self._guarded(self.on_start)
        for _ in range(self.throughput):
            if self.actor_stopped.is_set():
                break
            envelope = self.actor_inbox.take()
            if envelope is None:
                return
            self._handle(envelope)
        if self.actor_stopped.is_set():
            self._bury()
        else:
            self.pool.submit(self)

    def _handle(self, envelope: Envelope[Any]) -> None:
        answer = self._guarded(lambda: self._handle_receive(envelope.message), envelope.reply_to)
        if envelope.reply_to is not None and not self._failed:
            envelope.reply_to.set(answer)

    def _guarded(self, step: Callable[[], Any], reply_to: pykka.Future[Any] | None = None) -> Any:
        """Run a step of the actor; what it raises goes to who asked, and ends the actor."""
        try:
            return step()
        except BaseException:  # noqa: BLE001 - SystemExit too: it must end this actor, not the thread that others need
            self._failed = True
            self._handle_failure(*sys.exc_info())
            if reply_to is not None:
                reply_to.set_exception()
            self._mourn()

    def _mourn(self) -> None:
        try:
            self.on_failure(*sys.exc_info())
        except BaseException:
            # The actor has ended already; its last words must not take the thread along.
            logger.exception("on_failure of %s failed", self)

    def _bury(self) -> None:
        """Close the mailbox; who still waits for an answer hears that the actor is dead."""
        left = self.actor_inbox.close()
        for envelope in left:
            if envelope.reply_to is None:
                continue
            if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001 - as in pykka's own teardown
                envelope.reply_to.set(None)
            else:
                dead = pykka.ActorDeadError(f"{self} stopped before handling the message")
                envelope.reply_to.set_exception((pykka.ActorDeadError, dead, None))
        try:
            self.on_end([envelope.message for envelope in left])
        except BaseException:
            # As in `_mourn`: the thread is for others, too.
            logger.exception("on_end of %s failed", self)

    def on_end(self, unhandled: list[Any]) -> None:
        """Run once when the actor has ended and its mailbox is closed, with what was never handled; on a pool thread."""
