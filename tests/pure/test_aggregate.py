import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.aggregate import NO_ATTACHMENTS, NO_TRACE, Attachments, Trace, attachments_of, trace_of
from actors.draft import MAX_DECIDED_TOGETHER, Draft
from actors.errors import Refused
from actors.letters import Address, Letter, Recorded, address_of
from eventstore.catalogue import NoteTaken, TurnStarted
from eventstore.errors import CorruptEvent
from eventstore.log import Batch, NamedBlob, Seal
from tests.fakes.counter import COUNTER, Add, AddTo, Command, Counter, Look, Owe, Pay, Refuse, Work


def drafted(*commands: Command) -> Draft[Counter, Command, NoteTaken, Work]:
    draft = Draft(COUNTER, Counter(), 0)
    for command in commands:
        draft.decide(Letter(command))
    return draft


def test_folding_goes_on_from_a_given_state() -> None:
    first, second = (NoteTaken(kind="added", data={"number": n}) for n in (1, 2))
    assert COUNTER.fold([second], COUNTER.fold([first])) == COUNTER.fold([first, second])


def test_another_aggregate_s_event_is_corrupt() -> None:
    with pytest.raises(CorruptEvent, match="TurnStarted in a 'counter' stream"):
        COUNTER.fold([TurnStarted(run_id="run_1")])


def test_a_command_without_extras_brings_nothing() -> None:
    assert attachments_of(Look()) == NO_ATTACHMENTS
    assert trace_of(Look()) == NO_TRACE
    assert trace_of(Add(1, Trace("cause"))) == Trace("cause")


def test_attachments_add_up_in_order() -> None:
    batches = [Batch("run_1", 1, n, b"raw") for n in (1, 2)]
    total = Attachments(batches=(batches[0],)) + Attachments((batches[1],), (Seal("run_1", 1),), (NamedBlob("a", b""),))
    assert total == Attachments(tuple(batches), (Seal("run_1", 1),), (NamedBlob("a", b""),))


def test_each_command_is_decided_over_the_state_that_those_before_it_give() -> None:
    draft = drafted(Add(1), Add(1), Add(2))
    answers = [answer for _, answer in draft.answers if isinstance(answer, Recorded)]
    assert [(answer.version, len(answer.events)) for answer in answers] == [(1, 1), (1, 0), (2, 1)]
    assert draft.state.numbers == (1, 2)


def test_a_refusal_is_that_command_s_answer_alone() -> None:
    draft = drafted(Add(1), Refuse(), Add(2))
    assert isinstance(draft.answers[1][1], Refused)
    assert len(draft.events) == 2


def test_the_request_names_the_version_before_and_all_that_goes_along() -> None:
    batch = Batch("run_1", 1, 1, b"raw")
    draft = Draft(COUNTER, Counter(), 7)
    for command in (Add(1, Trace("c", "o"), Attachments(batches=(batch,))), AddTo("b", 2)):
        draft.decide(Letter(command))
    request = draft.request("counter-a", 99)
    assert [(part.stream, part.expected, len(part.events)) for part in request.parts] == [
        ("counter-a", 7, 2),
        ("counter-b", 0, 1),
    ]
    assert (request.at, request.actor, request.batches) == (99, "counter-a", (batch,))


def test_an_append_takes_a_bounded_number_of_commands_of_one_cause() -> None:
    draft = drafted(*(Add(n) for n in range(MAX_DECIDED_TOGETHER)))
    assert not draft.fits(Letter(Add(99)))
    assert not drafted(Add(1, Trace("one"))).fits(Letter(Add(2, Trace("two"))))
    assert drafted(Look()).fits(Letter(Add(2, Trace("two"))))


def test_an_id_may_have_hyphens() -> None:
    assert address_of("session-a-b") == Address("session", "a-b")
    assert Address("session", "a-b").stream == "session-a-b"


@given(st.lists(st.one_of(st.builds(Add, st.integers(0, 5)), st.builds(Owe, st.text(max_size=1)), st.just(Refuse()))))
def test_the_drafted_state_is_the_fold_of_its_events_and_repeats_add_nothing(commands: list[Command]) -> None:
    draft = drafted(*commands, *commands)
    assert draft.state == COUNTER.fold(draft.events)
    assert draft.events == drafted(*commands).events
    assert draft.version == len(draft.events)


def test_what_is_paid_is_not_pending() -> None:
    draft = drafted(Owe("a"), Owe("b"), Pay("a"))
    assert [effect.key for effect in COUNTER.pending(draft.state)] == ["b"]
