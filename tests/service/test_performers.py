"""Performers: bounded, named, one per key, and no fault or cancel is lost."""

import threading
from collections.abc import Iterator

import pytest

from actors.errors import Refused
from actors.performers import CancelToken, Performers
from tests.fakes.town import eventually


@pytest.fixture
def performers() -> Iterator[Performers]:
    performers = Performers("test-performer", threads=2, waiting=2)
    yield performers
    assert performers.stop(2)


def nobody(error: BaseException) -> None:
    raise AssertionError(error)


def test_work_runs_on_named_threads(performers: Performers) -> None:
    names: list[str] = []
    done = threading.Event()

    def work(_token: CancelToken) -> None:
        names.append(threading.current_thread().name)
        done.set()

    assert performers.submit("a", work, nobody)
    assert done.wait(5)
    assert names == ["test-performer-0"]


def test_beyond_its_threads_and_its_line_work_is_refused_and_may_come_again(performers: Performers) -> None:
    gate = threading.Event()
    for number in range(4):
        assert performers.submit(number, lambda _token: _wait(gate), nobody)
    with pytest.raises(Refused) as refused:
        performers.submit("more", lambda _token: None, nobody)
    assert (refused.value.code, refused.value.retry_after) == ("overloaded", 1)
    gate.set()
    eventually(lambda: performers.active() == 0)
    assert performers.submit("more", lambda _token: None, nobody)


def test_one_key_works_once_at_a_time(performers: Performers) -> None:
    gate, ran = threading.Event(), []
    assert performers.submit("a", lambda _token: _wait(gate), nobody)
    assert not performers.submit("a", lambda _token: ran.append("twice"), nobody)
    gate.set()
    eventually(lambda: performers.active() == 0)
    assert performers.submit("a", lambda _token: ran.append("after"), nobody)
    eventually(lambda: ran == ["after"])


@pytest.mark.parametrize("error", [ValueError("a fault"), SystemExit(1)])
def test_a_fault_is_reported_and_the_thread_goes_on(performers: Performers, error: BaseException) -> None:
    errors: list[BaseException] = []

    def work(_token: CancelToken) -> None:
        raise error

    for number in range(4):
        performers.submit(number, work, errors.append)
    eventually(lambda: errors == [error] * 4)
    done = threading.Event()
    performers.submit("next", lambda _token: done.set(), nobody)
    assert done.wait(5)


def test_a_report_that_fails_too_does_not_end_the_thread(performers: Performers) -> None:
    for number in range(4):
        performers.submit(number, _pop, nobody)
    eventually(lambda: performers.active() == 0)
    done = threading.Event()
    performers.submit("next", lambda _token: done.set(), nobody)
    assert done.wait(5)


def test_cancel_reaches_running_work_and_work_that_waits(performers: Performers) -> None:
    gate, seen = threading.Event(), []
    started = threading.Barrier(3)

    def work(token: CancelToken) -> None:
        token.on_cancel(gate.set)
        started.wait(5)
        gate.wait(5)
        seen.append(token.cancelled())

    for number in range(2):
        performers.submit(number, work, nobody)
    performers.submit("waits", lambda token: seen.append(token.cancelled()), nobody)
    started.wait(5)
    assert performers.cancel("waits")
    assert performers.cancel(0)
    assert not performers.cancel("unknown")
    eventually(lambda: len(seen) == 3)
    assert sorted(seen) == [False, True, True]


def test_a_callback_on_a_cancelled_token_comes_at_once_and_each_comes_once() -> None:
    token, seen = CancelToken(), []
    token.on_cancel(lambda: seen.append("first"))
    token.cancel()
    token.cancel()
    token.on_cancel(lambda: seen.append("second"))
    assert seen == ["first", "second"]


def test_the_stop_cancels_what_runs_fails_what_waits_and_refuses_what_comes() -> None:
    performers, errors = Performers("stopping", threads=1, waiting=5), list[BaseException]()
    cancelled = threading.Event()

    def work(token: CancelToken) -> None:
        token.on_cancel(cancelled.set)
        cancelled.wait(5)

    performers.submit("runs", work, nobody)
    eventually(lambda: performers.active() == 1 and not performers._queue)
    performers.submit("waits", lambda _token: None, errors.append)
    assert performers.stop(5)
    assert [error.code for error in errors if isinstance(error, Refused)] == ["shutting_down"]
    with pytest.raises(Refused, match="stopped"):
        performers.submit("late", lambda _token: None, nobody)


def test_the_stop_does_not_wait_longer_than_it_may() -> None:
    performers, gate = Performers("stuck", threads=1, waiting=1), threading.Event()
    performers.submit("stuck", lambda _token: _wait(gate), nobody)
    eventually(lambda: not performers._queue)
    assert not performers.stop(0.05)
    gate.set()
    assert performers.stop(5)


def _pop(_token: CancelToken) -> None:
    [].pop()


def _wait(gate: threading.Event) -> None:
    gate.wait(5)
