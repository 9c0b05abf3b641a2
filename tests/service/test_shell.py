"""The shell around an aggregate: order of decide, append, evolve, launch and answer."""

import threading

import pytest

from actors.aggregate import Attachments, Trace
from actors.directory import Settings
from actors.errors import Refused
from actors.letters import Address, Letter, Pressing
from eventstore.catalogue import NoteTaken
from eventstore.log import Batch, NamedBlob
from tests.fakes.counter import Add, AddTo, Explode, Look, Owe, Pay, Refuse, Remind
from tests.fakes.list_log import ListLog
from tests.fakes.town import Town, eventually, town


def asked(here: Town, name: str, command: object) -> threading.Thread:
    """Ask from a thread of its own, since the answer is held back."""
    thread = threading.Thread(target=lambda: here.directory.ask("counter", name, command, 5))
    thread.start()
    return thread


def told(here: Town, name: str, command: Add) -> bool:
    try:
        here.tell(name, command)
    except Refused as refusal:
        return (refusal.code, refusal.retry_after) != ("overloaded", 1)
    return True


def test_an_answer_has_the_state_and_the_events_after_the_commit() -> None:
    with town() as here:
        answer = here.ask("a", Add(7))
        assert (answer.state.numbers, answer.version) == ((7,), 1)
        assert [event.kind for event in answer.events] == ["added"]


def test_no_answer_comes_before_the_commit() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        waiting = asked(here, "a", Add(1))
        eventually(lambda: len(here.log.requests) == 1)
        waiting.join(0.05)
        assert waiting.is_alive()
        here.log.release()
        waiting.join(5)
        assert not waiting.is_alive()


def test_a_repeat_is_answered_and_recorded_once() -> None:
    with town() as here:
        here.ask("a", Add(1))
        assert here.ask("a", Add(1)).events == ()
        assert here.numbers("a") == [1]


def test_commands_during_an_append_are_decided_together_over_the_state_it_gives() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        threads = [asked(here, "a", Add(0))]
        eventually(lambda: len(here.log.requests) == 1)
        threads += [asked(here, "a", Add(n)) for n in (0, 1, 2, 2, 3)]
        eventually(lambda: here.shell("a").actor_inbox.held == 5)
        here.log.release()
        for thread in threads:
            thread.join(5)
        assert len(here.log.requests) == 2
        assert sorted(here.numbers("a")) == [0, 1, 2, 3]


def test_only_one_append_is_in_flight() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        for number in range(5):
            here.tell("a", Add(number))
        here.log.release()
        assert here.ask("a", Look()).state.numbers == (0, 1, 2, 3, 4)
        assert [request.parts[0].expected for request in here.log.requests] == sorted(
            {request.parts[0].expected for request in here.log.requests}
        )


def test_a_refusal_reaches_its_sender_alone() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        first = asked(here, "a", Add(1))
        eventually(lambda: len(here.log.requests) == 1)
        refusals: list[Refused] = []
        threads = [threading.Thread(target=lambda: refusals.append(here.refusal("a", Refuse()))), asked(here, "a", Add(2))]
        threads[0].start()
        here.log.release()
        for thread in [first, *threads]:
            thread.join(5)
        assert [refusal.code for refusal in refusals] == ["invalid_command"]
        assert here.numbers("a") == [1, 2]


def test_a_command_without_events_is_answered_while_nothing_is_in_flight() -> None:
    with town() as here:
        assert here.ask("a", Look()).version == 0
        assert here.log.requests == []


def test_effects_are_launched_after_the_commit_and_once() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        waiting = asked(here, "a", Owe("work"))
        eventually(lambda: len(here.log.requests) == 1)
        assert here.launcher.launched == []
        here.log.release()
        waiting.join(5)
        here.ask("a", Add(1))
        here.ask("a", Add(2))
        assert here.launcher.launched == ["work"]


def test_a_key_may_be_launched_again_after_it_was_paid() -> None:
    with town() as here:
        for command in (Owe("work"), Pay("work"), Owe("work")):
            here.ask("a", command)
        assert here.launcher.launched == ["work", "work"]
        assert here.shell("a")._launched == {"work"}


def test_the_outcome_of_an_effect_comes_back_as_a_command() -> None:
    with town() as here:
        here.ask("a", Owe("work"))
        here.launcher.backs[0](Pay("work"))
        assert here.ask("a", Look()).state.owed == ()


@pytest.mark.parametrize("trouble", [Refused("overloaded", "busy"), ValueError("a fault of the launcher")])
def test_work_that_could_not_be_handed_over_is_tried_again(trouble: Exception) -> None:
    with town() as here:
        here.launcher.troubles = [trouble]
        here.ask("a", Owe("work"))
        assert here.launcher.launched == []
        here.clock.advance(1.1)
        eventually(lambda: here.launcher.launched == ["work"])


def test_a_launcher_that_ends_the_actor_takes_no_answer_along() -> None:
    with town() as here:
        here.launcher.troubles = [SystemExit()]
        assert here.ask("a", Owe("work")).version == 1
        here.pass_the_pause()
        eventually(lambda: here.launcher.launched == ["work"])


def test_a_message_to_another_actor_is_repeated_until_it_is_answered() -> None:
    with town() as here:
        here.ask("a", Owe("message"))
        here.clock.advance(5.1)
        eventually(lambda: here.launcher.launched == ["message", "message"])
        here.ask("a", Pay("message"))
        here.clock.advance(60)
        here.ask("a", Look())
        assert here.launcher.launched == ["message", "message"]


def test_who_waits_for_a_message_may_have_it_repeated_as_long_as_it_is_owed() -> None:
    with town() as here:
        here.ask("a", Remind(frozenset({"end"})))
        here.ask("a", Owe("end"))
        here.ask("a", Owe("work"))
        here.ask("a", Remind(frozenset({"end"})))
        eventually(lambda: here.launcher.launched == ["end", "work", "end"])
        here.ask("a", Pay("end"))
        here.ask("a", Remind(frozenset({"end"})))
        here.ask("a", Add(1))
        assert here.launcher.launched == ["end", "work", "end"]


def test_a_reminder_that_comes_during_an_append_is_kept_until_it_is_on_record() -> None:
    with town() as here:
        here.ask("a", Owe("end"))
        here.log.hold()
        waiting = asked(here, "a", Add(1))
        eventually(lambda: len(here.log.requests) == 2)
        here.directory.tell("counter", "a", Remind(frozenset({"end"})))
        here.directory.tell("counter", "a", Add(2))
        eventually(lambda: here.shell("a").actor_inbox.held == 2)
        assert here.launcher.launched == ["end"]
        here.log.release()
        waiting.join(5)
        eventually(lambda: here.launcher.launched == ["end", "end"])


def test_attachments_go_into_the_same_append_and_a_repeat_adds_none() -> None:
    with town() as here:
        both = Attachments(batches=(Batch("run_1", 1, 1, b"raw"),), blobs=(NamedBlob("policy:1", b"source"),))
        here.ask("a", Add(1, attachments=both))
        here.ask("a", Add(1, attachments=both))
        assert list(here.log.batches("run_1", 1)) == [b"raw"]
        assert here.log.requests[0].blobs == both.blobs


def test_causation_and_correlation_are_kept_and_never_mixed_in_one_append() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        threads = [asked(here, "a", Add(n, Trace(f"cause-{n}", "order"))) for n in range(4)]
        eventually(lambda: len(here.log.requests) == 1)
        here.log.release()
        for thread in threads:
            thread.join(5)
        kept = {
            (envelope.event.data["number"], envelope.causation, envelope.correlation)
            for envelope in here.log.envelopes
            if isinstance(envelope.event, NoteTaken)
        }
        assert kept == {(n, f"cause-{n}", "order") for n in range(4)}


def test_appends_carry_the_clock_s_time_and_the_actor_s_name() -> None:
    with town() as here:
        here.ask("a", Add(1))
        assert (here.log.requests[0].at, here.log.requests[0].actor) == (here.clock.now(), "counter-a")


def test_an_append_over_two_streams_reaches_a_live_actor_of_the_other() -> None:
    with town() as here:
        assert here.ask("b", Look()).version == 0
        here.ask("a", AddTo("b", 9))
        assert here.ask("b", Look()).state.numbers == (9,)
        assert here.ask("b", Add(10)).version == 2


def test_an_actor_replays_before_it_answers() -> None:
    log = ListLog()
    with town(log) as here:
        here.ask("a", Add(1))
        here.ask("a", Owe("work"))
    with town(log) as here:
        answer = here.ask("a", Look())
        assert (answer.state.numbers, answer.state.owed, answer.state.recoveries) == ((1,), ("work",), 1)
        assert here.launcher.launched == ["work"]


def test_work_is_launched_after_a_replay_even_if_recovery_records_nothing() -> None:
    log = ListLog()
    with town(log) as here:
        here.ask("a", Owe("work"))
    with town(log) as here:
        here.directory.start_all([Address("counter", "a")])
        eventually(lambda: here.launcher.launched == ["work"])


def test_a_full_mailbox_refuses_but_takes_the_writer_s_answer_and_outcomes() -> None:
    with town(settings=Settings(mailbox=4)) as here:
        here.ask("a", Owe("work"))
        here.log.hold()
        here.tell("a", Add(0))
        eventually(lambda: len(here.log.requests) == 2)
        refused = sum(not told(here, "a", Add(number)) for number in range(1, 20))
        assert refused >= 15
        here.launcher.backs[0](Pay("work"))
        here.log.release()
        eventually(lambda: len(here.numbers("a")) == 20 - refused)
        assert here.ask("a", Look()).state.owed == ()


def test_a_fault_in_decide_reaches_its_sender_and_loses_nothing_of_others() -> None:
    with town() as here:
        here.ask("a", Look())
        here.log.hold()
        here.tell("a", Add(0))
        eventually(lambda: len(here.log.requests) == 1)
        errors: list[BaseException] = []

        def explode() -> None:
            try:
                here.ask("a", Explode())
            except ValueError as error:
                errors.append(error)

        thread = threading.Thread(target=explode)
        thread.start()
        for number in (1, 2, 3):
            here.tell("a", Add(number))
        here.log.release()
        thread.join(5)
        assert len(errors) == 1
        here.pass_the_pause()
        assert set(here.ask("a", Look()).state.numbers) == {0, 1, 2, 3}


def test_letters_know_how_often_actors_ended_over_them() -> None:
    assert Letter(Add(1)).tried().tried().attempts == 2
    assert Pressing(Letter(Add(1))).letter.command == Add(1)
