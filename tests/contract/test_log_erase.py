"""Every log erases a session in the same way: what it said is gone, what others said stays, and the log tells of it."""

import pytest

from eventstore import Append, StreamPart
from eventstore.catalogue import (
    Erased,
    MessageReceived,
    ModelCompleted,
    NoteTaken,
    RunAdmitted,
    RunCompleted,
    RunStarted,
    SessionCreated,
    SessionErased,
    TurnSettled,
    TurnStarted,
    Usage,
)
from eventstore.errors import SessionBusy, SessionMissing, VersionConflict
from eventstore.log import REMOVALS, Batch, Envelope, NamedBlob, Seal
from tests.fakes.logs import NOON, Both, commit, record, send

LONG = "a long text, said by everybody\n" * 400


def message(text: str, role: str = "user") -> dict[str, object]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def converse(both: Both, name: str, text: str = "hello", *, owner: str = "ann") -> None:
    """Record a session with one whole run; both have the same name."""
    session, run = f"session-{name}", f"run-{name}"
    received = MessageReceived(message_id="m", run_id=name, input=(message(text),), key=f"k{name}", fingerprint="f")
    admitted = RunAdmitted(session_id=name, owner=owner, message_id="m", input=(message(text),))
    opening = StreamPart(session, 0, (SessionCreated(owner=owner, title=text), received, TurnStarted(run_id=name)))
    started = RunStarted(seq=1, session_id=name, provider="p", model="m")
    commit(both.log, Append((opening, StreamPart(run, 0, (admitted, started))), NOON, session))
    raw = f"data: {text}\n\n".encode()
    shared = NamedBlob("policy:1", b"a policy")
    commit(both.log, Append((), NOON, run, batches=(Batch(name, 1, 1, raw), Batch(name, 2, 1, raw)), blobs=(shared,)))
    used = Usage(input_tokens=3, cost_micros=5)
    answered = ModelCompleted(seq=2, turn=1, attempt=1, message=message(text, "assistant"), usage=used)
    end = (answered, RunCompleted(seq=3, output=message(text, "assistant")))
    commit(both.log, Append((StreamPart(run, 2, end),), NOON, run, seals=(Seal(name, 1),)))
    record(both.log, session, 3, TurnSettled(run_id=name, status="completed"))


def everything(both: Both) -> list[Envelope]:
    return both.queries.log(limit=256)


def test_an_erased_session_is_nowhere(both: Both) -> None:
    converse(both, "1", LONG)
    both.log.erase("1", "asked for", NOON + 1)
    queries = both.queries
    assert (queries.session(None, "1"), queries.sessions(None, limit=9), queries.messages("1", limit=9)) == (None, [], [])
    assert (queries.run(None, "1"), queries.runs(None, limit=9), queries.events("1")) == (None, [], [])
    assert (queries.key("ann", "k1"), list(queries.unfinished())) == (None, [])
    assert list(both.log.read("run-1")) == []
    assert [list(both.log.batches("1", call)) for call in (1, 2)] == [[], []]
    assert (queries.counts().get("sessions", 0), queries.counts().get("runs.completed", 0)) == (0, 0)


def test_the_log_tells_what_was_erased_and_why(both: Both) -> None:
    heard: list[Envelope] = []
    converse(both, "1")
    record(both.log, "session-2", 0, SessionCreated(owner="bob"))
    leave = both.log.subscribe(heard.extend)
    told = both.log.erase("1", "asked for", NOON + 1)
    assert [(one.stream, one.version, one.position, one.at) for one in told] == [
        ("session-1", 5, 10, NOON + 1),
        (REMOVALS, 1, 11, NOON + 1),
    ]
    gone, explained = (one.event for one in told)
    assert gone == SessionErased(reason="asked for")
    assert isinstance(explained, Erased)
    assert (explained.positions, explained.reason) == (tuple(range(1, 9)), "asked for")
    assert (tuple(heard), everything(both)[1:], list(both.log.read("session-1"))) == (told, list(told), [told[0]])
    leave()


def test_what_others_said_stays_as_it_was(both: Both) -> None:
    for name in ("1", "2"):
        converse(both, name, LONG)
    both.log.erase("1", "asked for", NOON)
    assert [row.message for row in both.queries.messages("2", limit=9)] == [message(LONG), message(LONG, "assistant")]
    assert len(both.queries.events("2")) == 3
    assert [b"".join(both.log.batches("2", call)) for call in (1, 2)] == [f"data: {LONG}\n\n".encode()] * 2
    assert both.log.blob("policy:1") == b"a policy"
    assert both.queries.key("ann", "k2") is not None


def test_the_owner_keeps_the_sums_of_what_was_used(both: Both) -> None:
    converse(both, "1")
    converse(both, "2", owner="bob")
    before = [both.queries.usage(owner) for owner in (None, "ann", "bob")]
    both.log.erase("1", "asked for", NOON + 90_000_000_000)
    assert [both.queries.usage(owner) for owner in (None, "ann", "bob")] == before
    both.log.rebuild()
    assert [both.queries.usage(owner) for owner in (None, "ann", "bob")] == before


def test_a_session_with_a_run_that_has_not_ended_is_not_erased(both: Both) -> None:
    record(both.log, "session-1", 0, SessionCreated(owner="ann"))
    record(both.log, "run-1", 0, RunAdmitted(session_id="1", owner="ann", message_id="m", input=()))
    before = everything(both)
    with pytest.raises(SessionBusy):
        both.log.erase("1", "asked for", NOON)
    assert everything(both) == before


def test_a_session_that_has_not_heard_of_its_runs_end_is_not_erased(both: Both) -> None:
    record(both.log, "session-1", 0, SessionCreated(owner="ann"), TurnStarted(run_id="1"))
    with pytest.raises(SessionBusy):
        both.log.erase("1", "asked for", NOON)
    record(both.log, "session-1", 2, TurnSettled(run_id="1", status="completed"))
    both.log.erase("1", "asked for", NOON)


def test_what_does_not_exist_or_not_any_more_is_not_erased(both: Both) -> None:
    converse(both, "1")
    both.log.erase("1", "asked for", NOON)
    before = everything(both)
    for name in ("1", "9", "\ud835"):
        with pytest.raises(SessionMissing):
            both.log.erase(name, "asked for", NOON)
    assert everything(both) == before


def test_whoever_did_not_hear_of_the_erasure_cannot_append(both: Both) -> None:
    converse(both, "1")
    both.log.erase("1", "asked for", NOON)
    with pytest.raises(VersionConflict):
        record(both.log, "session-1", 4, TurnStarted(run_id="1"))
    with pytest.raises(VersionConflict):
        record(both.log, "run-1", 0, NoteTaken(kind="late"))


def test_an_idempotency_key_of_an_erased_session_is_free_again(both: Both) -> None:
    converse(both, "1")
    both.log.erase("1", "asked for", NOON)
    received = MessageReceived(message_id="m", run_id="2", input=(), key="k1", fingerprint="g")
    record(both.log, "session-2", 0, SessionCreated(owner="ann"), received)
    found = both.queries.key("ann", "k1")
    assert found is not None
    assert found.session_id == "2"


def test_erasures_are_numbered_in_a_stream_of_their_own(both: Both) -> None:
    for name in ("1", "2", "3"):
        converse(both, name)
        both.log.erase(name, f"for {name}", NOON)
    told = [one.event for one in both.log.read(REMOVALS)]
    assert [one.reason for one in told if isinstance(one, Erased)] == ["for 1", "for 2", "for 3"]
    assert [one.version for one in both.log.read(REMOVALS)] == [1, 2, 3]


def test_appends_before_and_after_an_erasure_are_all_kept(both: Both) -> None:
    converse(both, "1")
    for number in range(3):
        send(both.log, Append((StreamPart("run-9", number, (NoteTaken(kind=str(number)),)),), NOON, "a"))
        if number == 1:
            both.log.erase("1", "asked for", NOON)
    assert [one.version for one in both.log.read("run-9")] == [1, 2, 3]
    both.log.rebuild()
    assert both.queries.session(None, "1") is None
