"""What the shell does when the log fails, before or after it wrote; asked at the port, at every append."""

import threading

import pytest

from eventstore.errors import CorruptEvent, KeyTaken, LogError, StoreBusy, StoreError, StoreFull, VersionConflict
from tests.fakes.counter import Add, AddTo, Explode, Look, Owe, Pay
from tests.fakes.list_log import ListLog
from tests.fakes.town import eventually, town


@pytest.mark.parametrize("error", [StoreFull("no space"), StoreBusy("full queue")])
def test_a_full_store_fails_what_was_asked_and_the_actor_lives_on(error: LogError) -> None:
    with town() as here:
        here.ask("a", Add(1))
        before = here.shell("a")
        here.log.fail_with(error)
        with pytest.raises(type(error)):
            here.ask("a", Add(2))
        assert here.ask("a", Add(3)).state.numbers == (1, 3)
        assert here.shell("a") is before


def test_a_refusing_store_is_the_same_as_a_full_one() -> None:
    with town() as here:
        here.log.refuse_with(StoreBusy("full queue"))
        with pytest.raises(StoreBusy):
            here.ask("a", Add(1))
        assert here.ask("a", Add(1)).version == 1


def test_what_was_told_is_kept_until_there_is_space_and_asks_fail_at_once_meanwhile() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.fail_with(StoreFull("no space"))
        here.tell("a", Add(1))
        eventually(lambda: len(here.log.requests) == 1)
        eventually(lambda: len(here.timer) == 1)
        with pytest.raises(StoreFull):
            here.ask("a", Add(2))
        here.tell("a", Add(3))
        here.clock.advance(1.1)
        eventually(lambda: here.numbers("a") == [1, 3])
        assert here.ask("a", Look()).state.numbers == (1, 3)


def test_a_taken_key_fails_its_command_and_not_those_decided_with_it() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        here.tell("a", Add(0))
        eventually(lambda: len(here.log.requests) == 1)
        here.log.fail_with(KeyTaken("k"), KeyTaken("k"))
        outcomes: dict[int, object] = {}

        def ask(number: int) -> None:
            try:
                outcomes[number] = here.ask("a", Add(number)).version
            except KeyTaken as error:
                outcomes[number] = error.code

        threads = [threading.Thread(target=ask, args=(n,)) for n in (1, 2, 3)]
        for thread in threads:
            thread.start()
        eventually(lambda: here.shell("a").actor_inbox.held == 3)
        here.log.release()
        for thread in threads:
            thread.join(5)
        assert sorted(map(str, outcomes.values())) == ["2", "3", "idempotency_key_taken"]
        assert len(here.numbers("a")) == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", range(4))
def test_an_unknown_outcome_of_any_append_ends_the_actor_and_the_next_one_knows_the_truth(nth: int, after: bool) -> None:
    with town() as here:
        for number in range(4):
            if number == nth:
                here.log.fail_with(StoreError("broken"), after=after)
                with pytest.raises(StoreError):
                    here.ask("a", Add(number))
                here.pass_the_pause()
            assert number in here.ask("a", Add(number)).state.numbers
        assert here.numbers("a") == [0, 1, 2, 3]


@pytest.mark.parametrize("after", [False, True])
def test_what_was_told_survives_an_unknown_outcome_and_is_recorded_once(after: bool) -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.fail_with(StoreError("broken"), after=after)
        here.tell("a", Add(1))
        here.tell("a", Add(2))
        eventually(lambda: here.directory.counts()["failed"] == 1)
        here.tell("a", Add(3))
        here.clock.advance(0.2)
        eventually(lambda: sorted(here.numbers("a")) == [1, 2, 3])


def test_work_that_was_under_way_is_launched_again_by_the_next_actor() -> None:
    with town() as here:
        here.ask("a", Owe("work"))
        here.log.fail_with(StoreError("broken"))
        here.launcher.backs[0](Pay("work"))
        here.pass_the_pause()
        eventually(lambda: here.launcher.launched == ["work", "work"] or here.ask("a", Look()).state.owed == ())


def test_after_a_version_conflict_the_command_is_decided_again_on_what_is_there() -> None:
    with town() as here:
        here.ask("a", Add(1))
        here.log.fail_with(VersionConflict("counter-a", 1, 2))
        assert here.ask("a", Add(2)).state.numbers == (1, 2)
        assert here.numbers("a") == [1, 2]


def test_a_conflict_in_another_stream_of_the_append_writes_nothing() -> None:
    with town() as here:
        here.ask("b", Add(1))
        with pytest.raises(VersionConflict):
            here.directory.ask("counter", "a", AddTo("b", 2), 5)
        assert here.numbers("b") == [1]
        assert list(here.log.read("counter-a")) == []


def test_a_stream_that_cannot_be_read_fails_who_asked_and_is_read_again_later() -> None:
    log = ListLog()
    with town(log) as here:
        log.break_reads(CorruptEvent("not an event"))
        with pytest.raises(CorruptEvent):
            here.ask("a", Look())
        log.break_reads(None)
        here.pass_the_pause()
        assert here.ask("a", Add(1)).version == 1


def test_a_command_that_ends_every_actor_is_given_up_and_others_go_on() -> None:
    with town() as here:
        here.tell("a", Explode())
        here.tell("a", Add(1))

        def recorded_in_time() -> bool:
            here.clock.advance(0.2)
            return here.numbers("a") == [1]

        eventually(recorded_in_time)


def test_what_was_told_outlives_a_log_that_fails_again_and_again() -> None:
    with town() as here:
        here.log.fail_with(*[StoreError("the disk is gone")] * 6)
        here.tell("a", Add(1))

        def recorded_in_time() -> bool:
            here.clock.advance(1)
            return here.numbers("a") == [1]

        eventually(recorded_in_time)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_exception_of_one_actor_touches_another(error: type[BaseException]) -> None:
    with town() as here:
        here.ask("b", Add(1))
        with pytest.raises(error):
            here.ask("a", Explode(error))
        assert here.ask("b", Add(2)).version == 2
        here.pass_the_pause()
        assert here.ask("a", Add(1)).version == 1


def test_during_a_long_pause_asks_are_refused_with_the_time_to_wait() -> None:
    with town() as here:
        for pause in (0.1, 0.2, 0.4, 0.8, 1.6):
            here.log.fail_with(StoreError("broken"))
            with pytest.raises(StoreError):
                here.ask("a", Add(1))
            eventually(lambda: here.directory.counts()["failed"] == 1)
            if pause < 1:
                here.clock.advance(pause + 0.01)
                eventually(lambda: here.directory.counts()["failed"] == 0)
        refusal = here.refusal("a", Look())
        assert (refusal.code, refusal.retry_after) == ("storage_failed", 2)


def test_during_a_long_pause_over_a_fault_of_the_program_the_log_is_not_blamed() -> None:
    with town() as here:
        for pause in (0.1, 0.2, 0.4, 0.8, 1.6):
            with pytest.raises(ValueError, match="a fault"):
                here.ask("a", Explode())
            eventually(lambda: here.directory.counts()["failed"] == 1)
            if pause < 1:
                here.clock.advance(pause + 0.01)
                eventually(lambda: here.directory.counts()["failed"] == 0)
        refusal = here.refusal("a", Look())
        assert (refusal.code, refusal.retry_after) == ("overloaded", 2)
