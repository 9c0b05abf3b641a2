"""The shell: mailbox, append, effects.  Every durable actor is this one class around an aggregate.

The order is fixed: decide, append, evolve, launch, answer.  The append is asynchronous: the actor hands the events to the
writer, gives its thread back and sets its mail aside; the answer comes as a message.  At most one append is in flight;
what arrives meanwhile is decided together over the state that it will give.  Nothing is launched that the log does not
already imply, so a crash loses only work in flight, and the next actor finds that work in `pending`, under the same keys.
"""

import logging
from collections import deque
from functools import partial
from types import TracebackType
from typing import Any, Generic, assert_never

import pykka
from pykka._envelope import Envelope as Wrapped

from actors.aggregate import C, E, S, X, reminds_of
from actors.draft import Draft
from actors.errors import Refused
from actors.hosting import Hosting, Surroundings
from actors.letters import Address, Again, Answered, Grown, Letter, Loaded, LoadFailed, Pressing, Resume, address_of
from actors.performers import CancelToken
from actors.pool import PooledActor
from eventstore.errors import LogError, StoreBusy, StoreFull, Unwritten, VersionConflict
from eventstore.log import Answer, Committed, Envelope, Failed

logger = logging.getLogger(__name__)

RETRY_AFTER = 1.0
"""Seconds until work that could not be handed over, or an append that did not fit on the disk, is tried again."""

Message = Letter | Pressing | Loaded | LoadFailed | Answered | Grown | Again | Resume


class Shell(PooledActor, Generic[S, C, E, X]):
    """Hosts one instance of an aggregate on the pool; handlers never block."""

    def __init__(self, hosting: Hosting[S, C, E, X], address: Address, around: Surroundings) -> None:
        super().__init__()
        self.pool = around.pool
        self.actor_inbox.limit = around.mailbox
        self.address = address
        self._hosting, self._around = hosting, around
        self._state, self._version = hosting.aggregate.initial, 0
        self._loaded = self._recovering = False
        self._draft: Draft[S, C, E, X] | None = None  # being decided, or in flight
        self._deciding: Letter | None = None
        self._stash: deque[Letter] = deque()
        self._alone = 0  # so many letters are decided one by one, after an append that one of several spoilt
        self._trouble: LogError | None = None  # why the log takes nothing just now
        self._launched: frozenset[str] = frozenset()
        self._again: frozenset[str] = frozenset()  # of these, which are to be launched once more
        self._reminded: frozenset[str] = frozenset()  # of these, which somebody waits for
        self._missed: tuple[Envelope, ...] = ()
        self._error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing waits here and nothing is in flight; read it under `PoolInbox.close_if` only."""
        return self._loaded and self._draft is None and not self._stash

    @property
    def at_rest(self) -> bool:
        """Whether the actor may be put away: settled, nothing to launch again, and the aggregate allows it."""
        return self.settled and not self._again and self._hosting.aggregate.lifespan(self._state)

    @property
    def owes(self) -> bool:
        """Whether launched work has no outcome yet; read it once the actor has ended."""
        return bool(self._launched)

    def send(self, message: Message) -> None:
        """Put a message into the mailbox; from any thread.

        Raises:
            ActorDeadError: the actor has ended, and nothing was put.
            MailboxFull: too much waits.
        """
        # Not through `ActorRef.tell`: it refuses from the moment of the fault, before what waits is handed on.
        self.actor_inbox.put(Wrapped(message))

    def on_start(self) -> None:
        """Have the stream replayed off the pool; mail is set aside until then."""
        self._around.replays.submit(self.actor_urn, self._replay, lambda error: self._send_back(LoadFailed(error)))

    def on_receive(self, message: Message) -> None:
        """Handle one message, on a pool thread."""
        match message:
            case Letter():
                self._accept(message)
            case Pressing():
                self._accept(message.letter)
            case Answered():
                self._take(message.answer)
            case Loaded():
                self._begin(message)
            case LoadFailed():
                self._end(message.error)
            case Grown():
                self._grow(message.envelopes)
            case Again():
                self._launch_again(message.key)
            case Resume():
                self._trouble = None
            case _:
                assert_never(message)
        self._go_on()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remember over what the actor ended."""
        self._error = exception_value
        if self._deciding is not None and self._deciding.reply is not None and exception_value is not None:
            self._deciding.fail(exception_value)
            self._deciding = None

    def on_end(self, unhandled: list[Any]) -> None:
        """Hand on what was not done: told commands, and asked ones that are surely not on record."""
        deciding = [self._deciding] if self._deciding is not None else []
        begun = [letter.tried() for letter in [*(self._draft.letters if self._draft else ()), *deciding]]
        fresh = [letter for message in unhandled if (letter := _letter_in(message)) is not None]
        self._around.keeper.ended(self.address, self, self._error, [*begun, *self._stash, *fresh])

    # --- loading ---------------------------------------------------------------------------

    def _replay(self, _token: CancelToken) -> None:
        """Fold the stream, page by page; on a replay performer's thread, so it touches none of the actor's fields."""
        aggregate = self._hosting.aggregate
        state, version = aggregate.initial, 0
        for envelope in self._around.log.read(self.address.stream):
            state, version = aggregate.fold((envelope.event,), state), envelope.version
        self._send_back(Loaded(state, version))

    def _begin(self, loaded: Loaded) -> None:
        self._state, self._version, self._loaded = loaded.state, loaded.version, True
        missed, self._missed = self._missed, ()
        self._apply(missed)
        self._stash.appendleft(Letter(self._hosting.recover(self._around.clock.now())))
        self._recovering, self._alone = True, 1

    def _grow(self, envelopes: tuple[Envelope, ...]) -> None:
        if not self._loaded:
            self._missed += envelopes
        elif self._draft is None:
            self._apply(envelopes)
            self._launch_pending()
        # Else the append in flight meets a version conflict, and the next actor replays.

    def _apply(self, envelopes: tuple[Envelope, ...]) -> None:
        for envelope in envelopes:
            if envelope.version == self._version + 1:
                self._state = self._hosting.aggregate.fold((envelope.event,), self._state)
                self._version = envelope.version
            elif envelope.version > self._version:
                self._end(VersionConflict(self.address.stream, self._version, envelope.version - 1))

    # --- decide and append -------------------------------------------------------------------

    def _accept(self, letter: Letter) -> None:
        if self._trouble is not None and letter.reply is not None:
            letter.fail(self._trouble)
        else:
            self._stash.append(letter)

    def _go_on(self) -> None:
        """Decide what is set aside, as far as one append should reach, and hand it over."""
        while self._stash and self._may_append():
            draft = self._draft = Draft(self._hosting.aggregate, self._state, self._version)
            self._fill(draft)
            if draft.events:
                self._hand_over(draft)
            else:
                self._draft = None
                self._launch_late()
        self.actor_inbox.held = len(self._stash)

    def _launch_late(self) -> None:
        """Launch what a replayed state owes, or the sender of a command waits for, where there was nothing to record."""
        if self._recovering or self._reminded:
            self._recovering = False
            self._launch_pending()

    def _may_append(self) -> bool:
        return self._loaded and self._draft is None and self._trouble is None and not self.actor_stopped.is_set()

    def _fill(self, draft: Draft[S, C, E, X]) -> None:
        while self._stash and draft.fits(self._stash[0]):
            letter = self._deciding = self._stash.popleft()
            draft.decide(letter)
            self._deciding = None
            self._reminded |= reminds_of(letter.command) & self._launched
            if not draft.events:
                draft.answer()  # it depends on nothing that is not on record
            if self._alone:
                self._alone -= 1
                return

    def _hand_over(self, draft: Draft[S, C, E, X]) -> None:
        request = draft.request(self.address.stream, self._around.clock.now())
        try:
            self._around.log.append(request, self._on_answer)
        except LogError as error:
            self._append_failed(error)

    def _on_answer(self, answer: Answer) -> None:
        """Take the writer's answer, on the writer's thread."""
        self._send_back(Answered(answer))

    def _send_back(self, message: Message) -> None:
        try:
            self.send(message)
        except pykka.ActorDeadError:
            # Whoever comes after this actor replays and needs no answer.
            logger.debug("%s has ended before an answer came", self.address.stream)

    def _take(self, answer: Answer) -> None:
        match answer:
            case Committed():
                self._commit(answer)
            case Failed():
                self._append_failed(answer.error)
            case _:
                assert_never(answer)

    def _commit(self, committed: Committed) -> None:
        draft, self._draft = self._draft, None
        if draft is None:
            return
        self._state, self._version = draft.state, draft.version
        self._recovering = False
        try:
            self._tell_others(committed)
            self._launch_pending()
        finally:
            draft.answer()  # it is on record, whatever a launcher did

    def _tell_others(self, committed: Committed) -> None:
        """Let live actors know of what this append wrote to their streams, before any message that builds on it."""
        others: dict[str, list[Envelope]] = {}
        for envelope in committed.envelopes:
            if envelope.stream != self.address.stream:
                others.setdefault(envelope.stream, []).append(envelope)
        for stream, envelopes in others.items():
            self._around.keeper.grew(address_of(stream), tuple(envelopes))

    # --- when the log fails --------------------------------------------------------------------

    def _append_failed(self, error: LogError) -> None:
        """Stay alive with the old state where surely nothing was written; end where the state is not known."""
        draft = self._draft
        if draft is None:
            return
        match error:
            case StoreFull() | StoreBusy():
                self._wait_for_space(draft, error)
            case Unwritten() if not isinstance(error, VersionConflict):
                self._give_back(draft, error)
            case _:
                self._end(error)

    def _wait_for_space(self, draft: Draft[S, C, E, X], error: LogError) -> None:
        """Fail what was asked; keep what was told, and try it again later."""
        draft.fail(error)
        self._fail_stashed(error)
        self._stash.extendleft(reversed(draft.letters))
        self._draft = None
        if self._stash:
            self._trouble = error
            self._around.keeper.later(("resume", self.address), RETRY_AFTER, partial(self._send_back, Resume()))

    def _fail_stashed(self, error: BaseException) -> None:
        for letter in self._stash:
            letter.fail(error)
        self._stash = deque(letter for letter in self._stash if letter.reply is None)

    def _give_back(self, draft: Draft[S, C, E, X], error: LogError) -> None:
        """Fail the one command that spoilt the append; to find it among several, decide them one by one."""
        letters, self._draft = draft.letters, None
        if len(letters) > 1:
            self._stash.extendleft(reversed(letters))
            self._alone = len(letters)
            return
        for letter in letters:
            letter.fail(error)
            logger.warning("%s: %s was not taken: %s", self.address.stream, type(letter.command).__name__, error.code)

    def _end(self, error: BaseException) -> None:
        """End this actor; the directory starts the next one, which replays."""
        self._error = error
        if self._draft is not None and not isinstance(error, VersionConflict):
            self._draft.fail(error)
        if not self._loaded:
            self._fail_stashed(error)
        self.actor_stopped.set()

    # --- effects ---------------------------------------------------------------------------------

    def _launch_pending(self) -> None:
        """Launch what the state owes and nobody works on yet."""
        pending = {effect.key: effect for effect in self._hosting.aggregate.pending(self._state)}
        launched = (self._launched - self._reminded) & pending.keys()
        self._reminded = frozenset()
        self._again &= pending.keys()
        self._launched = frozenset(pending)
        for key, effect in pending.items():
            if key not in launched:
                self._launch(effect)

    def _launch(self, effect: X) -> None:
        repeat_after: float | None = getattr(effect, "repeat_after", None)
        try:
            self._hosting.launch(effect, partial(self._around.keeper.press, self.address))
        except Refused as refusal:
            logger.debug("%s: %s has to wait: %s", self.address.stream, effect.key, refusal.code)
            repeat_after = RETRY_AFTER
        except Exception:
            # The work is still owed and is tried again; the actor's state is right, whatever the launcher met.
            logger.exception("%s: %s could not be launched", self.address.stream, effect.key)
            repeat_after = RETRY_AFTER
        if repeat_after is not None:
            self._again |= {effect.key}
            back = partial(self._send_back, Again(effect.key))
            self._around.keeper.later(("again", self.address, effect.key), repeat_after, back)

    def _launch_again(self, key: str) -> None:
        if key in self._again:
            self._again -= {key}
            self._launched -= {key}
            self._launch_pending()


def _letter_in(message: object) -> Letter | None:
    match message:
        case Letter():
            return message
        case Pressing():
            return message.letter
        case _:
            return None
