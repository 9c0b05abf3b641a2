"""The timer: what is set comes, once, in time, and in order."""

import threading
import time
from collections.abc import Iterator

import pytest

from actors.errors import Refused
from actors.timer import Timer
from tests.fakes.clock import ManualClock
from tests.fakes.town import eventually


class RealClock:
    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic=0.0)


@pytest.fixture
def timer(clock: ManualClock) -> Iterator[Timer]:
    timer = Timer(clock, limit=100)
    clock.on_advance(timer.wake)
    yield timer
    assert timer.stop(2)


def test_callbacks_come_in_the_order_of_their_times(timer: Timer, clock: ManualClock) -> None:
    seen: list[int] = []
    for number in (3, 1, 2):
        timer.at(number, number, lambda number=number: seen.append(number))  # type: ignore[misc]
    clock.advance(2)
    eventually(lambda: seen == [1, 2])
    clock.advance(1)
    eventually(lambda: seen == [1, 2, 3])
    assert len(timer) == 0


def test_nothing_comes_before_its_time(timer: Timer, clock: ManualClock) -> None:
    came = threading.Event()
    timer.at("a", 10, came.set)
    clock.advance(9.9)
    assert not came.wait(0.05)
    clock.advance(0.1)
    assert came.wait(5)


def test_a_cancelled_callback_does_not_come(timer: Timer, clock: ManualClock) -> None:
    seen: list[str] = []
    timer.at("a", 1, lambda: seen.append("a"))
    timer.at("b", 2, lambda: seen.append("b"))
    timer.cancel("a")
    timer.cancel("unknown")
    clock.advance(5)
    eventually(lambda: seen == ["b"])


def test_a_key_that_is_set_again_comes_once_at_the_new_time(timer: Timer, clock: ManualClock) -> None:
    seen: list[str] = []
    timer.at("a", 1, lambda: seen.append("old"))
    timer.at("a", 3, lambda: seen.append("new"))
    timer.at("b", 2, lambda: seen.append("b"))
    clock.advance(2)
    eventually(lambda: seen == ["b"])
    clock.advance(2)
    eventually(lambda: seen == ["b", "new"])


def test_a_fault_in_one_callback_does_not_silence_the_next(timer: Timer, clock: ManualClock) -> None:
    came = threading.Event()
    timer.at("a", 1, [].pop)
    timer.at("b", 2, came.set)
    clock.advance(5)
    assert came.wait(5)


def test_too_many_timers_are_refused(timer: Timer) -> None:
    for number in range(100):
        timer.at(number, 50, lambda: None)
    with pytest.raises(Refused, match="too many timers"):
        timer.at("more", 50, lambda: None)
    timer.at(5, 60, lambda: None)


def test_setting_and_cancelling_for_ever_needs_no_more_memory(timer: Timer) -> None:
    for _ in range(2_000):
        timer.at("a", 50, lambda: None)
        timer.at("b", 50, lambda: None)
        timer.cancel("b")
    assert len(timer._heap) < 100


def test_a_callback_may_set_the_next(timer: Timer, clock: ManualClock) -> None:
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.monotonic())
        timer.at("again", clock.monotonic() + 1, again)

    timer.at("again", 1, again)
    for _ in range(3):
        count = len(seen)
        clock.advance(1)
        eventually(lambda count=count: len(seen) == count + 1)  # type: ignore[misc]
    assert seen == [1, 2, 3]


def test_after_the_stop_nothing_comes_and_setting_is_harmless(clock: ManualClock) -> None:
    timer = Timer(clock)
    seen: list[str] = []
    timer.at("a", 1, lambda: seen.append("a"))
    assert timer.stop(2)
    timer.at("b", 1, lambda: seen.append("b"))
    clock.advance(5)
    assert (seen, len(timer)) == ([], 0)


def test_on_a_real_clock_a_callback_comes_in_time() -> None:
    timer, came = Timer(RealClock()), threading.Event()
    late: list[float] = []
    when = time.monotonic() + 0.05

    def note() -> None:
        late.append(time.monotonic() - when)
        came.set()

    timer.at("far", when + 60, lambda: None)
    timer.at("near", when, note)
    assert came.wait(5)
    assert 0 <= late[0] < 1
    assert timer.stop(2)
