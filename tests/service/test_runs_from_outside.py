"""What meets runs from outside: more messages, repeats, other owners, full queues, cancels, deadlines, the end."""

import threading
import time

import pytest

from actors.errors import Refused
from actors.front import Settings
from actors.service import Inbound, NewSession
from eventstore import catalogue as log_of
from eventstore.memory import MemoryLog
from rss_policy.engine import MontyEngine
from tests.fakes.models import ScriptedModels, stream
from tests.fakes.policies import LOOPING, PLAIN, SLEEPING, STREAMED
from tests.fakes.system import DONE, is_equal, notes, running, script

# --- queue, steer, repeat -----------------------------------------------------------------------------


def test_a_message_during_a_run_waits_for_its_own_turn(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    models = ScriptedModels([stream("one", gate=gate), stream("two")])
    with running(log, engine, STREAMED, models=models) as system:
        first = system.say("first")
        second = system.say("second", session_id=first.session_id)
        assert second.status == "queued"
        assert system.types(second.run_id) == []
        gate.release()
        assert isinstance(system.wait(second.run_id), log_of.RunCompleted)
        assert models.calls[1].body["said"] == ["first", "one", "second"]
        assert is_equal(system, second.run_id)


def test_a_message_steers_the_run_at_work(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(0)
    with running(log, engine, STREAMED, stream("one", gate=gate), busy="steer") as system:
        first = system.say("first")
        steered = system.say("look here", session_id=first.session_id)
        assert (steered.run_id, steered.status) == (first.run_id, "running")
        system.until(first.run_id, lambda e: isinstance(e, log_of.MessageSteered))
        gate.release()
        system.wait(first.run_id)
        assert notes(system, first.run_id, "steered") == [{"texts": ["look here"]}]
        system.settled(first.session_id)
        assert is_equal(system, first.run_id)
        said = [row.message["content"][0]["text"] for row in log.queries.messages(first.session_id, limit=9)]
        assert said == ["first", "look here", "one"]  # where it was taken in: its step is recorded before its events


def test_what_steered_too_late_becomes_the_next_run(log: MemoryLog, engine: MontyEngine) -> None:
    policy = script(f"await sleep(80)\n{DONE}")
    with running(log, engine, policy, busy="steer") as system:
        first = system.say("first")
        late = [system.say(text, session_id=first.session_id) for text in ("late", "later")]
        assert {each.run_id for each in late} == {first.run_id}
        system.wait(first.run_id)
        deadline = time.monotonic() + 5
        while len(runs := log.queries.runs("ann", limit=9)) < 2 or runs[0].status != "completed":
            assert time.monotonic() < deadline, runs
            time.sleep(0.005)
        admitted = next(e for e in system.events(runs[0].run_id) if isinstance(e, log_of.RunAdmitted))
        assert [m["content"][0]["text"] for m in admitted.input] == ["late", "later"]


def test_the_same_key_gives_the_same_run_and_another_body_is_a_conflict(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        first = system.say("a", key="k", fingerprint="f")
        again = system.say("a", key="k", fingerprint="f")
        assert (again.run_id, again.message_id, again.repeat) == (first.run_id, first.message_id, True)
        with pytest.raises(Refused) as conflict:
            system.say("b", key="k", fingerprint="g")
        assert conflict.value.code == "idempotency_conflict"
        other = system.say("a", key="k", fingerprint="f", owner="bob")
        assert other.run_id != first.run_id


def test_the_same_message_sent_many_times_at_once_is_one_run(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(system.say("a", key="k", fingerprint="f").run_id)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len(set(found)) == 1


def test_another_owners_session_and_run_are_not_there(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        mine = system.say()
        for name in (mine.session_id, "ses_none"):
            with pytest.raises(Refused) as refused:
                system.say(owner="bob", session_id=name)
            assert refused.value.code == "session_not_found"
        with pytest.raises(Refused) as refused:
            system.say(owner="bob", session_id=mine.session_id, create_if_missing=True)
        assert refused.value.code == "session_not_found"
        with pytest.raises(Refused) as no_run:
            system.front.cancel("bob", mine.run_id, "x")
        assert no_run.value.code == "run_not_found"
        with pytest.raises(Refused):
            system.front.change_session("bob", mine.session_id, {"title": "x"})


def test_a_session_that_is_missing_can_be_created_by_its_name(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        first = system.say(session_id="ses_mine", create_if_missing=True)
        system.wait(first.run_id)
        system.settled("ses_mine")
        second = system.say(session_id="ses_mine", create_if_missing=True)
        assert (first.session_id, second.session_id) == ("ses_mine", "ses_mine")


def test_a_sessions_model_may_change_between_turns(log: MemoryLog, engine: MontyEngine) -> None:
    models = ScriptedModels([stream("x")])
    with running(log, engine, STREAMED, models=models) as system:
        session_id = system.front.create_session(NewSession("ann", model="first-model"))
        first = system.say(session_id=session_id)
        system.wait(first.run_id)
        system.settled(session_id)
        system.front.change_session("ann", session_id, {"model": "second-model", "title": "t"})
        second = system.say(session_id=session_id)
        system.wait(second.run_id)
        assert [call.body["model"] for call in models.calls] == ["first-model", "second-model"]
        for changes in ({"colour": "red"}, {"busy": "never"}):
            with pytest.raises(Refused) as refused:
                system.front.change_session("ann", session_id, changes)
            assert refused.value.code == "invalid_command"


def test_too_much_is_refused_by_name(log: MemoryLog, engine: MontyEngine) -> None:
    settings = Settings(active_runs=1, queued_runs=2, session_queue=1, max_input_bytes=500, max_context_bytes=3_000)
    with running(log, engine, SLEEPING, settings=settings) as system:
        with pytest.raises(Refused, match="max_input_bytes") as big:
            system.say("x" * 600)
        history = tuple({"role": "user", "content": [{"type": "text", "text": "x" * 400}]} for _ in range(9))
        with pytest.raises(Refused) as long:
            system.say(history=history)
        with pytest.raises(Refused) as profile:
            system.say(profile="none")
        with pytest.raises(Refused) as provider:
            system.say(provider="none")
        first = system.say()
        waiting = system.say(session_id=first.session_id)
        with pytest.raises(Refused) as full:
            system.say(session_id=first.session_id)
        elsewhere = system.say()
        with pytest.raises(Refused) as over:
            system.say()
        codes = [each.value.code for each in (big, long, profile, provider, full, over)]
        expected = ["input_too_large", "context_too_large", "unknown_profile", "unknown_provider"]
        assert codes == [*expected, "session_queue_full", "overloaded"]
        assert (waiting.status, elsewhere.status) == ("queued", "queued")
        system.front.cancel("ann", waiting.run_id, "x")
        system.front.cancel("ann", first.run_id, "x")
        system.until(elsewhere.run_id, lambda e: isinstance(e, log_of.RunStarted))


def test_more_runs_than_places_take_turns(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN, settings=Settings(active_runs=2)) as system:
        admitted = [system.say() for _ in range(12)]
        for each in admitted:
            assert isinstance(system.wait(each.run_id), log_of.RunCompleted)


# --- cancel and deadline -------------------------------------------------------------------------------


def test_a_cancel_ends_a_streaming_run_within_100_ms(log: MemoryLog, engine: MontyEngine) -> None:
    took = []
    for _ in range(3):  # the best of three: the machine has other work, too
        models = ScriptedModels([stream("Hel", "lo", gate=threading.Semaphore(1))])
        with running(log, engine, STREAMED, models=models) as system:
            run_id = system.say().run_id
            system.until(run_id, lambda e: isinstance(e, log_of.ModelDelta))
            began = time.monotonic()
            system.front.cancel("ann", run_id, "enough")
            assert isinstance(system.wait(run_id), log_of.RunCancelled)
            took.append(time.monotonic() - began)
    assert min(took) < 0.1


def test_a_cancel_cuts_the_stream_and_keeps_its_text(log: MemoryLog, engine: MontyEngine) -> None:
    gate = threading.Semaphore(1)
    models = ScriptedModels([stream("Hel", "lo", gate=gate)])
    with running(log, engine, STREAMED, models=models) as system:
        run_id = system.say().run_id
        system.until(run_id, lambda e: isinstance(e, log_of.ModelDelta))
        system.front.cancel("ann", run_id, "changed my mind")
        end = system.wait(run_id)
        assert isinstance(end, log_of.RunCancelled)
        assert (end.partial, end.reason) == ("Hel", "changed my mind")
        assert models.exchanges[0].cut
        before = system.events(run_id)
        assert system.front.cancel("ann", run_id, "again") == "cancelled"
        assert system.events(run_id) == before
        assert sum(isinstance(e, log_of.StreamSealed) for e in before) == 1


def test_a_cancel_ends_a_script_that_computes_for_ever(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, LOOPING) as system:
        run_id = system.say().run_id
        time.sleep(0.1)
        system.front.cancel("ann", run_id, "stop")
        assert isinstance(system.wait(run_id, 1), log_of.RunCancelled)


def test_a_queued_run_is_cancelled_at_once(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING) as system:
        first = system.say()
        second = system.say(session_id=first.session_id)
        assert system.front.cancel("ann", second.run_id, "no") == "cancelled"
        assert system.types(second.run_id) == ["run.cancelled"]
        third = system.say(session_id=first.session_id)
        system.front.cancel("ann", first.run_id, "no")
        system.until(third.run_id, lambda e: isinstance(e, log_of.RunStarted))


def test_a_deadline_fails_the_run_and_names_the_setting(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, SLEEPING) as system:
        end = system.wait(system.say(limits={"deadline_ms": 50}).run_id)
        assert isinstance(end, log_of.RunFailed)
        assert end.error.code == "deadline_exceeded"
        assert "limits.deadline_ms" in end.error.message


def test_a_message_may_only_narrow_a_limit(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN, limits={"max_turns": 5}) as system:
        run_id = system.say(limits={"max_turns": 99, "deadline_ms": 10}).run_id
        admitted = system.until(run_id, lambda e: isinstance(e, log_of.RunAdmitted))
        assert isinstance(admitted, log_of.RunAdmitted)
        assert (admitted.limits["max_turns"], admitted.limits["deadline_ms"]) == (5, 10)


def test_nothing_is_taken_in_while_the_server_stops(log: MemoryLog, engine: MontyEngine) -> None:
    with running(log, engine, PLAIN) as system:
        system.stop()
        with pytest.raises(Refused) as refused:
            system.front.admit(Inbound("ann", ({"role": "user", "content": []},)))
        assert refused.value.code == "shutting_down"
