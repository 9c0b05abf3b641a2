"""Every fact this server can record, in one file.

Past tense, immutable, tagged `kind.what_happened`.  A stored tag never changes its meaning.  A new field with a default
needs nothing more; any other change raises the tag's number in `VERSIONS` and adds one function to `UPCASTERS`, from the
old shape to the next.  Canonical run events carry `seq`, the one cursor that clients see; all others have none.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from eventstore.errors import CorruptEvent

Json = dict[str, Any]


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all events; it has no fields, so that none is inherited by accident."""


class Canonical(Fact, frozen=True, kw_only=True):
    """Base of the events that clients see; `seq` counts 1, 2, 3 without a gap over one run."""

    seq: int


# --- values inside events ---------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a session's messages come from; opaque ids only."""

    platform: str = "http"
    account: str | None = None
    chat: str | None = None
    thread: str | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one attempt, or a sum of them; `cost_micros` is null where no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int | None = None
    price: Json | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt of an erased run used, so that sums stay right; `position` and `at` are its event's."""

    position: int
    at: int
    provider: str | None = None
    model: str | None = None
    usage: Usage = Usage()


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as data: a stable code, a sentence, and the class that the retry policy uses."""

    code: str
    message: str
    kind: str = "other"
    status: int | None = None
    place: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host call brought, kept once: inline, as a canonical event of this run, or as a raw stream batch."""

    value: Any = None
    seq: int | None = None
    batch: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One host call, emission, stop or answer inside a script step, with the place in the script that made it.

    `emit`: the next script event of this step.  `call`: number, kind, digest and size of its payload.
    `stop`: number.  `answer`: kind and value of a call that is answered at once (`now`, `random_id`, `new_messages`).
    """

    act: Literal["emit", "call", "stop", "answer"]
    at: str = ""
    number: int | None = None
    kind: str | None = None
    digest: str | None = None
    size: int | None = None
    value: Any = None


# --- the session's stream -----------------------------------------------------------------


class SessionCreated(Fact, frozen=True, tag="session.created"):
    """A principal opened a conversation."""

    owner: str
    origin: Origin = Origin()
    profile: str = "default"
    title: str | None = None
    parent_session_id: str | None = None
    ephemeral: bool = False
    busy: Literal["queue", "steer"] = "queue"
    metadata: Json = {}


class SessionChanged(Fact, frozen=True, tag="session.changed"):
    """Settings changed; null fields stay as they were."""

    title: str | None = None
    model: str | None = None
    provider: str | None = None
    profile: str | None = None
    busy: Literal["queue", "steer"] | None = None


class HistoryGiven(Fact, frozen=True, tag="session.history_given"):
    """A client brought its own earlier messages, in canonical form."""

    messages: tuple[Json, ...]


class ContextFrozen(Fact, frozen=True, tag="session.context_frozen"):
    """What every later run of this session starts from."""

    system_prompt: str | None
    policy_digest: str
    profile: str
    tool_schema_hashes: tuple[str, ...] = ()
    digest: str = ""


class MessageReceived(Fact, frozen=True, tag="session.message_received"):
    """Somebody said something; `run_id` is the run that answers it."""

    message_id: str
    run_id: str
    input: tuple[Json, ...]
    steers: bool = False
    key: str | None = None
    fingerprint: str | None = None
    user_id: str | None = None
    received_at: int = 0
    metadata: Json = {}


class TurnStarted(Fact, frozen=True, tag="session.turn_started"):
    """The session's next run began."""

    run_id: str


class TurnSettled(Fact, frozen=True, tag="session.turn_settled"):
    """A run of this session ended; `consumed` are the steering messages that it took in."""

    run_id: str
    status: Literal["completed", "cancelled", "failed"]
    consumed: tuple[str, ...] = ()


class SessionErased(Fact, frozen=True, tag="session.erased"):
    """The conversation was erased: what came before in this stream has no data any more, and nothing follows."""

    reason: str


# --- the run's journal: no seq, not shown unless asked for ------------------------------------


class RunAdmitted(Fact, frozen=True, tag="run.admitted"):
    """A run exists and waits for its turn."""

    session_id: str
    owner: str
    message_id: str
    input: tuple[Json, ...]
    run_id: str = ""
    profile: str = "default"
    model: str | None = None
    provider: str | None = None
    parent_run_id: str | None = None
    platform: str = "http"
    provider_options: Json = {}
    tool_schemas: tuple[Json, ...] = ()
    system_prompt: str | None = None
    limits: Json = {}
    metadata: Json = {}
    on_disconnect: Literal["continue", "cancel"] = "continue"


class ScriptAdvanced(Fact, frozen=True, tag="script.advanced"):
    """The script took one outcome and ran to its next wait or its end; its events follow in the same append."""

    step: int
    call: int | None = None
    outcome: Outcome | None = None
    acts: tuple[Step, ...] = ()


class StreamSealed(Fact, frozen=True, tag="stream.sealed"):
    """The raw batches of one provider stream became one blob."""

    call: int
    batches: int
    size: int


class NoteTaken(Fact, frozen=True, tag="note.taken"):
    """The script wrote something down: a repair of a request, a decision; `kind` is what follows `note.`."""

    kind: str
    data: Json = {}


class MessageSteered(Fact, frozen=True, tag="run.message_steered"):
    """A message reached the run while it was at work; the script meets it at its next model boundary."""

    message_id: str
    input: tuple[Json, ...]


class CancelRequested(Fact, frozen=True, tag="run.cancel_requested"):
    """Somebody, or a limit, wants this run to end."""

    reason: str
    by: str | None = None


class RecoveryStarted(Fact, frozen=True, tag="run.recovery_started"):
    """A server found the run without an end and took it up; `attempt` counts those without progress."""

    attempt: int


# --- canonical run events: the public contract ---------------------------------------------


class RunStarted(Canonical, frozen=True, tag="run.started"):
    """The run left the queue; its context is the session up to `context_position`."""

    session_id: str
    parent_run_id: str | None = None
    profile: str = "default"
    model: str | None = None
    provider: str | None = None
    policy_digest: str = ""
    engine: str = ""
    context_position: int = 0
    context_digest: str = ""
    deadline_at: int | None = None
    capabilities: Json = {}


class ModelStarted(Canonical, frozen=True, tag="model.started"):
    """An attempt to get the model's next turn began."""

    turn: int
    attempt: int
    model: str | None = None
    provider: str | None = None


class ModelDelta(Canonical, frozen=True, tag="model.delta"):
    """Provisional text, reasoning or a piece of a tool call; a discarded attempt takes it back."""

    attempt: int
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[Json, ...] = ()


class ModelCompleted(Canonical, frozen=True, tag="model.completed"):
    """The attempt ended cleanly; `message` is the canonical assistant message."""

    turn: int
    attempt: int
    message: Json
    usage: Usage | None = None
    stop_reason: str = "stop"
    model: str | None = None


class ModelDiscarded(Canonical, frozen=True, tag="model.discarded"):
    """The attempt failed; clients drop its partial text."""

    turn: int
    attempt: int
    reason: str
    error: Problem | None = None
    usage: Usage | None = None
    retry_in_ms: int | None = None


class ToolRequested(Canonical, frozen=True, tag="tool.requested"):
    """The model asked for a tool; `call_id` is the id that the provider gave."""

    call_id: str
    name: str
    arguments: Any
    raw_arguments: str | None = None


class ApprovalRequired(Canonical, frozen=True, tag="approval.required"):
    """A call waits for a person."""

    approval_id: str
    call: int
    call_id: str
    name: str
    arguments: Any
    risk: str
    expires_at: int


class ApprovalResolved(Canonical, frozen=True, tag="approval.resolved"):
    """A person, an expiry or a cancel answered."""

    approval_id: str
    resolution: Literal["approved", "denied", "expired", "cancelled"]
    by: str | None = None
    reason: str | None = None


class ToolStarted(Canonical, frozen=True, tag="tool.started"):
    """The call may have had an effect from here on; `call` is the host call's number."""

    call: int
    call_id: str
    name: str
    attempt: int = 1
    effect: Literal["read", "idempotent", "once"] = "once"


class ToolOutput(Canonical, frozen=True, tag="tool.output"):
    """A running tool showed something."""

    call: int
    call_id: str
    text: str


class ToolCompleted(Canonical, frozen=True, tag="tool.completed"):
    """The call's outcome; `unknown` if a crash hid it."""

    call: int
    call_id: str
    name: str
    outcome: Literal["ok", "failed", "denied", "cancelled", "unknown"]
    content: str = ""
    error: Problem | None = None
    truncated: bool = False


class CompactStarted(Canonical, frozen=True, tag="compact.started"):
    """The policy began to shorten the history."""

    reason: str


class CompactCompleted(Canonical, frozen=True, tag="compact.completed"):
    """The history was shortened, or not."""

    ok: bool
    error: Problem | None = None


class SubagentStarted(Canonical, frozen=True, tag="subagent.started"):
    """A child run was admitted."""

    call: int
    child_run_id: str


class SubagentCompleted(Canonical, frozen=True, tag="subagent.completed"):
    """A child run ended."""

    call: int
    child_run_id: str
    status: str


class RunCompleted(Canonical, frozen=True, tag="run.completed"):
    """The script returned; `output` is the last canonical assistant message."""

    output: Json
    finish_reason: str = "stop"
    usage: Usage = Usage()


class RunCancelled(Canonical, frozen=True, tag="run.cancelled"):
    """The run was ended from outside; partial text is kept, marked."""

    reason: str
    partial: str = ""
    usage: Usage = Usage()


class RunFailed(Canonical, frozen=True, tag="run.failed"):
    """The run could not go on."""

    error: Problem
    partial: str = ""
    usage: Usage = Usage()


# --- the log about itself ---------------------------------------------------------------------


class Erased(Fact, frozen=True, tag="log.erased"):
    """The data at these positions was removed on purpose; the chain goes on over its hash.

    `spent`: what the erased attempts used, for the sums of the `owner`; they name neither session nor run.
    """

    positions: tuple[int, ...]
    reason: str
    owner: str | None = None
    spent: tuple[Spent, ...] = ()


class Folded(Fact, frozen=True, tag="log.folded"):
    """Old deltas at these positions lost their data; their text stands in the completed message."""

    positions: tuple[int, ...]


SessionEvent = (
    SessionCreated
    | SessionChanged
    | HistoryGiven
    | ContextFrozen
    | MessageReceived
    | TurnStarted
    | TurnSettled
    | SessionErased
)
JournalEvent = RunAdmitted | ScriptAdvanced | StreamSealed | NoteTaken | MessageSteered | CancelRequested | RecoveryStarted
TerminalEvent = RunCompleted | RunCancelled | RunFailed
CanonicalEvent = (
    RunStarted
    | ModelStarted
    | ModelDelta
    | ModelCompleted
    | ModelDiscarded
    | ToolRequested
    | ApprovalRequired
    | ApprovalResolved
    | ToolStarted
    | ToolOutput
    | ToolCompleted
    | CompactStarted
    | CompactCompleted
    | SubagentStarted
    | SubagentCompleted
    | RunCompleted
    | RunCancelled
    | RunFailed
)
RunEvent = CanonicalEvent | JournalEvent
LogEvent = Erased | Folded
Event = RunEvent | SessionEvent | LogEvent

TAGS: dict[str, type[Fact]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}
CANONICAL_TAGS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(CanonicalEvent))

VERSIONS: dict[str, int] = {"session.message_received": 2}
UPCASTERS: dict[tuple[str, int], Callable[[Json], Json]] = {
    # Version 1 held one plain text; version 2 holds canonical messages, so that images and tool results fit.
    ("session.message_received", 1): lambda old: {
        **{name: value for name, value in old.items() if name != "text"},
        "input": [{"role": "user", "content": [{"type": "text", "text": old["text"]}]}],
    },
}

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def tag_of(event: Event) -> str:
    """Return the event's stored tag."""
    return str(type(event).__struct_config__.tag)


def seq_of(event: Event) -> int | None:
    """Return the canonical event's place in its run, or None for journal and session events."""
    return event.seq if isinstance(event, Canonical) else None


def encode(event: Event) -> tuple[str, int, bytes]:
    """Return (tag, schema version, payload), as the log stores an event."""
    tag = tag_of(event)
    return tag, VERSIONS.get(tag, 1), _encoder.encode(event)


def decode(tag: str, version: int, payload: bytes) -> Event:
    """Read one stored payload, lifted through every version since it was written.

    Raises:
        CorruptEvent: the payload is not such an event, or comes from a newer version.
    """
    newest = VERSIONS.get(tag, 1)
    if version > newest:
        raise CorruptEvent(f"{tag} v{version} is newer than v{newest}, the newest this program knows")
    try:
        if version < newest:
            shape: Json = msgspec.json.decode(payload)
            for step in range(version, newest):
                shape = UPCASTERS[tag, step](shape)
            payload = _encoder.encode(shape)
        event = _decoder.decode(payload)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise CorruptEvent(f"{tag} v{version}: {exc}") from exc
    if tag_of(event) != tag:
        raise CorruptEvent(f"a row of type {tag} holds {tag_of(event)}")
    return event
