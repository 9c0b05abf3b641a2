"""Several commands decided together: their events, answers and attachments, on the way to one append."""

from typing import Any, Generic

from actors.aggregate import NO_ATTACHMENTS, NO_TRACE, Aggregate, C, E, S, X, trace_of
from actors.errors import Refused
from actors.letters import Letter, Recorded
from eventstore.log import Append, StreamPart

MAX_DECIDED_TOGETHER = 16


class Draft(Generic[S, C, E, X]):
    """Decides letter after letter over the state that the append will give; belongs to one actor, no I/O."""

    __slots__ = ("_aggregate", "_attachments", "_opened", "_trace", "answers", "events", "state", "version")

    def __init__(self, aggregate: Aggregate[S, C, E, X], state: S, version: int) -> None:
        self._aggregate = aggregate
        self._attachments = NO_ATTACHMENTS
        self._trace = NO_TRACE
        self._opened: list[StreamPart] = []
        self.state, self.version = state, version
        self.events: list[E] = []
        self.answers: list[tuple[Letter, Recorded[Any, Any] | Refused]] = []

    def fits(self, letter: Letter) -> bool:
        """Return whether the letter may go into this append: it has one causation and one correlation."""
        return not self.events or (len(self.answers) < MAX_DECIDED_TOGETHER and trace_of(letter.command) == self._trace)

    def decide(self, letter: Letter) -> None:
        """Decide one command; a refusal is its answer, whatever else `decide` raises comes through."""
        try:
            events = tuple(self._aggregate.decide(self.state, letter.command))
        except Refused as refusal:
            self.answers.append((letter, refusal))
            return
        if events:
            self._record(letter.command, events)
        self.answers.append((letter, Recorded(self.state, events, self.version)))

    def _record(self, command: C, events: tuple[E, ...]) -> None:
        self._opened.extend(self._aggregate.opens(self.state, command, events))
        self._attachments += self._aggregate.attaches(self.state, command, events)
        self._trace = trace_of(command)
        self.state = self._aggregate.fold(events, self.state)
        self.version += len(events)
        self.events.extend(events)

    @property
    def letters(self) -> list[Letter]:
        """The letters whose answers wait."""
        return [letter for letter, _ in self.answers]

    def answer(self) -> None:
        """Give every letter its answer."""
        answers, self.answers = self.answers, []
        for letter, value in answers:
            letter.answer(value)

    def fail(self, error: BaseException) -> None:
        """Give the error to every letter that wants an answer, and keep the others."""
        for letter in self.letters:
            letter.fail(error)
        self.answers = [(letter, value) for letter, value in self.answers if letter.reply is None]

    def request(self, stream: str, at: int) -> Append:
        """Return what the writer is asked for; `at`: UTC in microseconds."""
        own = StreamPart(stream, self.version - len(self.events), tuple(self.events))
        return Append(
            (own, *self._opened),
            at,
            stream,
            self._attachments.batches,
            self._attachments.seals,
            self._attachments.blobs,
            self._trace.causation,
            self._trace.correlation,
        )
