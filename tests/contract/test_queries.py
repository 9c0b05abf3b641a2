"""What the queries answer, over both logs; every one about people's data is scoped by owner."""

from typing import Any

import pytest

from eventstore import Event
from eventstore.catalogue import (
    ApprovalRequired,
    ApprovalResolved,
    CancelRequested,
    HistoryGiven,
    MessageReceived,
    ModelCompleted,
    ModelDelta,
    ModelDiscarded,
    ModelStarted,
    Origin,
    Problem,
    RunAdmitted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ScriptAdvanced,
    SessionChanged,
    SessionCreated,
    Step,
    ToolCompleted,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.projections import MOST_COUNTED
from tests.fakes.logs import NOON, Both, record

ERROR = Problem(code="provider_error", message="it broke")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def session(both: Both, session_id: str, owner: str = "ann", **more: Any) -> None:
    record(both.log, f"session-{session_id}", 0, SessionCreated(owner=owner, **more))


def admitted(session_id: str, owner: str = "ann", *inputs: dict[str, Any], **more: Any) -> RunAdmitted:
    return RunAdmitted(session_id=session_id, owner=owner, message_id="m", input=inputs or (user("hello"),), **more)


def run(both: Both, run_id: str, *events: Event, session_id: str = "s", owner: str = "ann") -> None:
    record(both.log, f"run-{run_id}", 0, admitted(session_id, owner), *events)


def texts(both: Both, session_id: str = "s", **more: Any) -> list[str]:
    rows = both.queries.messages(session_id, limit=100, **more)
    return [row.message["content"][0]["text"] if row.role != "tool" else row.message["content"] for row in rows]


def test_a_session_is_what_its_events_say(both: Both) -> None:
    origin = Origin(platform="telegram", account="7", chat="-1", thread="3")
    session(both, "s", title="Weather", origin=origin, parent_session_id="p", metadata={"a": 1}, profile="research")
    record(
        both.log, "session-s", 1, SessionChanged(model="m", provider="p", busy="steer"), TurnStarted(run_id="r"), at=NOON + 5
    )
    run(both, "r")
    row = both.queries.session("ann", "s")
    assert row is not None
    assert (row.session_id, row.owner, row.title, row.origin, row.profile) == ("s", "ann", "Weather", origin, "research")
    assert (row.model, row.provider, row.busy, row.parent_session_id, row.metadata) == ("m", "p", "steer", "p", {"a": 1})
    assert (row.created_at, row.updated_at, row.active_run_id, row.run_count) == (NOON, NOON + 5, "r", 1)
    record(both.log, "session-s", 3, TurnSettled(run_id="r", status="completed"), SessionChanged(title="Rain"), at=NOON + 9)
    row = both.queries.session(None, "s")
    assert row is not None
    assert (row.title, row.model, row.busy, row.active_run_id, row.updated_at) == ("Rain", "m", "steer", None, NOON + 9)


def test_nobody_sees_what_belongs_to_another(both: Both) -> None:
    for owner in ("ann", "bob"):
        session(both, f"s-{owner}", owner)
        run(both, f"r-{owner}", session_id=f"s-{owner}", owner=owner)
        message = MessageReceived(message_id="m", run_id=f"r-{owner}", input=(), key="k", fingerprint=owner)
        record(both.log, f"session-s-{owner}", 1, message)
    queries = both.queries
    assert (queries.session("ann", "s-bob"), queries.run("ann", "r-bob")) == (None, None)
    assert [row.session_id for row in queries.sessions("ann", limit=9)] == ["s-ann"]
    assert [row.run_id for row in queries.runs("ann", limit=9)] == ["r-ann"]
    assert queries.runs("ann", limit=9, session_id="s-bob") == []
    assert [row.run_id for row in queries.runs(None, limit=9)] == ["r-bob", "r-ann"]
    keys = [queries.key(owner, "k") for owner in ("ann", "bob", "eve")]
    assert [key and key.fingerprint for key in keys] == ["ann", "bob", None]


def test_unknown_ids_are_nothing(both: Both) -> None:
    queries = both.queries
    assert (queries.session(None, "x"), queries.run(None, "x"), queries.key("ann", "x")) == (None, None, None)
    found: list[Any] = [queries.messages("x", limit=5), queries.events("x"), queries.log(stream="run-x"), queries.log()]
    found += [queries.sessions(None, limit=5, after="x"), queries.runs(None, limit=5, after="x"), queries.usage(None)]
    assert [*found, list(queries.unfinished())] == [[]] * 8


def test_lists_are_newest_first_and_paged(both: Both) -> None:
    for number in range(7):
        session(both, str(number), ephemeral=number == 3)
        run(both, str(number), *([RunStarted(seq=1, session_id="x")] if number % 2 else []), session_id=str(number))
    queries = both.queries
    first = [row.session_id for row in queries.sessions(None, limit=3)]
    assert (first, [row.session_id for row in queries.sessions(None, limit=9, after=first[-1])]) == (
        ["6", "5", "4"],
        ["2", "1", "0"],
    )
    assert [row.session_id for row in queries.sessions(None, limit=2, after="4", include_ephemeral=True)] == ["3", "2"]
    assert [row.run_id for row in queries.runs(None, limit=2, status="running")] == ["5", "3"]
    assert [row.run_id for row in queries.runs(None, limit=2, status="running", after="3")] == ["1"]
    assert [row.run_id for row in queries.runs(None, limit=9, session_id="2")] == ["2"]
    assert [row.run_id for row in queries.unfinished()] == [str(number) for number in range(7)]
    assert queries.sessions(None, limit=0) == []


def test_sessions_can_be_asked_for_by_platform(both: Both) -> None:
    session(both, "1", origin=Origin(platform="telegram"))
    session(both, "2")
    assert [row.session_id for row in both.queries.sessions("ann", limit=9, platform="telegram")] == ["1"]


def statuses(both: Both, *events: Event) -> list[str]:
    session(both, "s")
    record(both.log, "run-r", 0, admitted("s"))
    found = []
    for version, event in enumerate(events, 1):
        record(both.log, "run-r", version, event, at=NOON + version)
        row = both.queries.run("ann", "r")
        found.append(row.status if row else "")
    return found


def test_a_run_waits_while_an_approval_is_open(both: Both) -> None:
    required: dict[str, Any] = {"call": 1, "call_id": "c", "name": "n", "arguments": {}, "risk": "read", "expires_at": 0}
    events: list[Event] = [
        RunStarted(seq=1, session_id="s"),
        ApprovalRequired(seq=2, approval_id="a", **required),
        ApprovalRequired(seq=3, approval_id="b", **required),
        ApprovalResolved(seq=4, approval_id="a", resolution="denied"),
        ApprovalResolved(seq=5, approval_id="b", resolution="approved"),
    ]
    assert statuses(both, *events) == ["running", "waiting", "waiting", "waiting", "running"]


def test_a_completed_run_has_its_output(both: Both) -> None:
    end = RunCompleted(seq=2, output=assistant("hi"), finish_reason="length")
    assert statuses(both, RunStarted(seq=1, session_id="s", model="m", provider="p"), end)[-1] == "completed"
    row = both.queries.run("ann", "r")
    assert row is not None
    assert (row.output, row.finish_reason, row.error, row.cancel_reason) == (assistant("hi"), "length", None, None)
    assert (row.created_at, row.started_at, row.finished_at, row.last_seq) == (NOON, NOON + 1, NOON + 2, 2)
    assert (row.model, row.provider, row.session_id, row.platform) == ("m", "p", "s", "http")
    assert list(both.queries.unfinished()) == []


def test_a_failed_run_has_its_error(both: Both) -> None:
    assert statuses(both, RunFailed(seq=1, error=ERROR))[-1] == "failed"
    row = both.queries.run("ann", "r")
    assert row is not None
    assert (row.error, row.output, row.started_at) == (ERROR, None, None)


def test_a_cancelled_run_has_its_reason(both: Both) -> None:
    assert statuses(both, CancelRequested(reason="user"), RunCancelled(seq=1, reason="deadline")) == ["queued", "cancelled"]
    row = both.queries.run("ann", "r")
    assert row is not None
    assert row.cancel_reason == "deadline"


def test_a_transcript_holds_each_message_where_it_joined_the_session(both: Both) -> None:
    session(both, "s")
    record(both.log, "session-s", 1, HistoryGiven(messages=(user("old"), assistant("older"))))
    record(both.log, "run-a", 0, admitted("s", "ann", user("one"), user("two")))
    record(both.log, "run-b", 0, admitted("s", "ann", user("three")))
    assert texts(both) == ["old", "older"]
    steered = Step(act="answer", kind="new_messages", value=[user("also")])
    events: list[Event] = [
        RunStarted(seq=1, session_id="s"),
        ModelStarted(seq=2, turn=1, attempt=1),
        ModelDelta(seq=3, attempt=1, text="call"),
        ModelCompleted(seq=4, turn=1, attempt=1, message=assistant("calling")),
        ToolCompleted(seq=5, call=1, call_id="c", name="ls", outcome="ok", content="files"),
        ScriptAdvanced(step=2, acts=(steered,)),
        RunCancelled(seq=6, reason="user", partial="half"),
    ]
    record(both.log, "run-a", 1, *events, at=NOON + 7)
    before = both.queries.log(limit=100)[-1].position
    record(both.log, "run-b", 1, RunStarted(seq=1, session_id="s"))
    assert texts(both) == ["old", "older", "one", "two", "calling", "files", "also", "half", "three"]
    assert texts(both, until=before) == ["old", "older", "one", "two", "calling", "files", "also", "half"]
    assert texts(both, after=7) == ["half", "three"]
    rows = both.queries.messages("s", limit=3, after=1)
    assert [(row.ordinal, row.run_id, row.role, row.at) for row in rows] == [
        (2, None, "assistant", NOON),
        (3, "a", "user", NOON + 7),
        (4, "a", "user", NOON + 7),
    ]


def test_usage_is_summed_by_day_provider_and_model_and_unknown_prices_are_counted(both: Both) -> None:
    session(both, "s")
    used = Usage(input_tokens=100, output_tokens=10, cached_tokens=50, reasoning_tokens=5, cost_micros=7, price={"input": 1})
    run(
        both,
        "r",
        RunStarted(seq=1, session_id="s", provider="p", model="m"),
        ModelDiscarded(seq=2, turn=1, attempt=1, reason="cut", usage=used),
        ModelDiscarded(seq=3, turn=1, attempt=2, reason="refused"),
        ModelCompleted(seq=4, turn=1, attempt=3, message=assistant("hi"), usage=used),
        ModelStarted(seq=5, turn=2, attempt=4, provider="q"),
        ModelCompleted(seq=6, turn=2, attempt=4, message=assistant("ho"), usage=Usage(output_tokens=1), model="n"),
    )
    first, second = both.queries.usage("ann")
    assert first == {
        "day": "2030-03-17",
        "provider": "p",
        "model": "m",
        "attempts": 3,
        "input_tokens": 200,
        "output_tokens": 20,
        "cached_tokens": 100,
        "cache_write_tokens": 0,
        "reasoning_tokens": 10,
        "cost_micros": 14,
        "unpriced": 1,
    }
    assert (second["provider"], second["model"], second["cost_micros"], second["unpriced"]) == ("q", "n", None, 1)
    assert both.queries.usage("bob") == both.queries.usage(None, since=NOON + 1) == []
    row, owner = both.queries.run("ann", "r"), both.queries.session("ann", "s")
    assert row is not None
    assert owner is not None
    total = Usage(input_tokens=200, output_tokens=21, cached_tokens=100, reasoning_tokens=10)
    assert (row.usage, owner.usage) == (total, total)
    assert row.model == "n"


@pytest.mark.parametrize("said", [2**62, 2**63, 2**200, -(2**62), -(2**70)])
def test_whatever_a_provider_says_that_it_used_can_be_summed(both: Both, said: int) -> None:
    record(both.log, "session-1", 0, SessionCreated(owner="ann"))
    record(both.log, "run-1", 0, RunAdmitted(session_id="1", owner="ann", message_id="m", input=()))
    usage = Usage(input_tokens=said, cost_micros=said)
    for seq in range(1, 9):
        record(both.log, "run-1", seq, ModelCompleted(seq=seq, turn=1, attempt=seq, message={}, usage=usage))
    most = 8 * MOST_COUNTED if said > 0 else 0
    (row,) = both.queries.usage("ann")
    assert (row["input_tokens"], row["cost_micros"], row["attempts"]) == (most, most, 8)
    run = both.queries.run("ann", "1")
    assert run is not None
    assert (run.usage.input_tokens, run.usage.cost_micros) == (most, most)


def test_events_of_a_run_are_paged_by_seq_and_filtered_by_type(both: Both) -> None:
    session(both, "s")
    deltas = (ModelDelta(seq=seq, attempt=1, text=str(seq)) for seq in range(2, 400))
    run(both, "r", RunStarted(seq=1, session_id="s"), *deltas, ScriptAdvanced(step=1), RunCompleted(seq=400, output={}))
    queries = both.queries
    assert [e.seq for e in queries.events("r", after=397)] == [398, 399, 400]
    assert [e.seq for e in queries.events("r", limit=2)] == [1, 2]
    assert len(queries.events("r", limit=1000)) == 256
    assert [e.seq for e in queries.events("r", types=frozenset({"run.started", "run.completed"}))] == [1, 400]
    assert queries.events("r", after=400) == queries.events("r", after=10**12) == []
    assert queries.events("r", types=frozenset({"script.advanced"})) == []


def test_the_whole_log_is_paged_by_position_journal_included(both: Both) -> None:
    session(both, "s")
    run(both, "r", ScriptAdvanced(step=1), RunStarted(seq=1, session_id="s"))
    assert [(e.position, e.stream) for e in both.queries.log(limit=2)] == [(1, "session-s"), (2, "run-r")]
    assert [e.position for e in both.queries.log(after=2)] == [3, 4]
    assert [e.position for e in both.queries.log(stream="run-r", after=2, limit=1)] == [3]


def test_counts_follow_the_runs_status(both: Both) -> None:
    session(both, "s")
    run(both, "a")
    run(both, "b", RunStarted(seq=1, session_id="s"))
    record(both.log, "run-b", 2, RunCompleted(seq=2, output={}))
    counts = both.queries.counts()
    wanted = {"sessions": 1, "runs.queued": 1, "runs.running": 0, "runs.completed": 1, "events": 5}
    assert {name: counts.get(name, 0) for name in wanted} == wanted


def test_projections_made_anew_say_the_same(both: Both) -> None:
    session(both, "s")
    run(both, "a", RunStarted(seq=1, session_id="s"), RunCompleted(seq=2, output=assistant("hi")))
    before = (both.queries.session("ann", "s"), both.queries.run("ann", "a"), texts(both))
    both.log.rebuild()
    assert (both.queries.session("ann", "s"), both.queries.run("ann", "a"), texts(both)) == before


@pytest.mark.parametrize("odd", ["\ud835", "nul \0", "x" * 10_000, "' or 1 = 1 --", ""])
def test_odd_ids_are_unknown_ids(both: Both, odd: str) -> None:
    session(both, "s")
    run(both, "r")
    queries = both.queries
    assert (queries.session("ann", odd), queries.run("ann", odd), queries.key("ann", odd)) == (None, None, None)
    assert (queries.session(odd, "s"), queries.run(odd, "r"), queries.events(odd)) == (None, None, [])
    found = [queries.sessions(odd, limit=5), queries.sessions("ann", limit=5, after=odd, platform=odd)]
    assert found == [[], []]
    assert (queries.runs(None, limit=5, status=odd), queries.messages(odd, limit=5)) == ([], [])


@pytest.mark.parametrize("after", [2**63 - 1, 2**63, 10**40])
def test_a_cursor_beyond_every_integer_is_beyond_the_end(both: Both, after: int) -> None:
    session(both, "s")
    run(both, "r", RunStarted(seq=1, session_id="s"))
    queries = both.queries
    assert (queries.events("r", after=after), queries.log(after=after), queries.messages("s", limit=5, after=after)) == (
        [],
        [],
        [],
    )
    assert [e.seq for e in queries.events("r", after=-after)] == [1]
    assert len(queries.messages("s", limit=after, until=after)) == 1
    assert queries.usage(None, since=after) == []
