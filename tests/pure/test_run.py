"""A run, without threads, files or clocks: given commands, then what it records and owes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.aggregate import Attachments
from actors.ports import ToolResult
from actors.run import RUN, attach
from actors.run_commands import (
    Advance,
    AwaitTurn,
    Begin,
    Cancel,
    CloseRun,
    Command,
    CutStream,
    DeliverResult,
    Fail,
    Finish,
    MeetDeadline,
    PerformCall,
    Recover,
    ReportTool,
    SettleSession,
    Steer,
    StopWaiting,
    StopWork,
    TakeUp,
    ToolFact,
    Wake,
)
from actors.run_state import Run, total
from eventstore import catalogue as log
from eventstore.catalogue import Outcome, Problem, Usage
from eventstore.log import Batch, Seal
from rss_policy.script import Act, Answered, Call, Emit, Ended, Raised, Stop

TERMINAL = (log.RunCompleted, log.RunCancelled, log.RunFailed)
SAID = ({"role": "user", "content": [{"type": "text", "text": "hello"}]},)
ADMITTED = log.RunAdmitted(
    session_id="ses_1",
    owner="ann",
    message_id="msg_1",
    input=SAID,
    run_id="run_1",
    limits={"max_events": 60, "max_open_calls": 6, "max_event_bytes": 500},
)
STARTED = log.RunStarted(seq=1, session_id="ses_1", deadline_at=99)
MESSAGE = {
    "role": "assistant",
    "content": [{"type": "tool_call", "id": "t1", "name": "look", "arguments": {}}],
    "provider": "p",
    "model": "m",
}
OK = {"output": None, "finish_reason": "stop", "error": None}


def step(run: Run, *acts: Act, call: int | None = None, outcome: Any = None, **more: Any) -> Advance:
    tools = {
        act.number: ToolFact(f"t{act.number}", act.payload["name"], act.payload["effect"])
        for act in acts
        if isinstance(act, Call) and act.kind == "call_tool"
    }
    handed = tuple(len(run.steered) for act in acts if isinstance(act, Answered) and act.kind == "new_messages")
    recorded = None if call is None else Outcome(value=outcome)
    return Advance(run.lives, run.steps + 1, call, recorded, acts, tools, handed, **more)


def play(run: Run, *commands: Command) -> tuple[Run, list[log.RunEvent]]:
    events: list[log.RunEvent] = []
    for command in commands:
        new = RUN.decide(run, command)
        run = RUN.fold(new, run)
        events.extend(new)
    return run, events


def begun() -> Run:
    return RUN.fold([ADMITTED, STARTED])


def tool(number: int = 1, effect: str | None = "once") -> Call:
    return Call(number, "call_tool", {"name": "look", "effect": effect}, "m:1")


def owes(run: Run, kind: type[Any]) -> list[Any]:
    return [effect for effect in RUN.pending(run) if isinstance(effect, kind)]


# --- one thing at a time ------------------------------------------------------------------------


def test_a_queued_run_owes_a_word_to_its_session_and_begins_once() -> None:
    queued = RUN.fold([ADMITTED])
    assert [type(effect) for effect in RUN.pending(queued)] == [AwaitTurn]
    run, events = play(queued, Begin(STARTED), Begin(STARTED))
    assert events == [STARTED]
    assert run.status == "running"


def test_a_step_is_one_append_with_its_events_after_it() -> None:
    acts = (Emit({"type": "model.started", "turn": 1, "attempt": 1}, "m:1"), Emit({"type": "note.x", "a": 1}, "m:2"))
    _, events = play(begun(), step(begun(), *acts))
    assert [log.tag_of(event) for event in events] == ["script.advanced", "model.started", "note.taken"]
    assert [log.seq_of(event) for event in events] == [None, 2, None]


def test_a_tool_is_recorded_as_started_before_it_is_owed() -> None:
    run, events = play(begun(), step(begun(), tool()))
    assert [log.tag_of(event) for event in events] == ["script.advanced", "tool.started"]
    assert [effect.key for effect in owes(run, PerformCall)] == ["call-1#1.0"]


def test_an_unknown_tool_is_a_failed_result_without_a_start() -> None:
    run, events = play(begun(), step(begun(), tool(effect=None)))
    assert [log.tag_of(event) for event in events] == ["script.advanced", "tool.completed"]
    [delivery] = owes(run, DeliverResult)
    assert delivery.result.error.code == "unknown_tool"


def test_a_result_is_recorded_once_and_owed_to_the_script_until_it_took_it() -> None:
    run, _ = play(begun(), step(begun(), tool()))
    run, events = play(run, ReportTool(1, 1, ToolResult("ok", "x")), ReportTool(1, 1, ToolResult("failed", "y")))
    assert [event.content for event in events if isinstance(event, log.ToolCompleted)] == ["x"]
    assert len(owes(run, DeliverResult)) == 1
    run, _ = play(run, step(run, call=1))
    assert owes(run, DeliverResult) == []


def test_a_report_of_an_earlier_attempt_is_not_heard() -> None:
    run, _ = play(begun(), step(begun(), tool(effect="read")), Recover("resume"))
    assert play(run, ReportTool(1, 1, ToolResult("ok", "late")))[1] == []
    assert len(play(run, ReportTool(1, 2, ToolResult("ok", "now")))[1]) == 1


def test_a_stream_that_ends_is_sealed_and_its_batch_goes_along() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "request", {}, "")))
    run, _ = play(run, step(run, Call(2, "read", {"of": 1}, ""), call=1, outcome={"ok": True}))
    batch = Batch("run_1", 1, 1, b"data: x\n\n")
    read = step(run, call=2, attachments=Attachments(batches=(batch,)))
    read = replace(read, outcome=Outcome(value={"of": 1, "done": True, "bytes": 9}, batch=1))
    after, events = play(run, read)
    assert [event for event in events if isinstance(event, log.StreamSealed)] == [
        log.StreamSealed(call=1, batches=1, size=9)
    ]
    assert attach(run, read, events) == Attachments(batches=(batch,), seals=(Seal("run_1", 1),))
    assert after.streams == {}


def streaming() -> Run:
    """A run that has read one batch of the stream of its request 1."""
    run, _ = play(begun(), step(begun(), Call(1, "request", {}, "")))
    run, _ = play(run, step(run, Call(2, "read", {"of": 1}, ""), call=1, outcome={"ok": True}))
    read = replace(step(run, call=2), outcome=Outcome(value={"of": 1, "done": False, "bytes": 9}, batch=1))
    return play(run, read)[0]


def test_a_stream_that_the_script_stops_is_sealed_at_once_and_its_exchange_is_to_be_cut() -> None:
    run = streaming()
    run, _ = play(run, step(run, Call(3, "sleep", {}, "")))
    stop = step(run, Stop(1, "m:1"), Call(4, "sleep", {}, ""), call=3, outcome={"ok": True})
    after, events = play(run, stop)
    assert events[1:] == [log.StreamSealed(call=1, batches=1, size=9)]
    assert attach(run, stop, events).seals == (Seal("run_1", 1),)
    assert (after.streams, owes(after, CutStream)) == ({}, [CutStream("cut-1", "run_1", 1)])
    later, more = play(after, step(after, call=4, outcome={"ok": True}))
    assert (owes(later, CutStream), len(more)) == ([], 1)


def test_a_stream_that_is_stopped_before_its_first_batch_is_cut_and_has_nothing_to_seal() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "request", {}, "")))
    run, events = play(run, step(run, Stop(1, "m:1"), call=1, outcome={"ok": True, "stream": True}))
    assert [log.tag_of(event) for event in events] == ["script.advanced"]
    assert owes(run, CutStream) == [CutStream("cut-1", "run_1", 1)]


def test_the_batch_of_the_step_that_stops_a_stream_is_sealed_with_it() -> None:
    run = streaming()
    run, _ = play(run, step(run, Call(3, "read", {"of": 1}, "")))
    batch = Batch("run_1", 1, 2, b"bad")
    stop = step(run, Stop(1, "m:1"), call=3, attachments=Attachments(batches=(batch,)))
    stop = replace(stop, outcome=Outcome(value={"of": 1, "done": False, "bytes": 3}, batch=2))
    _, events = play(run, stop)
    assert events[1:] == [log.StreamSealed(call=1, batches=2, size=12)]
    assert attach(run, stop, events) == Attachments(batches=(batch,), seals=(Seal("run_1", 1),))


def test_a_read_that_a_stop_of_its_stream_left_open_ends_without_another_seal() -> None:
    run = streaming()
    run, _ = play(run, step(run, Call(3, "read", {"of": 1}, ""), Stop(1, "m:1")))
    assert [effect.number for effect in owes(run, PerformCall)] == [3]
    stopped = {"of": 1, "done": False, "bytes": 0, "error": {"code": "stopped", "message": "m"}}
    _, events = play(run, step(run, call=3, outcome=stopped))
    assert [log.tag_of(event) for event in events] == ["script.advanced"]


def test_quiet_steps_go_to_the_record_with_the_next_one_or_not_at_all() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "request", {}, "")))
    quiet = step(run, Call(2, "read", {"of": 1}, ""), call=1, outcome={"ok": True})
    batch = Batch("run_1", 1, 1, b"data: x\n\n")
    then = Advance(0, 3, 2, Outcome(value={"of": 1, "done": False, "bytes": 9}, batch=1), (), {}, quiet=(quiet,))
    then = replace(then, attachments=Attachments(batches=(batch,)))
    after, events = play(run, then)
    assert [event.step for event in events if isinstance(event, log.ScriptAdvanced)] == [2, 3]
    assert attach(run, then, events).batches == (batch,)
    assert list(RUN.decide(after, then)) == []
    assert list(RUN.decide(run, replace(then, quiet=()))) == []


def test_an_invalid_event_leaves_the_whole_step_out() -> None:
    bad = step(begun(), Emit({"type": "note.fine"}, ""), Emit({"type": "run.completed"}, ""))
    _, events = play(begun(), bad)
    assert [log.tag_of(event) for event in events] == ["run.failed"]
    assert attach(begun(), bad, events) == Attachments()


def test_the_usage_of_a_run_is_that_of_all_its_attempts_and_an_unknown_price_stays_unknown() -> None:
    known, unknown = Usage(input_tokens=1, cost_micros=5), Usage(input_tokens=2)
    assert total(total(None, known), known) == Usage(input_tokens=2, cost_micros=10)
    assert total(total(None, known), unknown) == Usage(input_tokens=3)
    assert total(total(None, unknown), known) == Usage(input_tokens=3)
    assert total(None, None) is None


# --- the end ---------------------------------------------------------------------------------------


def test_a_cancel_waits_for_the_tools_and_then_ends_the_run_once() -> None:
    run, _ = play(begun(), step(begun(), tool(effect="read")))
    run, events = play(run, Cancel("why", "ann"), Cancel("again", "ann"))
    assert [log.tag_of(event) for event in events] == ["run.cancel_requested"]
    assert [type(effect) for effect in RUN.pending(run)] == [StopWork]
    run, events = play(run, ReportTool(1, 1, ToolResult("cancelled", "half")), StopWaiting())
    assert [log.tag_of(event) for event in events] == ["tool.completed", "run.cancelled"]


def test_a_cancel_that_waited_long_enough_settles_the_tools_itself() -> None:
    run, _ = play(begun(), step(begun(), tool(1), tool(2, "read")), Cancel("why", "ann"))
    _, events = play(run, StopWaiting())
    outcomes = [event.outcome for event in events if isinstance(event, log.ToolCompleted)]
    assert outcomes == ["unknown", "cancelled"]


def test_calls_of_the_last_message_that_never_ran_get_a_result() -> None:
    completed = Emit({"type": "model.completed", "turn": 1, "attempt": 1, "message": MESSAGE}, "")
    _, events = play(begun(), step(begun(), completed), Cancel("why", "ann"))
    [done] = [event for event in events if isinstance(event, log.ToolCompleted)]
    assert (done.call_id, done.outcome, done.call) == ("t1", "cancelled", 0)


def test_the_text_of_the_attempt_under_way_is_kept() -> None:
    acts = [Emit({"type": "model.started", "turn": 1, "attempt": n}, "") for n in (1, 2)]
    deltas = [Emit({"type": "model.delta", "attempt": n, "text": text}, "") for n, text in ((1, "lost"), (2, "kept"))]
    run, _ = play(begun(), step(begun(), acts[0], deltas[0], acts[1], deltas[1]))
    _, events = play(run, Cancel("why", "ann"))
    assert isinstance(events[-1], log.RunCancelled)
    assert events[-1].partial == "kept"


def test_a_deadline_is_a_failure_with_the_name_of_its_setting() -> None:
    _, events = play(begun(), MeetDeadline())
    assert isinstance(events[-1], log.RunFailed)
    assert "limits.deadline_ms" in events[-1].error.message


@pytest.mark.parametrize(
    ("end", "tag"),
    [
        (Ended((), OK, frozenset()), "run.completed"),
        (Ended((), {"output": None, "error": {"code": "x"}}, frozenset()), "run.failed"),
        (Ended((), ["nonsense"], frozenset()), "run.failed"),
        (Raised((), "policy_raised", "no", "m:1", frozenset()), "run.failed"),
    ],
)
def test_a_script_ends_its_run(end: Ended | Raised, tag: str) -> None:
    run, events = play(begun(), step(begun(), end=end))
    assert log.tag_of(events[-1]) == tag
    assert [type(effect) for effect in RUN.pending(run)] == [CloseRun, SettleSession]


def test_a_script_that_ends_in_the_step_that_calls_a_tool_does_not_start_it() -> None:
    _, events = play(begun(), step(begun(), tool(), end=Ended((), OK, frozenset({1}))))
    assert [log.tag_of(event) for event in events] == ["script.advanced", "tool.completed", "run.completed"]


def test_an_ended_run_hears_nothing() -> None:
    run, _ = play(begun(), Fail(Problem(code="x", message="y")))
    late: list[Command] = [Cancel("x", "ann"), Steer("m", SAID), MeetDeadline(), Recover("resume"), TakeUp("fail"), Wake()]
    assert play(run, *late)[1] == []


# --- recovery ----------------------------------------------------------------------------------------


def test_recovery_settles_each_call_by_its_kind() -> None:
    calls = [Call(n, kind, {}, "") for n, kind in ((3, "request"), (4, "sleep"))]
    run, _ = play(begun(), step(begun(), tool(1), tool(2, "read"), *calls))
    run, events = play(run, Recover("resume"))
    assert [log.tag_of(event) for event in events] == ["run.recovery_started", "tool.completed", "tool.started"]
    assert [effect.key for effect in owes(run, PerformCall)] == ["call-2#2.1", "call-4#1.1"]
    assert [(effect.number, effect.result is None) for effect in owes(run, DeliverResult)] == [(1, False), (3, True)]


def test_take_ups_without_progress_are_counted_and_progress_forgets_them() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "sleep", {}, "")))
    for attempt in (1, 2, 3):
        run, events = play(run, Recover("resume"))
        assert events == [log.RecoveryStarted(attempt=attempt)]
    assert log.tag_of(play(run, Recover("resume"))[1][-1]) == "run.failed"
    run, _ = play(run, step(run, call=1, outcome={"ok": True}))
    assert play(run, Recover("resume"))[1] == [log.RecoveryStarted(attempt=1)]


def test_that_a_call_was_lost_is_no_progress() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "request", {}, "")))
    for attempt in (1, 2, 3):
        run, events = play(run, Recover("resume"))
        assert events == [log.RecoveryStarted(attempt=attempt)]
        lost = {"ok": False, "error": {"code": "interrupted"}}
        run, _ = play(run, step(run, Call(attempt + 1, "request", {}, ""), call=attempt, outcome=lost))
    assert log.tag_of(play(run, Recover("resume"))[1][-1]) == "run.failed"
    run, _ = play(run, step(run, call=4, outcome={"ok": True}))
    assert play(run, Recover("resume"))[1] == [log.RecoveryStarted(attempt=1)]


def test_a_start_counts_for_a_run_that_was_only_just_begun() -> None:
    assert play(begun(), Recover("resume"))[1] == []
    run, events = play(begun(), TakeUp("resume"), TakeUp("resume"))
    assert events == [log.RecoveryStarted(attempt=1)]
    assert play(run, Recover("resume"))[1] == [log.RecoveryStarted(attempt=2)]


def test_what_an_earlier_life_did_is_void() -> None:
    run, _ = play(begun(), step(begun(), Call(1, "read", {"of": 1}, "")))
    stale = step(run, call=1, outcome={"ok": True})
    run, _ = play(run, Recover("resume"))
    assert play(run, stale)[1] == []
    assert play(run, Finish(0, 1, Ended((), OK, frozenset())))[1] == []


# --- properties ----------------------------------------------------------------------------------------

EVENTS: list[dict[str, Any]] = [
    {"type": "model.started", "turn": 1, "attempt": 1},
    {"type": "model.delta", "attempt": 1, "text": "abc"},
    {"type": "model.completed", "turn": 1, "attempt": 1, "message": MESSAGE, "usage": {"input_tokens": 1}},
    {"type": "model.discarded", "turn": 1, "attempt": 1, "reason": "x"},
    {"type": "tool.requested", "call_id": "t1", "name": "look", "arguments": {}},
    {"type": "note.seen", "text": "n"},
    {"type": "note.big", "text": "n" * 600},
    {"type": "run.failed"},
]
EMITTED = st.sampled_from(EVENTS)


@st.composite
def steps(draw: st.DrawFn, run: Run) -> Advance:
    taken = 4 * run.steps  # a number is given once, and a step begins at most four calls
    acts: list[Act] = []
    for _ in range(draw(st.integers(0, 4))):
        match draw(st.sampled_from(["emit", "tool", "call", "stop", "answer"])):
            case "emit":
                acts.append(Emit(draw(EMITTED), "m:1"))
            case "tool":
                taken += 1
                acts.append(tool(taken, draw(st.sampled_from(["read", "once", "idempotent", None]))))
            case "call":
                taken += 1
                acts.append(Call(taken, draw(st.sampled_from(["request", "sleep"])), {}, "m:2"))
            case "stop" if taken:
                acts.append(Stop(draw(st.sampled_from([*sorted(run.calls), 1, taken])), "m:3"))
            case _:
                if not any(isinstance(act, Answered) for act in acts):
                    acts.append(Answered("new_messages", [], "m:4"))
    call = draw(st.sampled_from([None, *sorted(run.calls)]))
    end = draw(st.sampled_from([None, None, None, None, Ended((), OK, frozenset())]))
    command = step(run, *acts, call=call, outcome={"ok": True}, end=end)
    stale = draw(st.sampled_from([0, 0, 0, 0, -1]))
    return Advance(
        command.life, command.step + stale, call, command.outcome, command.acts, command.tools, command.handed, end
    )


@st.composite
def commands(draw: st.DrawFn, run: Run) -> Command:
    number = draw(st.sampled_from([1, *sorted(run.calls)]))
    outcome: Any = draw(st.sampled_from(["ok", "failed", "cancelled"]))
    others: list[Command] = [
        Begin(STARTED),
        ReportTool(number, draw(st.integers(1, 2)), ToolResult(outcome, "r")),
        ReportTool(number, 1, ToolResult(outcome, "r", {"code": "c", "message": "m"})),
        Steer(draw(st.sampled_from(["m1", "m2"])), SAID),
        Recover("resume"),
        Wake(),
        TakeUp("resume"),
    ]
    ends: list[Command] = [
        Cancel("r", "ann"),
        MeetDeadline(),
        StopWaiting(),
        Fail(Problem(code="x", message="y")),
        Finish(run.lives, run.steps, Raised((), "policy_raised", "no", None, frozenset())),
    ]
    kind = draw(st.integers(0, 15))
    if kind < 9:
        return draw(steps(run))
    return draw(st.sampled_from(others if kind < 15 else ends))


def assert_sound(run: Run, events: Sequence[log.RunEvent]) -> None:
    assert RUN.fold(events) == run, "the log gives the same run"
    assert [log.decode(*log.encode(event)) for event in events] == list(events)
    keys = [effect.key for effect in RUN.pending(run)]
    assert len(set(keys)) == len(keys)
    seqs = [seq for event in events if (seq := log.seq_of(event)) is not None]
    assert seqs == list(range(1, len(seqs) + 1))
    ends = [n for n, event in enumerate(events) if isinstance(event, TERMINAL)]
    assert ends == ([] if run.end is None else [len(events) - 1])
    once = [event.call for event in events if isinstance(event, log.ToolStarted) and event.effect == "once"]
    assert len(set(once)) == len(once), "never started twice"
    if run.end is not None:
        assert {type(effect) for effect in RUN.pending(run)} == {CloseRun, SettleSession}
        assert run.tools_at_work() == []
        assert run.streams == {}
        assert run.dangling == {}


@settings(max_examples=80)
@given(st.data())
def test_whatever_is_told_to_a_run_it_stays_sound(data: st.DataObject) -> None:
    run = RUN.fold([ADMITTED])
    events: list[log.RunEvent] = [ADMITTED]
    for command in [Begin(STARTED), *[None] * data.draw(st.integers(0, 20))]:
        told = command or data.draw(commands(run))
        new = RUN.decide(run, told)
        run = RUN.fold(new, run)
        events.extend(new)
        assert_sound(run, events)
        if not isinstance(told, Recover):
            assert list(RUN.decide(run, told)) == [], "a repeated command adds nothing"


def test_events_survive_their_encoding_with_what_scripts_put_into_them() -> None:
    acts = (Emit({"type": "tool.requested", "call_id": "a", "name": "n", "arguments": [1, {"x": None}]}, "m:1"),)
    _, events = play(begun(), step(begun(), *acts))
    assert msgspec.json.decode(log.encode(events[1])[2])["arguments"] == [1, {"x": None}]
