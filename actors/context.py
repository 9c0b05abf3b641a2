"""What a run starts from: its script's context, made from the log alone, and the digest that holds it fast.

Whatever the configuration gives (tool schemas, what a script may know of the provider, the policy bundle) is kept as a
blob under its hash and named in `run.started`; so a context can be made again from the log, at a take-up, in a replay or
in an audit, whatever the configuration says by then.
"""

import hashlib
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from actors.errors import Refused
from actors.ports import Profile
from actors.settings import Settings, limit
from actors.transcript import paired
from actors.world import World
from eventstore.catalogue import ContextFrozen, Json, RunAdmitted, RunStarted
from eventstore.log import EventLog, NamedBlob
from eventstore.queries import Queries
from rss_policy.script import BundleRef
from rss_policy.wire import well_formed

PAGE = 256
PREPARED = 256
"""Contexts that were prepared and not yet opened; one that is dropped is made again from the log."""


class ContextChanged(Exception):
    """The log does not give the context any more that the run started from."""

    code = "context_changed"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run's start, ready to be recorded: the event, what the session freezes, the blobs, and the context itself."""

    start: RunStarted
    freeze: ContextFrozen
    blobs: tuple[NamedBlob, ...]
    context: Json
    size: int


@dataclass(frozen=True, slots=True)
class Opened:
    """What a started run's script is opened with."""

    admitted: RunAdmitted
    context: Json
    bundle: BundleRef


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")


def tidy(value: Any) -> Any:
    """Return a JSON value as the log will give it back: real Unicode, and null for numbers that JSON lacks."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {well_formed(str(key)): tidy(held) for key, held in value.items()}
        case list() | tuple():
            return [tidy(held) for held in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def digest_of(value: Any) -> str:
    """Return SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


class Contexts:
    """Prepares runs and makes their contexts again; blocks on the log, so not for actors; from any thread."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world, self._settings = world, settings
        self._lock = threading.Lock()
        self._prepared: OrderedDict[str, Json] = OrderedDict()
        self._stored: set[str] = set()

    def prepare(self, admitted: RunAdmitted, profile: Profile, history: tuple[Json, ...] | None = None) -> Prepared:
        """Prepare a run of a session that is idle; `history` is that of a session that does not exist yet.

        Raises:
            Refused: `context_too_large`.
            LogError: the log failed.
        """
        profile = replace(
            profile, system_prompt=self._world.clean(tidy(profile.system_prompt))
        )  # as the log will give it back
        frozen = self.frozen(admitted.session_id) if history is None else None
        rows = list(self._messages(admitted.session_id)) if history is None else []
        surroundings = self._surroundings(admitted, profile, frozen)
        messages = history if history is not None else tuple(row.message for row in rows)
        context = _context(admitted, messages, surroundings)
        data = canonical(context)
        if len(data) > self._settings.max_context_bytes:
            most = self._settings.max_context_bytes
            raise Refused("context_too_large", f"the conversation has {len(data)} bytes, {most} are allowed")
        start = self._start(admitted, surroundings, hashlib.sha256(data).hexdigest(), rows[-1].position if rows else 0)
        return Prepared(start, surroundings.freeze, surroundings.blobs, context, len(data))

    def keep(self, run_id: str, prepared: Prepared) -> None:
        """Keep a context for the script that opens it soon."""
        with self._lock:
            self._prepared[run_id] = prepared.context
            while len(self._prepared) > PREPARED:
                self._prepared.popitem(last=False)

    def unstored(self, prepared: Prepared) -> tuple[NamedBlob, ...]:
        """Return the blobs that this process has not seen in the log yet."""
        return tuple(blob for blob in prepared.blobs if blob.name not in self._stored)

    def note_stored(self, blobs: Iterable[NamedBlob]) -> None:
        """Remember blobs that are in the log now."""
        self._stored.update(blob.name for blob in blobs)

    def prepare_queued(self, run_id: str) -> Prepared | None:
        """Prepare a run that was admitted earlier and whose turn has come; None if it has begun or ended meanwhile.

        Raises:
            Refused: `context_too_large`, or `unknown_profile`: its profile is not configured any more.
            LogError: the log failed.
        """
        events = [envelope.event for envelope in self._world.log.read(f"run-{run_id}")]
        if len(events) != 1 or not isinstance(events[0], RunAdmitted):
            return None
        profile = self._world.profiles.find(events[0].profile)
        if profile is None:
            raise Refused("unknown_profile", f"there is no profile {events[0].profile!r} any more")
        prepared = self.prepare(events[0], profile)
        self.keep(run_id, prepared)
        return prepared

    def open(self, run_id: str) -> "Opened":
        """Return what a started run's script is opened with: as prepared just now, else from the log.

        Raises:
            ContextChanged: the log gives another context than `run.started` says.
            PolicyError: the bundle is nowhere.
        """
        with self._lock:
            kept = self._prepared.pop(run_id, None)
        admitted, started, position = started_run(self._world.log, run_id)
        bundle = self._world.profiles.bundle(started.policy_digest, self._world.log.blob)
        context = kept if kept is not None else rebuilt(self._world.log, self._world.queries, admitted, started, position)
        return Opened(admitted, context, bundle)

    def frozen(self, session_id: str) -> ContextFrozen | None:
        """Return what a session's first run froze."""
        for envelope in self._world.log.read(f"session-{session_id}"):
            if isinstance(envelope.event, ContextFrozen):
                return envelope.event
        return None

    def _messages(self, session_id: str) -> Iterator[Any]:
        return messages_of(self._world.queries, session_id)

    def _surroundings(self, admitted: RunAdmitted, profile: Profile, frozen: ContextFrozen | None) -> "Surroundings":
        provider = self._world.profiles.provider(admitted.provider) if admitted.provider is not None else None
        found = Surroundings.of(profile, admitted, dict(provider) if provider is not None else None)
        return found if frozen is None else found.as_frozen(frozen, self._world.log)

    def _start(self, admitted: RunAdmitted, around: "Surroundings", digest: str, position: int) -> RunStarted:
        deadline = self._world.clock.now() + 1_000 * limit(admitted.limits, "deadline_ms")
        return RunStarted(
            seq=1,
            session_id=admitted.session_id,
            parent_run_id=admitted.parent_run_id,
            profile=admitted.profile,
            model=admitted.model,
            provider=admitted.provider,
            policy_digest=around.freeze.policy_digest,
            engine=self._world.engine.version,
            context_position=position,
            context_digest=digest,
            deadline_at=deadline,
            capabilities=around.capabilities,
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the configuration gives to a run, and under which hashes it is kept."""

    freeze: ContextFrozen
    tools: tuple[Json, ...]
    provider: Json | None
    blobs: tuple[NamedBlob, ...]
    capabilities: Json

    @classmethod
    def of(cls, profile: Profile, admitted: RunAdmitted, provider: Json | None) -> "Surroundings":
        """Return what a profile gives to the first run of a session."""
        tools = tuple(dict(schema) for schema in profile.toolbox.schemas())
        prompt = admitted.system_prompt if admitted.system_prompt is not None else profile.system_prompt
        bundle = NamedBlob(f"policy:{profile.bundle.digest}", profile.bundle.archive)
        hashes = tuple(digest_of(tool) for tool in tools)
        freeze = ContextFrozen(
            system_prompt=prompt,
            policy_digest=profile.bundle.digest,
            profile=profile.name,
            tool_schema_hashes=hashes,
            digest=digest_of([prompt, profile.bundle.digest, profile.name, list(hashes)]),
        )
        return cls(freeze, tools, provider, (bundle, *_kept((*tools, provider))), _capabilities(provider, hashes))

    def as_frozen(self, frozen: ContextFrozen, log: EventLog) -> "Surroundings":
        """Return the same with what the session froze at its first run in place of what the profile gives now."""
        known = dict(zip(self.freeze.tool_schema_hashes, self.tools, strict=True))
        tools = tuple(known.get(name) or _value(log, name) for name in frozen.tool_schema_hashes)
        capabilities = _capabilities(self.provider, frozen.tool_schema_hashes)
        return Surroundings(frozen, tools, self.provider, self.blobs, capabilities)


def started_run(log: EventLog, run_id: str) -> tuple[RunAdmitted, RunStarted, int]:
    """Return how a run was admitted and started, and the position of its start.

    Raises:
        ContextChanged: the run has not started.
    """
    admitted: RunAdmitted | None = None
    for envelope in log.read(f"run-{run_id}"):
        if isinstance(envelope.event, RunAdmitted):
            admitted = envelope.event
        elif isinstance(envelope.event, RunStarted) and admitted is not None:
            return admitted, envelope.event, envelope.position
    raise ContextChanged(f"{run_id} has not started")


def rebuilt(log: EventLog, queries: Queries, admitted: RunAdmitted, started: RunStarted, position: int) -> Json:
    """Return a run's context from the log.

    Raises:
        ContextChanged: its digest is not the recorded one.
    """
    names = started.capabilities
    provider = _value(log, names["provider"]) if names.get("provider") else None
    tools = tuple(_value(log, name) for name in names.get("tools", ()))
    prompt = next(
        (
            each.event.system_prompt
            for each in log.read(f"session-{admitted.session_id}")
            if isinstance(each.event, ContextFrozen)
        ),
        None,
    )
    freeze = ContextFrozen(system_prompt=prompt, policy_digest=started.policy_digest, profile=started.profile)
    messages = tuple(row.message for row in messages_of(queries, admitted.session_id, until=position - 1))
    context = _context(admitted, messages, Surroundings(freeze, tools, provider, (), names))
    if digest_of(context) != started.context_digest:
        raise ContextChanged("the log gives another context than the run started from: something in it was removed")
    return context


def messages_of(queries: Queries, session_id: str, until: int | None = None) -> Iterator[Any]:
    """Yield the rows of a session's transcript, page by page."""
    after = 0
    while rows := queries.messages(session_id, limit=PAGE, after=after, until=until):
        yield from rows
        after = rows[-1].ordinal


def _context(admitted: RunAdmitted, messages: tuple[Json, ...], around: Surroundings) -> Json:
    client = {str(tool["name"]): {**tool, "client": True} for tool in admitted.tool_schemas}
    own = {str(tool["name"]): {**tool, "client": False} for tool in around.tools}
    tools = {**own, **client}
    prompt = admitted.system_prompt if admitted.system_prompt is not None else around.freeze.system_prompt
    context = {
        "run_id": admitted.run_id,
        "session_id": admitted.session_id,
        "parent_run_id": admitted.parent_run_id,
        "platform": admitted.platform,
        "input": list(admitted.input),
        "messages": paired(messages, admitted.input),
        "system_prompt": prompt,
        "model": admitted.model,
        "provider": around.provider,
        "provider_options": admitted.provider_options,
        "tool_schemas": [tools[name] for name in sorted(tools)],
        "limits": admitted.limits,
        "metadata": admitted.metadata,
    }
    plain: Json = msgspec.to_builtins(context)
    return plain


def _capabilities(provider: Json | None, tools: tuple[str, ...]) -> Json:
    return {"provider": None if provider is None else digest_of(provider), "tools": list(tools)}


def _kept(values: tuple[Mapping[str, Any] | None, ...]) -> tuple[NamedBlob, ...]:
    return tuple(NamedBlob(f"value:{digest_of(value)}", canonical(value)) for value in values if value is not None)


def _value(log: EventLog, digest: str) -> Json:
    data = log.blob(f"value:{digest}")
    if data is None:
        raise ContextChanged(f"the log does not hold the value {digest}")
    value: Json = json.loads(data)
    return value
