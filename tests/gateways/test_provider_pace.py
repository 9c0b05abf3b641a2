"""When a batch is due, and when a deadline fires."""

import threading
import time
from collections.abc import Iterator

import pytest

from actors.ports import StreamBatch
from gateways.provider.batching import BOUND, EAGER, ENOUGH, WINDOW, BatchBuffer
from gateways.provider.deadlines import Watchdog
from gateways.provider.errors import Broken
from tests.fakes.clock import ManualClock


def taken(buffer: BatchBuffer, seconds: float = 0.05) -> StreamBatch | None:
    """Take on another thread, and give up (ending the stream) when nothing is due."""
    found: list[StreamBatch] = []
    thread = threading.Thread(target=lambda: found.append(buffer.take()), daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        buffer.end(None)
        thread.join(5)
        return None
    return found[0]


def after_the_eager_ones(buffer: BatchBuffer) -> BatchBuffer:
    for _ in range(EAGER):
        buffer.put(b"0", 1)
        buffer.take()
    return buffer


def test_the_first_two_events_are_due_at_once_for_the_first_may_hold_no_text() -> None:
    buffer = BatchBuffer(ManualClock().monotonic)
    for raw in (b"data: a\n\n", b"data: b\n\n"):
        buffer.put(raw, 1)
        assert taken(buffer) == StreamBatch(raw, False)


def test_the_next_is_due_after_the_window_and_holds_all_that_came() -> None:
    buffer = after_the_eager_ones(BatchBuffer())
    began = time.monotonic()
    buffer.put(b"2", 1)
    buffer.put(b"3", 1)
    assert buffer.take().raw == b"23"
    assert time.monotonic() - began >= WINDOW * 0.9


def test_within_the_window_nothing_is_due() -> None:
    buffer = after_the_eager_ones(BatchBuffer(ManualClock().monotonic))
    buffer.put(b"2", 1)
    assert taken(buffer, 0.02) is None


def test_two_kilobytes_are_due_at_once() -> None:
    buffer = after_the_eager_ones(BatchBuffer(ManualClock().monotonic))
    buffer.put(b"x" * ENOUGH, 1)
    assert taken(buffer) is not None


def test_comments_alone_are_not_due() -> None:
    buffer = BatchBuffer()
    buffer.put(b": keep-alive\n\n", 0)
    assert taken(buffer, 0.06) is None


def test_the_end_is_due_at_once_and_stays_the_end() -> None:
    buffer = BatchBuffer(ManualClock().monotonic)
    buffer.put(b"1", 1)
    buffer.take()
    buffer.put(b"2", 1)
    buffer.end(Broken("network_error", "gone"))
    buffer.end(None)
    error = {"code": "network_error", "message": "gone"}
    assert taken(buffer) == StreamBatch(b"2", True, error)
    assert taken(buffer) == StreamBatch(b"", True, error)


def test_a_megabyte_that_nobody_takes_holds_the_writer_until_it_is_taken() -> None:
    buffer = BatchBuffer()
    buffer.put(b"x" * BOUND, 1)
    assert buffer.is_full
    writer = threading.Thread(target=buffer.put, args=(b"y", 1))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    assert len(buffer.take().raw) == BOUND
    writer.join(5)
    assert buffer.take().raw == b"y"


def test_the_end_frees_a_writer_that_waits() -> None:
    buffer = BatchBuffer()
    buffer.put(b"x" * BOUND, 1)
    writer = threading.Thread(target=buffer.put, args=(b"y", 1))
    writer.start()
    buffer.end(Broken("cancelled", "stop"))
    writer.join(5)
    assert not writer.is_alive()
    assert len(buffer.take().raw) == BOUND


class Fired:
    """Counts, and can be waited for."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, name: str) -> None:
        with self._changed:
            self.names.append(name)
            self._changed.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: len(self.names) >= count, 5)
            return list(self.names)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic=0.0)


@pytest.fixture
def watchdog(clock: ManualClock) -> Iterator[Watchdog]:
    made = Watchdog(clock.monotonic)
    clock.on_advance(made.look)
    yield made
    made.close()


def test_alarms_fire_in_their_order_and_not_before_their_time(watchdog: Watchdog, clock: ManualClock) -> None:
    fired = Fired()
    for name, when in (("late", 30.0), ("early", 10.0), ("never", 1000.0)):
        watchdog.alarm().move(when, lambda name=name: fired(name))  # type: ignore[misc]
    clock.advance(9)
    time.sleep(0.02)
    assert fired.names == []
    clock.advance(30)
    assert fired.wait(2) == ["early", "late"]


def test_an_alarm_that_moves_later_does_not_fire_at_its_old_time(watchdog: Watchdog, clock: ManualClock) -> None:
    fired = Fired()
    alarm = watchdog.alarm()
    for when in (10.0, 20.0, 40.0):
        alarm.move(when, lambda when=when: fired(str(when)))  # type: ignore[misc]
    clock.advance(25)
    time.sleep(0.02)
    assert fired.names == []
    clock.advance(20)
    assert fired.wait(1) == ["40.0"]


def test_an_alarm_that_moves_earlier_fires_once_at_the_new_time(watchdog: Watchdog, clock: ManualClock) -> None:
    fired = Fired()
    alarm = watchdog.alarm()
    alarm.move(100.0, lambda: fired("old"))
    alarm.move(10.0, lambda: fired("new"))
    clock.advance(11)
    assert fired.wait(1) == ["new"]
    clock.advance(200)
    time.sleep(0.02)
    assert fired.names == ["new"]


def test_a_stopped_alarm_does_not_fire_and_can_be_set_again(watchdog: Watchdog, clock: ManualClock) -> None:
    fired = Fired()
    alarm = watchdog.alarm()
    alarm.move(10.0, lambda: fired("stopped"))
    alarm.stop()
    clock.advance(20)
    alarm.move(30.0, lambda: fired("again"))
    clock.advance(20)
    assert fired.wait(1) == ["again"]


def test_stopped_alarms_take_no_memory(watchdog: Watchdog) -> None:
    for _ in range(5000):
        alarm = watchdog.alarm()
        alarm.move(1800.0, lambda: None)
        alarm.stop()
    assert len(watchdog._heap) < 200


def test_an_action_that_fails_does_not_end_the_others(
    watchdog: Watchdog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError

    fired = Fired()
    watchdog.alarm().move(1.0, broken)
    watchdog.alarm().move(2.0, lambda: fired("second"))
    clock.advance(5)
    assert fired.wait(1) == ["second"]
    assert "a deadline's action failed" in caplog.text
