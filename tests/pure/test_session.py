"""A session, without threads, files or clocks: given commands, then what it records and owes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import Refused
from actors.session import SESSION, Session, opens
from actors.session_commands import (
    AwaitSlot,
    Basis,
    ChangeSession,
    Command,
    CreateSession,
    GrantSlot,
    ReceiveMessage,
    Recover,
    SettleTurn,
    SteerRun,
    TendRun,
    Wake,
)
from eventstore import catalogue as log
from eventstore.log import StreamPart

CREATED = log.SessionCreated(owner="ann")
FREEZE = log.ContextFrozen(system_prompt=None, policy_digest="d", profile="default")


def admitted(run_id: str, text: str = "hi", role: str = "user", owner: str = "ann") -> log.RunAdmitted:
    said = {"role": role, "content": [{"type": "text", "text": text}]}
    return log.RunAdmitted(session_id="s", owner=owner, message_id=f"msg_{run_id}", input=(said,), run_id=run_id)


def receive(run_id: str, session: Session, **more: Any) -> ReceiveMessage:
    run = more.pop("admitted", None) or admitted(run_id)
    start = log.RunStarted(seq=1, session_id="s") if more.pop("slot", True) else None
    given: dict[str, Any] = {"create": CREATED, "freeze": FREEZE, "most_waiting": 3, **more}
    return ReceiveMessage(run, session.basis, received_at=1, start=start, **given)


def settle(run_id: str, consumed: tuple[str, ...] = ()) -> SettleTurn:
    return SettleTurn(run_id, "completed", consumed, admitted(run_id), f"{run_id}-next")


def play(session: Session, *commands: Command) -> Session:
    for command in commands:
        session = SESSION.fold(SESSION.decide(session, command), session)
    return session


def steering(busy: str = "steer") -> Session:
    return play(Session(), CreateSession(log.SessionCreated(owner="ann", busy=busy)))  # type: ignore[arg-type]


def owes(session: Session) -> list[str]:
    return [effect.key for effect in SESSION.pending(session)]


def test_a_first_message_opens_session_and_run_in_one_append() -> None:
    command = receive("r1", Session())
    events = SESSION.decide(Session(), command)
    tags = [log.tag_of(event) for event in events]
    assert tags == [
        "session.created",
        "session.context_frozen",
        "session.message_received",
        "session.turn_started",
    ]
    assert command.start is not None
    assert opens(Session(), command, events) == (StreamPart("run-r1", 0, (command.admitted, command.start)),)
    assert owes(play(Session(), command)) == ["tend-r1"]


def test_a_message_without_a_place_waits_for_one() -> None:
    command = receive("r1", Session(), slot=False)
    session = play(Session(), command)
    assert owes(session) == ["slot-r1"]
    assert opens(Session(), command, SESSION.decide(Session(), command)) == (StreamPart("run-r1", 0, (command.admitted,)),)
    session = play(session, GrantSlot("r1"), GrantSlot("r1"))
    assert owes(session) == ["tend-r1"]


def test_what_was_prepared_from_a_session_that_has_changed_is_void() -> None:
    old = play(Session(), CreateSession(CREATED))
    command = receive("r1", old)
    changed = play(old, ChangeSession("ann", log.SessionChanged(model="other")))
    assert owes(play(changed, command)) == ["slot-r1"]
    assert owes(play(old, command)) == ["tend-r1"]


def test_a_message_during_a_run_waits_for_its_turn() -> None:
    session = play(Session(), receive("r1", Session()))
    session = play(session, receive("r2", session))
    assert owes(session) == ["tend-r1"]
    assert owes(play(session, settle("r1"))) == ["slot-r2"]


def test_a_message_that_steers_opens_no_run() -> None:
    session = play(steering(), receive("r1", steering()))
    command = receive("r2", session)
    events = SESSION.decide(session, command)
    assert [event.run_id for event in events if isinstance(event, log.MessageReceived)] == ["r1"]
    assert opens(session, command, events) == ()
    assert owes(play(session, command)) == ["tend-r1", "steer-msg_r2"]


def test_messages_that_steer_count_as_waiting_until_they_were_taken_in() -> None:
    session = play(steering(), receive("r1", steering()))
    for run_id in ("r2", "r3", "r4"):
        session = play(session, receive(run_id, session))
    with pytest.raises(Refused, match="too many") as refused:
        SESSION.decide(session, receive("r5", session))
    assert refused.value.code == "session_queue_full"


def test_results_of_the_clients_tools_never_steer() -> None:
    session = play(steering(), receive("r1", steering()))
    session = play(session, receive("r2", session, admitted=admitted("r2", role="tool")))
    assert session.queue == ("r2",)


def test_what_was_not_taken_in_becomes_the_next_run() -> None:
    session = play(steering(), receive("r1", steering()))
    for run_id, text in (("r2", "in time"), ("r3", "late"), ("r4", "later")):
        session = play(session, receive(run_id, session, admitted=admitted(run_id, text)))
    command = settle("r1", ("msg_r2",))
    events = SESSION.decide(session, command)
    [part] = opens(session, command, events)
    assert part.stream == "run-r1-next"
    [heir] = part.events
    assert isinstance(heir, log.RunAdmitted)
    assert [message["content"][0]["text"] for message in heir.input] == ["late", "later"]
    assert owes(play(session, command)) == ["slot-r1-next"]
    assert list(SESSION.decide(play(session, command), command)) == []


def test_a_queue_is_bounded() -> None:
    session = play(Session(), receive("r1", Session()))
    for run_id in ("r2", "r3", "r4"):
        session = play(session, receive(run_id, session))
    with pytest.raises(Refused) as refused:
        play(session, receive("r5", session))
    assert refused.value.code == "session_queue_full"


def test_a_repeat_adds_nothing_and_a_key_stands_for_one_message() -> None:
    command = receive("r1", Session(), key="k", fingerprint="f")
    session = play(Session(), command)
    again = receive("r9", session, key="k", fingerprint="f")
    assert list(SESSION.decide(session, again)) == []
    with pytest.raises(Refused) as refused:
        SESSION.decide(session, receive("r9", session, key="k", fingerprint="other"))
    assert refused.value.code == "idempotency_conflict"


def test_a_session_is_its_owners_alone() -> None:
    session = play(Session(), CreateSession(CREATED))
    for command in (
        receive("r1", session, admitted=admitted("r1", owner="bob")),
        ChangeSession("bob", log.SessionChanged(title="t")),
    ):
        with pytest.raises(Refused) as refused:
            SESSION.decide(session, command)
        assert refused.value.code == "session_not_found"
    with pytest.raises(Refused) as exists:
        SESSION.decide(session, CreateSession(log.SessionCreated(owner="bob")))
    assert exists.value.code == "session_exists"


def test_there_is_no_session_until_it_is_created() -> None:
    with pytest.raises(Refused) as refused:
        SESSION.decide(Session(), receive("r1", Session(), create=None))
    assert refused.value.code == "session_not_found"


def test_a_history_is_for_a_new_session_only() -> None:
    history = ({"role": "user", "content": []},)
    tags = [log.tag_of(event) for event in SESSION.decide(Session(), receive("r1", Session(), history=history))]
    assert tags[:2] == ["session.created", "session.history_given"]
    session = play(Session(), CreateSession(CREATED))
    with pytest.raises(Refused, match="history"):
        SESSION.decide(session, receive("r1", session, history=history))


def test_a_queued_run_that_was_cancelled_leaves_the_queue() -> None:
    session = play(Session(), receive("r1", Session()))
    session = play(session, receive("r2", session), settle("r2"))
    assert session.queue == ()
    assert owes(session) == ["tend-r1"]


NAMES = st.sampled_from(["r1", "r2", "r3", "r4", "r5"])


@st.composite
def commands(draw: st.DrawFn, session: Session) -> Command:
    run_id = draw(NAMES)
    consumed = tuple(draw(st.sets(st.sampled_from([f"msg_{n}" for n in ("r1", "r2", "r3")]))))
    busy: Any = draw(st.sampled_from(["queue", "steer", None]))
    some: list[Command] = [
        receive(run_id, session, slot=draw(st.booleans())),
        receive(run_id, session, slot=True),
        ChangeSession("ann", log.SessionChanged(busy=busy, model=draw(st.sampled_from(["a", "b", None])))),
        GrantSlot(session.queue[0] if session.queue else run_id),
        settle(session.turn or run_id, consumed),
        settle(run_id, consumed),
        Wake(),
        Recover(),
    ]
    return draw(st.sampled_from(some))


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_told_to_a_session_it_stays_sound(data: st.DataObject) -> None:
    session, events, opened = Session(), list[log.SessionEvent](), list[str]()
    for _ in range(data.draw(st.integers(0, 20))):
        command = data.draw(commands(session))
        try:
            new = SESSION.decide(session, command)
        except Refused:
            continue
        if new:
            opened.extend(part.stream for part in opens(session, command, new))
        session = SESSION.fold(new, session)
        events.extend(new)
        assert SESSION.fold(events) == session
        assert list(SESSION.decide(session, command)) == [], "a repeated command adds nothing"
        effects = list(SESSION.pending(session))
        assert len({effect.key for effect in effects}) == len(effects)
        assert session.turn not in session.queue
        assert len(opened) == len(set(opened)) == session.count
        turns = [type(event) for event in events if isinstance(event, log.TurnStarted)]
        ends = [event for event in events if isinstance(event, log.TurnSettled)]
        assert len(turns) <= len(ends) + 1, "one run at a time"
        if session.turn is not None:
            assert [type(effect) for effect in effects[:1]] == [TendRun]
            assert all(isinstance(effect, SteerRun) for effect in effects[1:])
        else:
            assert [type(effect) for effect in effects] == ([AwaitSlot] if session.queue else [])


def test_a_basis_tells_whether_the_session_is_as_it_was_read() -> None:
    session = play(Session(), receive("r1", Session()))
    assert session.basis == Basis(1, "default", None, None)


def test_an_erased_session_refuses_everything_and_owes_nothing() -> None:
    session = SESSION.fold((log.SessionErased(reason="asked for"),), play(Session(), receive("r1", Session())))
    assert (session, owes(session)) == (Session(erased=True), [])
    refused: list[Command] = [
        CreateSession(CREATED),
        receive("r2", session),
        ChangeSession("ann", log.SessionChanged(title="t")),
    ]
    for command in refused:
        with pytest.raises(Refused, match="erased") as error:
            SESSION.decide(session, command)
        assert error.value.code == "session_erased"
    for late in (GrantSlot("r1"), settle("r1"), Wake(), Recover()):
        assert SESSION.decide(session, late) == ()
