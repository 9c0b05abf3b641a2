"""The directory: no message is lost or doubled while actors come and go."""

import threading

import pytest

from actors.directory import Settings
from actors.errors import Refused
from actors.failures import MAX_FAILURES
from actors.letters import Address
from eventstore.errors import CorruptEvent, StoreError
from tests.fakes.counter import Add, Look, Occupy, Owe, Pay
from tests.fakes.list_log import ListLog
from tests.fakes.town import Town, eventually, town


def live(here: Town) -> int:
    return here.directory.counts()["live"]


def test_an_actor_starts_on_demand_and_is_the_same_for_all_who_ask() -> None:
    with town() as here:
        threads = [threading.Thread(target=here.ask, args=("a", Add(n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert live(here) == 1
        assert sorted(here.numbers("a")) == list(range(8))


def test_an_idle_actor_is_put_away_and_comes_back_with_its_state() -> None:
    with town() as here:
        here.ask("a", Add(1))
        here.ask("b", Add(1))
        here.clock.advance(61)
        here.ask("b", Look())
        eventually(lambda: here.directory.tidy() == 1)
        assert live(here) == 1
        assert here.ask("a", Look()).state.numbers == (1,)


def test_an_actor_that_is_busy_by_its_own_word_is_not_put_away() -> None:
    with town() as here:
        here.ask("a", Occupy(busy=True))
        here.clock.advance(600)
        assert here.directory.tidy() == 0
        here.ask("a", Occupy(busy=False))
        here.clock.advance(61)
        eventually(lambda: here.directory.tidy() == 1)


def test_an_actor_with_an_append_in_flight_is_not_put_away() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        here.tell("a", Add(1))
        eventually(lambda: len(here.log.requests) == 1)
        here.clock.advance(600)
        assert here.directory.tidy() == 0


def test_an_actor_that_still_has_to_hand_work_over_is_not_put_away() -> None:
    with town() as here:
        here.launcher.troubles = [Refused("overloaded", "busy")]
        here.ask("a", Owe("work"))
        here.clock._monotonic += 600  # without waking the timer
        assert here.directory.tidy() == 0
        here.clock.advance(0)
        eventually(lambda: here.launcher.launched == ["work"])


def test_the_timer_tidies_by_itself() -> None:
    with town(settings=Settings(idle_after=1, tidy_every=1)) as here:
        here.directory.begin()
        here.ask("a", Add(1))

        def tidied() -> bool:
            here.clock.advance(1)
            return live(here) == 0

        eventually(tidied)


def test_under_passivation_no_message_is_lost_and_none_is_doubled() -> None:
    sessions, rounds = 5_000, 3
    with town(settings=Settings(live=200, mailbox=100)) as here:

        def send(sender: int) -> None:
            for number in range(sender, rounds, 1 + sender):
                for session in range(sender % 2, sessions, 2):
                    here.tell(str(session), Add(number))
                    if session % 100 == sender:
                        here.ask(str(session), Look())  # in step with the actors, so that some become idle

        def tidy() -> None:
            while not done.wait(0.005):
                here.clock.advance(120)
                here.directory.tidy()

        done = threading.Event()
        threads = [threading.Thread(target=send, args=(n,)) for n in (0, 1)]
        tidier = threading.Thread(target=tidy)
        for thread in [*threads, tidier]:
            thread.start()
        for thread in threads:
            thread.join(30)
        done.set()
        tidier.join(5)
        even = list(range(rounds))
        odd = list(range(1, rounds, 2))
        eventually(lambda: len(here.log.envelopes) == sessions // 2 * (len(even) + len(odd)), within=20)
        reads = here.log.reads
        assert all(here.numbers(str(n)) == (odd if n % 2 else even) for n in range(sessions))
        assert reads > sessions * 3 // 2  # they did come and go


def test_beyond_the_cap_who_was_idle_longest_makes_room() -> None:
    with town(settings=Settings(live=3)) as here:
        for name in "abcabd":
            here.ask(name, Add(1))
        assert {address.id for address, _ in here.directory._live.all()} == {"a", "b", "d"}


def test_beyond_the_cap_asks_are_refused_while_nobody_is_idle_but_actors_still_reach_each_other() -> None:
    with town(settings=Settings(live=2)) as here:
        for name in "ab":
            here.ask(name, Occupy(busy=True))
        assert here.refusal("c", Look()).code == "overloaded"
        here.tell("c", Add(1))
        eventually(lambda: here.numbers("c") == [1])
        here.ask("a", Occupy(busy=False))
        eventually(lambda: _answers(here, "d"))


def _answers(here: Town, name: str) -> bool:
    try:
        here.ask(name, Look())
    except Refused:
        return False
    return True


def test_a_failed_actor_starts_again_by_itself_and_takes_up_its_work() -> None:
    with town() as here:
        here.ask("a", Owe("work"))
        here.log.fail_with(StoreError("broken"))
        with pytest.raises(StoreError):
            here.ask("a", Add(1))
        here.pass_the_pause()
        eventually(lambda: here.launcher.launched == ["work", "work"])


def test_the_pause_doubles_and_is_bounded_and_after_ten_failures_the_sweep_decides() -> None:
    log = ListLog()
    unfinished = [Address("counter", "a")]
    with town(log, Settings(longest_backoff=2), lambda: unfinished) as here:
        log.break_reads(StoreError("broken"))
        here.tell("a", Add(1))

        def given_up() -> bool:
            here.clock.advance(2.1)
            return here.directory.counts() == {"live": 0, "failed": 0} and len(here.timer) == 0

        eventually(given_up)
        log.break_reads(None)
        assert here.directory.sweep() == 1
        assert here.ask("a", Add(2)).version >= 1


def test_the_sweep_starts_what_was_given_up_over_the_log_though_nothing_there_is_unfinished() -> None:
    log = ListLog()
    with town(log, Settings(longest_backoff=0.1)) as here:
        here.ask("a", Owe("work"))
        log.fail_with(*[StoreError("broken")] * MAX_FAILURES)
        here.tell("a", Add(1))

        def given_up() -> bool:
            here.clock.advance(0.2)
            return here.directory.counts() == {"live": 0, "failed": 0}

        eventually(given_up)
        launched = len(here.launcher.launched)
        assert here.directory.sweep() == 1
        eventually(lambda: len(here.launcher.launched) == launched + 1)
        assert here.directory.sweep() == 0


def test_the_sweep_leaves_a_stream_alone_that_cannot_be_read() -> None:
    log = ListLog()
    with town(log, Settings(longest_backoff=0.1)) as here:
        log.break_reads(CorruptEvent("not an event"))
        here.tell("a", Add(1))

        def given_up() -> bool:
            here.clock.advance(0.2)
            return here.directory.counts() == {"live": 0, "failed": 0} and len(here.timer) == 0

        eventually(given_up)
        assert here.directory.sweep() == 0


def test_the_sweep_starts_what_is_unfinished_and_has_no_actor() -> None:
    log = ListLog()
    with town(log) as here:
        for name in "abc":
            here.ask(name, Owe(f"work of {name}"))
    unfinished = [Address("counter", name) for name in "abc"]
    with town(log, unfinished=lambda: unfinished) as here:
        here.directory.begin()
        here.ask("a", Look())
        here.clock.advance(61)
        eventually(lambda: sorted(here.launcher.launched) == ["work of a", "work of b", "work of c"])
        assert here.directory.sweep() == 0


def test_the_sweep_leaves_alone_who_rests_until_its_work_is_done() -> None:
    unfinished = [Address("counter", "a")]
    with town(unfinished=lambda: unfinished) as here:
        here.ask("a", Owe("work"))
        here.clock.advance(61)
        eventually(lambda: here.directory.tidy() == 1)
        assert here.directory.sweep() == 0
        here.launcher.backs[0](Pay("work"))
        eventually(lambda: here.log.envelopes[-1].version == 3)


def test_an_outcome_finds_its_way_after_the_actor_was_put_away() -> None:
    with town() as here:
        here.ask("a", Owe("work"))
        here.clock.advance(61)
        eventually(lambda: here.directory.tidy() == 1)
        here.launcher.backs[0](Pay("work"))
        eventually(lambda: here.ask("a", Look()).state.owed == ())


def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        with pytest.raises(StoreError, match="no answer within"):
            here.ask("a", Add(1), timeout=0.02)
        here.log.release()
        eventually(lambda: here.numbers("a") == [1])


def test_a_slow_replay_holds_up_nobody_else() -> None:
    class SlowLog(ListLog):
        def read(self, stream: str, after: int = 0):  # type: ignore[no-untyped-def]
            if stream.endswith("slow"):
                gate.wait(5)
            return super().read(stream, after)

    gate = threading.Event()
    with town(SlowLog()) as here:
        here.tell("slow", Add(1))
        assert [here.ask("quick", Add(n)).version for n in range(3)] == [1, 2, 3]
        here.tell("slow", Add(2))
        gate.set()
        eventually(lambda: here.numbers("slow") == [1, 2])


def test_the_stop_of_intake_refuses_gateways_and_lets_actors_finish() -> None:
    with town() as here:
        here.ask("a", Owe("work"))
        here.directory.stop_intake()
        assert here.refusal("a", Look()).code == "shutting_down"
        here.launcher.backs[0](Pay("work"))
        eventually(lambda: [e.event.kind for e in here.log.envelopes][-1:] == ["paid"])  # type: ignore[union-attr]


def test_the_close_tells_each_live_actor_and_waits_until_all_is_recorded() -> None:
    with town() as here:
        for name in "abc":
            here.ask(name, Occupy(busy=True))
        here.log.hold()
        here.tell("a", Add(1))
        eventually(lambda: len(here.log.requests) == 4)
        threading.Timer(0.05, here.log.release).start()
        assert here.directory.close(5)
        told = [e.stream for e in here.log.envelopes if getattr(e.event, "data", {}).get("busy") is False]
        assert sorted(told) == ["counter-a", "counter-b", "counter-c"]
        assert here.numbers("a") == [1]
        with pytest.raises(Refused, match="stopping"):
            here.tell("new", Add(1))


def test_the_close_does_not_wait_longer_than_it_may() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        here.tell("a", Add(1))
        eventually(lambda: len(here.log.requests) == 1)
        assert not here.directory.close(0.05)


def test_who_waits_for_a_failed_actor_is_answered_when_the_server_stops() -> None:
    with town() as here:
        here.log.fail_with(StoreError("broken"))
        with pytest.raises(StoreError):
            here.ask("a", Add(1))
        eventually(lambda: here.directory.counts()["failed"] == 1)
        refusals: list[str] = []
        thread = threading.Thread(target=lambda: refusals.append(here.refusal("a", Look()).code))
        thread.start()
        eventually(lambda: bool(here.directory._failures._table[Address("counter", "a")].held))
        assert here.directory.close(1)
        here.clock.advance(1)
        thread.join(5)
        assert refusals == ["shutting_down"]
