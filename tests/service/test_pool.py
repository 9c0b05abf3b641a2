"""Pooled actors, and each trap of the actor library that they close."""

import threading
from collections.abc import Iterator

import pykka
import pytest

from actors.pool import MailboxFull, Pool, PooledActor, Urgent
from tests.fakes.town import eventually


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(3, "test-pool")
    yield pool
    assert pool.stop(2)


class Pressing(Urgent):
    pass


class Recorder(PooledActor):
    """Keeps what it is sent; `gate` holds it up, an exception is raised, a callable is called."""

    def __init__(self, pool: Pool, *, limit: int = 1_000) -> None:
        super().__init__()
        self.pool = pool
        self.actor_inbox.limit = limit
        self.seen: list[object] = []
        self.inside = 0
        self.overlaps = 0
        self.failures: list[BaseException | None] = []
        self.unhandled: list[object] | None = None

    def on_receive(self, message: object) -> object:
        self.inside += 1
        self.overlaps += self.inside > 1
        try:
            if isinstance(message, threading.Event):
                message.wait(5)
            elif isinstance(message, BaseException):
                raise message
            else:
                self.seen.append(message)
        finally:
            self.inside -= 1
        return message

    def on_failure(self, exception_type: object, exception_value: BaseException | None, traceback: object) -> None:
        self.failures.append(exception_value)

    def on_end(self, unhandled: list[object]) -> None:
        self.unhandled = unhandled


def made(pool: Pool, limit: int = 1_000) -> Recorder:
    actor = Recorder(pool, limit=limit)
    actor.begin()
    return actor


def test_a_thousand_actors_share_three_threads_in_order_and_without_overlap(pool: Pool) -> None:
    actors = [made(pool) for _ in range(1_000)]
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("test-pool")}

    def send(sender: int) -> None:
        for number in range(5):
            for actor in actors:
                actor.actor_ref.tell((sender, number))

    senders = [threading.Thread(target=send, args=(n,)) for n in range(2)]
    for thread in senders:
        thread.start()
    for thread in senders:
        thread.join(10)
    eventually(lambda: all(len(actor.seen) == 10 for actor in actors))
    assert len(threads) == 3
    assert not any(actor.overlaps for actor in actors)
    for actor in actors:
        for sender in range(2):
            assert [m for m in actor.seen if isinstance(m, tuple) and m[0] == sender] == [(sender, n) for n in range(5)]


def test_an_actor_with_much_mail_lets_others_on() -> None:
    pool = Pool(1, "one-thread")
    gate = threading.Event()
    busy, other = made(pool), made(pool)
    busy.actor_ref.tell(gate)
    for number in range(500):
        busy.actor_ref.tell(number)
    seen_before = other.actor_ref.ask("ping", block=False)
    before: list[int] = []
    other.on_receive = lambda _message: before.append(len(busy.seen))  # type: ignore[assignment, method-assign]
    gate.set()
    seen_before.get(timeout=5)
    assert before[0] <= 2 * busy.throughput
    assert pool.stop(2)


def test_a_full_mailbox_refuses_at_once_and_takes_urgent_messages_and_the_stop(pool: Pool) -> None:
    actor, gate = made(pool, limit=3), threading.Event()
    actor.actor_ref.tell(gate)
    eventually(lambda: actor.inside == 1)
    for number in range(3):
        actor.actor_ref.tell(number)
    with pytest.raises(MailboxFull):
        actor.actor_ref.tell(3)
    urgent = Pressing()
    actor.actor_ref.tell(urgent)
    stopped = actor.actor_ref.stop(block=False)
    gate.set()
    assert stopped.get(timeout=5)
    assert actor.seen == [0, 1, 2, urgent]


def test_what_an_actor_has_set_aside_counts_as_waiting(pool: Pool) -> None:
    actor = made(pool, limit=3)
    actor.actor_inbox.held = 3
    with pytest.raises(MailboxFull):
        actor.actor_ref.tell("more")


def test_an_exception_in_tell_ends_that_actor_alone_and_hands_on_what_is_queued_behind(pool: Pool) -> None:
    actor, other, gate = made(pool), made(pool), threading.Event()
    fault = ValueError("a fault")
    for message in (gate, fault, "behind"):
        actor.actor_ref.tell(message)
    waiting = actor.actor_ref.ask("asked behind", block=False)
    gate.set()
    with pytest.raises(pykka.ActorDeadError):
        waiting.get(timeout=5)
    eventually(lambda: actor.unhandled is not None)
    assert actor.unhandled == ["behind", "asked behind"]
    assert actor.failures == [fault]
    assert other.actor_ref.ask("alive", timeout=5) == "alive"


def test_an_exception_in_ask_reaches_the_asker_and_ends_the_actor(pool: Pool) -> None:
    actor = made(pool)
    with pytest.raises(ValueError, match="a fault"):
        actor.actor_ref.ask(ValueError("a fault"), timeout=5)
    eventually(lambda: actor.unhandled is not None)
    assert not actor.actor_ref.is_alive()


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit()])
def test_system_exit_ends_one_actor_and_neither_its_thread_nor_others(pool: Pool, error: BaseException) -> None:
    class Singleton(pykka.ThreadingActor):
        def on_receive(self, message: object) -> object:
            return message

    singleton, other = Singleton.start(), made(pool)
    for _ in range(4):
        made(pool).actor_ref.tell(error)
    assert [other.actor_ref.ask(n, timeout=5) for n in range(9)] == list(range(9))
    assert singleton.ask("alive", timeout=5) == "alive"
    assert singleton.stop(timeout=5)


def test_the_library_s_own_stop_all_leaves_pooled_actors_to_their_keeper(pool: Pool) -> None:
    actor = made(pool)
    pykka.ActorRegistry.stop_all(timeout=5)
    assert actor.actor_ref.ask("alive", timeout=5) == "alive"


def test_a_put_after_the_end_is_refused_and_never_lost(pool: Pool) -> None:
    lost = 0
    for _ in range(50):
        actor = made(pool, limit=100_000)
        answers: list[pykka.Future[object]] = []
        stopper = threading.Thread(target=actor.actor_ref.stop, kwargs={"timeout": 5})
        stopper.start()
        try:
            for number in range(1_000):
                answers.append(actor.actor_ref.ask(number, block=False))  # noqa: PERF401 - the raise ends it
        except pykka.ActorDeadError:
            pass
        stopper.join(5)
        for answer in answers:
            try:
                answer.get(timeout=2)
            except pykka.ActorDeadError:
                continue
            except pykka.Timeout:
                lost += 1
    assert lost == 0


def test_a_failing_on_start_ends_the_actor_and_not_its_thread(pool: Pool) -> None:
    class Broken(Recorder):
        def on_start(self) -> None:
            raise SystemExit

    actor = Broken(pool)
    actor.begin()
    eventually(lambda: actor.unhandled is not None)
    assert made(pool).actor_ref.ask("alive", timeout=5) == "alive"


def test_an_actor_that_stops_itself_in_on_start_does_not_deadlock(pool: Pool) -> None:
    class Shy(Recorder):
        def on_start(self) -> None:
            self.stop()

    actor = Shy(pool)
    actor.begin()
    eventually(lambda: actor.unhandled is not None)


def test_a_fault_in_the_last_words_does_not_take_the_thread_along(pool: Pool) -> None:
    class Doomed(Recorder):
        def on_failure(self, *_arguments: object) -> None:
            raise SystemExit

        def on_end(self, unhandled: list[object]) -> None:
            raise SystemExit

    for _ in range(5):
        actor = Doomed(pool)
        actor.begin()
        actor.actor_ref.tell(ValueError())
    assert made(pool).actor_ref.ask("alive", timeout=5) == "alive"


def test_a_mailbox_closes_only_while_nobody_waits_and_nobody_runs(pool: Pool) -> None:
    actor, gate = made(pool), threading.Event()
    actor.actor_ref.ask("begun", timeout=5)
    actor.actor_ref.tell(gate)
    eventually(lambda: actor.inside == 1)
    assert not actor.actor_inbox.close_if(lambda: True)
    gate.set()
    actor.actor_ref.ask("done", timeout=5)
    assert not actor.actor_inbox.close_if(lambda: False)
    eventually(lambda: actor.actor_inbox.close_if(lambda: True))
    with pytest.raises(pykka.ActorDeadError):
        actor.actor_ref.tell("late")


def test_pooled_actors_are_not_in_the_registry(pool: Pool) -> None:
    ref = Recorder.start(pool)
    assert ref not in pykka.ActorRegistry.get_all()
    assert ref.stop(timeout=5)
