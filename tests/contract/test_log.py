"""The contract of every log, in examples; `test_log_agreement.py` has it as a machine."""

import threading
from collections.abc import Callable

import pytest

from eventstore import Append, Committed, Envelope, Event, Failed, StoreError, StreamPart, Unwritten, VersionConflict
from eventstore.catalogue import (
    MessageReceived,
    ModelDelta,
    NoteTaken,
    RecoveryStarted,
    RunAdmitted,
    RunStarted,
    SessionCreated,
    ToolOutput,
)
from eventstore.errors import KeyTaken, StoreBusy
from eventstore.log import Answer, Batch, NamedBlob, Seal
from tests.fakes.logs import NOON, SECRET, Both, commit, record, send

NOTE: Event = NoteTaken(kind="a")
TAKEN: Event = RecoveryStarted(attempt=1)


def append(*parts: StreamPart) -> Append:
    return Append(parts, NOON, "test")


def batch(number: int, raw: bytes, call: int = 1) -> Batch:
    return Batch("1", call, number, raw)


def test_events_come_back_in_the_order_they_went_in(both: Both) -> None:
    record(both.log, "run-1", 0, NOTE, TAKEN)
    assert [(e.position, e.version, e.event) for e in both.log.read("run-1")] == [(1, 1, NOTE), (2, 2, TAKEN)]
    assert [e.version for e in both.log.read("run-1", after=1)] == [2]
    assert list(both.log.read("run-1", after=2)) == []
    assert list(both.log.read("run-none")) == []


def test_what_is_read_is_what_was_answered(both: Both) -> None:
    event = RunStarted(seq=1, session_id="s", capabilities={"n": 1.5, "big": 2**70, "text": "a\0é😀"})
    request = Append((StreamPart("run-1", 0, (event,)),), NOON + 1, "somebody", causation="c", correlation="k")
    expected = Envelope(1, "run-1", 1, 1, NOON + 1, "somebody", event, "c", "k")
    assert commit(both.log, request) == (expected,)
    assert list(both.log.read("run-1")) == [expected]


def test_a_stale_writer_is_told_and_writes_nothing(both: Both) -> None:
    record(both.log, "run-1", 0, NOTE)
    with pytest.raises(VersionConflict, match="'run-1' is at version 1, not 0"):
        record(both.log, "run-1", 0, NOTE, TAKEN)
    with pytest.raises(VersionConflict, match="'run-2' is at version 0, not 3"):
        record(both.log, "run-2", 3, NOTE)
    assert [e.version for e in both.log.read("run-1")] == [1]
    assert list(both.log.read("run-2")) == []


def test_an_append_over_several_streams_is_written_whole_or_not_at_all(both: Both) -> None:
    parts = StreamPart("session-1", 0, (NOTE,)), StreamPart("run-1", 0, (NOTE, TAKEN))
    assert [e.stream for e in commit(both.log, append(*parts))] == ["session-1", "run-1", "run-1"]
    with pytest.raises(VersionConflict):
        commit(both.log, append(StreamPart("session-1", 1, (TAKEN,)), StreamPart("run-1", 0, (TAKEN,))))
    assert [e.version for e in both.log.read("session-1")] == [1]
    assert [e.position for e in record(both.log, "session-1", 1, TAKEN)] == [4]


def test_one_stream_may_have_two_parts(both: Both) -> None:
    commit(both.log, append(StreamPart("run-1", 0, (NOTE,)), StreamPart("run-1", 1, (TAKEN,))))
    assert [e.event for e in both.log.read("run-1")] == [NOTE, TAKEN]


def test_an_empty_append_is_answered(both: Both) -> None:
    assert send(both.log, append()) == Committed(())
    assert send(both.log, append(StreamPart("run-1", 0, ()))) == Committed(())
    assert isinstance(send(both.log, append(StreamPart("run-1", 2, ()))), Failed)


def test_a_seq_is_never_given_twice(both: Both) -> None:
    record(both.log, "run-1", 0, RunStarted(seq=1, session_id="s"))
    for seqs in ([1], [2, 2]):
        with pytest.raises(Unwritten, match=r"cannot follow"):
            record(both.log, "run-1", 1, *(ModelDelta(seq=seq, attempt=1) for seq in seqs))
    record(both.log, "run-1", 1, ModelDelta(seq=2, attempt=1))


def test_a_conflict_in_one_request_fails_that_request_alone(both: Both) -> None:
    gate, answers, done = threading.Event(), dict[str, Answer](), threading.Event()

    def hold(_: Answer) -> None:
        gate.wait(10)

    def keep(name: str) -> Callable[[Answer], None]:
        def answer(given: Answer) -> None:
            answers[name] = given
            if len(answers) == 3:
                done.set()

        return answer

    both.log.append(append(StreamPart("run-0", 0, (NOTE,))), hold)
    for name, expected in (("a", 0), ("b", 7), ("c", 0)):
        both.log.append(append(StreamPart(f"run-{name}", expected, (NOTE,))), keep(name))
    gate.set()
    assert done.wait(10)
    assert [type(answers[name]) for name in "abc"] == [Committed, Failed, Committed]
    assert list(both.log.read("run-b")) == []
    assert [e.position for name in "ac" for e in both.log.read(f"run-{name}")] == [2, 3]


def test_commits_are_published_in_order_after_they_are_durable(both: Both) -> None:
    heard: list[tuple[int, bool, str]] = []

    def listen(envelopes: tuple[Envelope, ...]) -> None:
        for one in envelopes:
            readable = one in list(both.log.read(one.stream))
            heard.append((one.position, readable, threading.current_thread().name))

    leave = both.log.subscribe(listen)
    for version in range(3):
        record(both.log, "run-1", version, ToolOutput(seq=version + 1, call=1, call_id="c", text=f"x {SECRET}"))
    send(both.log, append(StreamPart("run-1", 9, (NOTE,))))
    leave()
    record(both.log, "run-1", 3, NOTE)
    both.log.close()
    assert [(position, readable) for position, readable, _ in heard] == [(1, True), (2, True), (3, True)]
    assert {name for _, _, name in heard} == {"eventstore-writer"}


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit])
def test_a_callback_that_raises_harms_nobody(
    both: Both, caplog: pytest.LogCaptureFixture, fault: type[BaseException]
) -> None:
    def broken(_: object) -> None:
        raise fault

    both.log.subscribe(broken)
    both.log.append(append(StreamPart("run-1", 0, (NOTE,))), broken)
    assert [e.version for e in record(both.log, "run-1", 1, NOTE)] == [2]
    assert "a callback of the log raised" in caplog.text


def test_a_full_queue_refuses_and_recovers(both: Both) -> None:
    gate, held = threading.Event(), threading.Event()

    def hold(_: Answer) -> None:
        held.set()
        gate.wait(10)

    both.log.append(append(StreamPart("run-0", 0, (NOTE,))), hold)
    assert held.wait(10)
    answers: list[Answer] = []
    for number in range(8):
        both.log.append(append(StreamPart(f"run-{number + 1}", 0, (NOTE,))), answers.append)
    with pytest.raises(StoreBusy, match="8 appends are waiting"):
        both.log.append(append(), answers.append)
    gate.set()
    both.log.rebuild()  # stands behind them in the queue
    record(both.log, "run-last", 0, NOTE)
    assert [type(answer) for answer in answers] == [Committed] * 8


def test_closing_finishes_what_was_taken_and_refuses_the_rest(both: Both) -> None:
    answers: list[Answer] = []
    for number in range(5):
        both.log.append(append(StreamPart(f"run-{number}", 0, (NOTE,))), answers.append)
    both.log.close()
    both.log.close()
    assert [type(answer) for answer in answers] == [Committed] * 5
    with pytest.raises(StoreError, match="closed"):
        both.log.append(append(), answers.append)


def test_long_streams_are_read_to_the_end_and_while_they_grow(both: Both) -> None:
    record(both.log, "run-1", 0, *(NoteTaken(kind=str(number)) for number in range(600)))
    reading = both.log.read("run-1")
    first = next(reading)
    record(both.log, "run-1", 600, NOTE)
    versions = [first.version, *(e.version for e in reading)]
    assert versions in (list(range(1, 601)), list(range(1, 602)))


def test_many_threads_may_append_and_read(both: Both) -> None:
    def write(stream: str) -> None:
        for version in range(25):
            while True:
                try:
                    record(both.log, stream, version, NOTE)
                    break
                except StoreBusy:
                    continue
            assert len(list(both.log.read(stream))) == version + 1

    threads = [threading.Thread(target=write, args=(f"run-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    positions = [e.position for n in range(6) for e in both.log.read(f"run-{n}")]
    assert sorted(positions) == list(range(1, 151))


@pytest.mark.parametrize("raws", [[b"a"], [b"data: x\n\n", b"", b"\x00\xff", b"y" * 100_000], []])
def test_batches_come_back_as_they_were_cut_sealed_or_not(both: Both, raws: list[bytes]) -> None:
    for number, raw in enumerate(raws, 1):
        commit(both.log, Append((), NOON, "test", batches=(batch(number, raw),)))
    assert list(both.log.batches("1", 1)) == raws
    commit(both.log, Append((), NOON, "test", seals=(Seal("1", 1),)))
    assert list(both.log.batches("1", 1)) == raws
    commit(both.log, Append((), NOON, "test", seals=(Seal("1", 1),)))
    assert list(both.log.batches("1", 1)) == raws
    assert list(both.log.batches("1", 2)) == list(both.log.batches("2", 1)) == []


def test_batches_of_the_sealing_append_are_sealed_too(both: Both) -> None:
    commit(both.log, Append((), NOON, "test", batches=(batch(1, b"a"),)))
    commit(both.log, Append((), NOON, "test", batches=(batch(2, b"b"), batch(1, b"c", call=2)), seals=(Seal("1", 1),)))
    assert (list(both.log.batches("1", 1)), list(both.log.batches("1", 2))) == ([b"a", b"b"], [b"c"])


def test_a_batch_is_written_once_and_not_behind_a_seal(both: Both) -> None:
    commit(both.log, Append((), NOON, "test", batches=(batch(1, b"a"),)))
    again = Append((StreamPart("run-1", 0, (NOTE,)),), NOON, "test", batches=(batch(1, b"b"),))
    with pytest.raises(Unwritten, match="on record already"):
        commit(both.log, again)
    commit(both.log, Append((), NOON, "test", seals=(Seal("1", 1),)))
    with pytest.raises(Unwritten, match="on record already"):
        commit(both.log, Append((), NOON, "test", batches=(batch(2, b"b"),)))
    assert (list(both.log.read("run-1")), list(both.log.batches("1", 1))) == ([], [b"a"])


def test_a_name_keeps_its_first_bytes(both: Both) -> None:
    assert both.log.blob("policy:1") is None
    for data in (b"one \x00\xff", b"two"):
        commit(both.log, Append((), NOON, "test", blobs=(NamedBlob("policy:1", data), NamedBlob("policy:2", b""))))
    assert (both.log.blob("policy:1"), both.log.blob("policy:2")) == (b"one \x00\xff", b"")


def test_large_values_come_back_whole(both: Both) -> None:
    large = "line é😀\n" * 5000
    events: list[Event] = [
        NoteTaken(kind="a", data={"deep": [{"text": large, "other": [large, "small"]}], "$blob": {"$blob": "x"}}),
        NoteTaken(kind="b", data={str(number): "many small things" for number in range(2000)}),
        ToolOutput(seq=1, call=1, call_id="c", text=large),
    ]
    envelopes = record(both.log, "run-1", 0, *events)
    assert [e.event for e in envelopes] == events
    assert [e.event for e in both.log.read("run-1")] == events


def test_secrets_and_lone_surrogates_do_not_pass(both: Both) -> None:
    heard: list[Envelope] = []
    both.log.subscribe(heard.extend)
    event = NoteTaken(kind="a", data={SECRET: [f"x {SECRET}", "\ud835", "nul \0 and \U0001f600"]})
    (answered,) = commit(
        both.log, Append((StreamPart("run-1", 0, (event,)),), NOON, "a", batches=(batch(1, SECRET.encode() + b"\xff"),))
    )
    (read,) = both.log.read("run-1")
    record(both.log, "run-2", 0, NOTE)
    assert answered == read == heard[0]
    assert isinstance(read.event, NoteTaken)
    ((key, values),) = read.event.data.items()
    assert values == [f"x {key}", "\ufffd", "nul \0 and \U0001f600"]
    assert key.startswith("[redacted:")
    assert list(both.log.batches("1", 1)) == [key.encode() + b"\xff"]


def test_what_is_not_json_is_refused(both: Both) -> None:
    with pytest.raises(Unwritten, match="cannot be encoded"):
        record(both.log, "run-1", 0, NoteTaken(kind="a", data={"x": object()}))
    assert list(both.log.read("run-1")) == []


def message(key: str | None, run_id: str = "1") -> Event:
    return MessageReceived(message_id="m", run_id=run_id, input=(), key=key, fingerprint="f")


def test_an_idempotency_key_is_taken_once_by_each_owner(both: Both) -> None:
    for session, owner in (("1", "ann"), ("2", "bob"), ("3", "ann")):
        record(both.log, f"session-{session}", 0, SessionCreated(owner=owner))
    record(both.log, "session-1", 1, message("k"))
    record(both.log, "session-2", 1, message("k"))
    admitted = RunAdmitted(session_id="3", owner="ann", message_id="m", input=())
    with pytest.raises(KeyTaken, match="'k' is taken"):
        commit(both.log, append(StreamPart("session-3", 1, (message("k"),)), StreamPart("run-3", 0, (admitted,))))
    assert [len(list(both.log.read(stream))) for stream in ("session-3", "run-3")] == [1, 0]
    assert both.queries.run("ann", "3") is None
    record(both.log, "session-3", 1, message(None), message("other"))


def test_a_key_is_taken_inside_the_append_that_makes_the_session(both: Both) -> None:
    with pytest.raises(KeyTaken):
        record(both.log, "session-1", 0, SessionCreated(owner="ann"), message("k"), message("k"))
    assert both.queries.session("ann", "1") is None
    assert both.queries.key("ann", "k") is None
    record(both.log, "session-1", 0, SessionCreated(owner="ann"), message("k", "7"))
    found = both.queries.key("ann", "k")
    assert found is not None
    assert (found.run_id, found.session_id, found.fingerprint) == ("7", "1", "f")
