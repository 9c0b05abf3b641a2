"""Whatever is done to both logs, they say the same; the chain holds, and projections can be made anew."""

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eventstore import Append, Committed, Event, Failed, Redactor, StreamPart, Unwritten
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
    NoteTaken,
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
from eventstore.log import REMOVALS, Batch, NamedBlob, Seal
from eventstore.memory import MemoryLog
from eventstore.sqlite import SqliteLog, SqliteQueries
from tests.contract.tables import dump
from tests.fakes.logs import NOON, SECRET, Both, send

DAY = 86_400_000_000
IDS = st.sampled_from(["1", "2"])
OWNERS = st.sampled_from(["ann", "bob"])
TEXTS = st.sampled_from(["", "hello", "x" * 9000, f"it is {SECRET}", "\ud835", "nul \0"])
USAGES = st.sampled_from([None, Usage(input_tokens=3, cost_micros=7), Usage(output_tokens=2, price={"input": 1})])
MESSAGES = TEXTS.map(lambda text: {"role": "user", "content": [{"type": "text", "text": text}]})
SESSION_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        SessionCreated,
        owner=OWNERS,
        origin=st.sampled_from([Origin(), Origin(platform="telegram", chat="5")]),
        title=st.none() | TEXTS,
        ephemeral=st.booleans(),
        metadata=st.sampled_from([{}, {"a": 1}]),
    ),
    st.builds(
        SessionChanged, title=st.none() | TEXTS, model=st.sampled_from([None, "m"]), busy=st.sampled_from([None, "steer"])
    ),
    st.builds(HistoryGiven, messages=st.lists(MESSAGES, max_size=3).map(tuple)),
    st.builds(
        MessageReceived,
        message_id=st.just("m"),
        run_id=IDS,
        input=st.tuples(MESSAGES),
        key=st.sampled_from([None, "k1", "k2"]),
        fingerprint=st.sampled_from([None, "f"]),
    ),
    st.builds(TurnStarted, run_id=IDS),
    st.builds(TurnSettled, run_id=IDS, status=st.just("completed")),
)


def of_run(seq: int) -> st.SearchStrategy[Event]:
    next_seq = st.sampled_from([seq + 1, seq + 1, seq + 1, seq])
    error = st.just(Problem(code="c", message="m"))
    attempt: dict[str, Any] = {"seq": next_seq, "turn": st.just(1), "attempt": st.just(1)}
    approval: dict[str, Any] = {"seq": next_seq, "approval_id": st.just("a")}
    call: dict[str, Any] = {"call": st.just(1), "call_id": st.just("c"), "name": st.just("n")}
    return st.one_of(
        st.builds(
            RunAdmitted,
            session_id=IDS,
            owner=OWNERS,
            message_id=st.just("m"),
            input=st.lists(MESSAGES, max_size=2).map(tuple),
            model=st.sampled_from([None, "m"]),
            metadata=st.sampled_from([{}, {"a": 1}]),
        ),
        st.builds(RunStarted, seq=next_seq, session_id=IDS, provider=st.sampled_from([None, "p"])),
        st.builds(ModelStarted, **attempt, model=st.sampled_from([None, "m2"])),
        st.builds(ModelDelta, seq=next_seq, attempt=st.just(1), text=TEXTS),
        st.builds(ModelCompleted, **attempt, message=MESSAGES, usage=USAGES, model=st.sampled_from([None, "m3"])),
        st.builds(ModelDiscarded, **attempt, reason=st.just("r"), usage=USAGES),
        st.builds(ApprovalRequired, **approval, **call, arguments=TEXTS, risk=st.just("read"), expires_at=st.just(1)),
        st.builds(ApprovalResolved, **approval, resolution=st.just("denied")),
        st.builds(ToolCompleted, seq=next_seq, **call, outcome=st.sampled_from(["ok", "failed"]), content=TEXTS),
        st.builds(ScriptAdvanced, step=st.just(1), acts=st.tuples(MESSAGES.map(steered))),
        st.builds(NoteTaken, kind=TEXTS, data=st.dictionaries(TEXTS, TEXTS, max_size=2)),
        st.builds(CancelRequested, reason=TEXTS),
        st.builds(RunCompleted, seq=next_seq, output=MESSAGES),
        st.builds(RunCancelled, seq=next_seq, reason=TEXTS, partial=TEXTS),
        st.builds(RunFailed, seq=next_seq, error=error, partial=TEXTS),
    )


def steered(message: dict[str, Any]) -> Step:
    return Step(act="answer", kind="new_messages", value=[message])


class LogsAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        memory = MemoryLog(redactor=Redactor([SECRET]))
        self.sqlite = SqliteLog(Path(self.folder.name) / "deedbox.db", redactor=Redactor([SECRET]))
        self.both = (Both(memory, memory.queries), Both(self.sqlite, SqliteQueries(self.sqlite.reader)))
        self.versions = dict.fromkeys(("session-1", "session-2", "run-1", "run-2"), 0)
        self.seqs = dict.fromkeys(self.versions, 0)
        self.now = NOON

    def teardown(self) -> None:
        before = dump(self.sqlite)
        for one in self.both:
            answers = self.answers(one)
            one.log.rebuild()
            assert self.answers(one) == answers
        assert dump(self.sqlite) == before
        assert self.sqlite.check() is None
        for one in self.both:
            one.log.close()
        self.folder.cleanup()

    @rule(data=st.data(), stale=st.integers(0, 9))
    def append(self, data: st.DataObject, stale: int) -> None:
        streams = data.draw(st.lists(st.sampled_from([*self.versions]), min_size=1, max_size=3, unique=True))
        parts = []
        for stream in streams:
            events = SESSION_EVENTS if stream.startswith("session") else of_run(self.seqs[stream])
            chosen = tuple(data.draw(st.lists(events, max_size=3)))
            parts.append(StreamPart(stream, self.versions[stream] + (stale == 9), chosen))
        self.send(Append(tuple(parts), self.now, data.draw(st.sampled_from([streams[0], "actor"])), correlation="c"))

    @rule(run=IDS, call=st.integers(1, 2), number=st.integers(1, 4), raw=TEXTS)
    def write_a_batch(self, run: str, call: int, number: int, raw: str) -> None:
        self.send(Append((), self.now, "a", batches=(Batch(run, call, number, raw.encode(errors="replace")),)))

    @rule(run=IDS, call=st.integers(1, 2))
    def seal(self, run: str, call: int) -> None:
        self.send(Append((), self.now, "a", seals=(Seal(run, call),)))

    @rule(name=IDS, data=TEXTS)
    def name_a_blob(self, name: str, data: str) -> None:
        self.send(Append((), self.now, "a", blobs=(NamedBlob(name, data.encode(errors="replace")),)))

    @rule(session=IDS)
    def erase(self, session: str) -> None:
        answers: list[list[Any]] = []
        for one in self.both:
            try:
                answers.append(list(one.log.erase(session, f"for {SECRET}", self.now)))
            except Unwritten as exc:
                answers.append([exc.code])
        assert answers[0] == answers[1]
        self.versions[f"session-{session}"] += len(answers[0]) > 1

    @rule()
    def sleep_until_tomorrow(self) -> None:
        self.now += DAY

    @rule()
    def rebuild(self) -> None:
        for one in self.both:
            one.log.rebuild()

    @invariant()
    def they_say_the_same(self) -> None:
        memory, sqlite = (self.answers(one) for one in self.both)
        assert memory == sqlite

    def send(self, request: Append) -> None:
        one, other = (send(both.log, request) for both in self.both)
        match one, other:
            case Committed(), Committed():
                assert one == other
                for envelope in one.envelopes:
                    self.versions[envelope.stream] = envelope.version
                    self.seqs[envelope.stream] = envelope.seq or self.seqs[envelope.stream]
            case Failed(mine), Failed(others):
                # Which of several reasons is named first is left to each.
                assert (isinstance(mine, Unwritten), isinstance(others, Unwritten)) == (True, True)
            case _:
                raise AssertionError((one, other))

    def answers(self, one: Both) -> list[Any]:
        log, queries = one.log, one.queries
        found: list[Any] = [list(log.read(stream)) for stream in (*self.versions, REMOVALS)]
        found += [list(log.batches(run, call)) for run in "12" for call in (1, 2)] + [log.blob(name) for name in "12"]
        found += [queries.log(limit=100), queries.usage(None), queries.usage("ann", since=NOON + DAY)]
        for run in "12":
            found += [queries.run(None, run), queries.run("ann", run), queries.events(run, after=1, limit=3)]
            found += [queries.session(None, run), queries.session("bob", run), queries.messages(run, limit=4, after=1)]
            found += [queries.messages(run, limit=100, until=3), queries.key("ann", f"k{run}")]
        sessions = queries.sessions(None, limit=9, include_ephemeral=True)
        sessions += queries.sessions("ann", limit=9, platform="http")
        runs = [*queries.runs("bob", limit=9), *queries.runs(None, limit=9, status="running"), *queries.unfinished()]
        counts = {name: count for name, count in queries.counts().items() if count and name != "database_bytes"}
        return [*found, by_id(sessions), by_id(runs), counts]


def by_id(rows: list[Any]) -> list[Any]:
    """Two rows of one kind may be made in another order than their streams, which no server does."""
    return sorted(rows, key=repr)


TestLogsAgree = LogsAgree.TestCase
TestLogsAgree.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
