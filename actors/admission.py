"""What a message asks for, made into a command: whose session, which profile, model and limits, and what to prepare."""

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import Any

from actors.aggregate import Attachments
from actors.context import Contexts, Prepared, canonical, messages_of, tidy
from actors.errors import Refused
from actors.ports import Profile
from actors.run_state import tool_calls_of
from actors.service import Inbound
from actors.session_commands import Basis, ReceiveMessage
from actors.settings import Settings
from actors.slots import Slots
from actors.world import World
from eventstore.catalogue import Json, RunAdmitted, SessionCreated
from eventstore.queries import SessionRow

ROLES = frozenset({"user", "tool"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A message ready for its session; `prepared` where a context was made, `slot` where the run holds a place."""

    session_id: str
    command: ReceiveMessage
    prepared: Prepared | None
    slot: bool

    @property
    def run_id(self) -> str:
        """The run that is to answer, unless the message steers another."""
        return self.command.admitted.run_id


class Admissions:
    """Plans admissions; blocks on the log, for gateways' threads."""

    def __init__(self, world: World, settings: Settings, contexts: Contexts, slots: Slots) -> None:
        self._world, self._settings, self._contexts, self._slots = world, settings, contexts, slots

    def plan(self, inbound: Inbound) -> Plan:
        """Plan a message that is not a known repeat.

        Raises:
            Refused: it does not fit; nothing was recorded, and nothing is booked.
            LogError: the log failed.
        """
        inbound = self._cleaned(inbound)
        self._check(inbound)
        session_id, row = self._session(inbound)
        inbound = self._with_names(inbound, row)
        profile = self.profile(inbound.profile or (row.profile if row is not None else "default"))
        admitted = self._admitted(inbound, session_id, row, profile)
        idle = row is None or row.active_run_id is None
        slot = self._slots.book(admitted.run_id, place=idle)
        try:
            return self._plan(inbound, admitted, profile, row, slot=slot)
        except BaseException:
            self._slots.give_back(admitted.run_id, waits=False)
            raise

    def profile(self, name: str) -> Profile:
        """Return a profile.

        Raises:
            Refused: `unknown_profile`.
        """
        profile = self._world.profiles.find(name)
        if profile is None:
            known = ", ".join(sorted(self._world.profiles.names()))
            raise Refused("unknown_profile", f"there is no profile {name!r}; known are {known}")
        return profile

    def provider(self, name: str | None) -> str | None:
        """Return the name of a provider that is configured.

        Raises:
            Refused: `unknown_provider`.
        """
        if name is not None and self._world.profiles.provider(name) is None:
            known = ", ".join(sorted(self._world.profiles.provider_names()))
            raise Refused("unknown_provider", f"there is no provider {name!r}; known are {known}")
        return name

    def model(self, provider: str | None, name: str | None) -> str | None:
        """Return the name of a model, unless its provider is known to have others alone.

        Raises:
            Refused: `model_not_found`.
        """
        known = self._world.profiles.closed_models(provider) if provider is not None and name is not None else None
        if known is not None and name not in known:
            raise Refused("model_not_found", f"{provider} has no model {name!r}; known are {', '.join(known)}")
        return name

    def choice(self, profile: str, provider: str | None, model: str | None) -> None:
        """Check a session's choice of provider and model; without a provider the profile's is meant.

        Raises:
            Refused: `model_not_found`.
        """
        found = self._world.profiles.find(profile)
        self.model(provider or (found.provider if found is not None else None), model)

    def _plan(
        self, inbound: Inbound, admitted: RunAdmitted, profile: Profile, row: SessionRow | None, *, slot: bool
    ) -> Plan:
        first = row is None or row.run_count == 0
        prepared = None
        if slot or first:
            prepared = self._contexts.prepare(admitted, profile, inbound.history if row is None else None)
        command = ReceiveMessage(
            admitted=admitted,
            basis=Basis(row.run_count, row.profile, row.model, row.provider) if row is not None else Basis(0, profile.name),
            most_waiting=self._settings.session_queue,
            received_at=self._world.clock.now(),
            create=_created(inbound, profile) if row is None else None,
            history=inbound.history,
            freeze=prepared.freeze if prepared is not None and first else None,
            start=prepared.start if prepared is not None and slot else None,
            key=inbound.key,
            fingerprint=inbound.fingerprint,
            user_id=inbound.user_id,
            attachments=Attachments(blobs=self._contexts.unstored(prepared) if prepared is not None else ()),
        )
        return Plan(admitted.session_id, command, prepared, slot)

    def _cleaned(self, inbound: Inbound) -> Inbound:
        """Take secrets out before anything is made from the message, so that the log gives back what was prepared."""

        def clean(value: Any) -> Any:
            return self._world.clean(tidy(value))

        try:
            return replace(
                inbound,
                input=tuple(clean(message) for message in inbound.input),
                history=tuple(clean(message) for message in inbound.history),
                system_prompt=clean(inbound.system_prompt),
                metadata=clean(inbound.metadata),
                provider_options=clean(inbound.provider_options),
                client_tools=tuple(clean(tool) for tool in inbound.client_tools),
                limits=clean(inbound.limits),
                title=clean(inbound.title),
            )
        except RecursionError:
            raise Refused("invalid_command", "the message is nested too deeply") from None

    def _check(self, inbound: Inbound) -> None:
        if not inbound.input:
            raise Refused("invalid_command", "a message needs at least one part of input")
        if any(message.get("role") not in ROLES for message in inbound.input):
            raise Refused("invalid_command", "input takes messages of the roles user and tool only")
        for name, value in (inbound.limits or {}).items():
            if type(value) is not int or value < 0:  # anything else would lift the limit that it replaces
                raise Refused("invalid_command", f"the limit {name!r} must be a whole number that is not negative")
        size, most = len(canonical(inbound.input)), self._settings.max_input_bytes
        if size > most:
            raise Refused("input_too_large", f"the input has {size} bytes, {most} are allowed (limits.max_input_bytes)")

    def _session(self, inbound: Inbound) -> tuple[str, SessionRow | None]:
        """Return the session's id, and its row if it exists.

        A new session's id follows from the idempotency key, so that the same message sent twice at once meets itself.
        """
        queries = self._world.queries
        if inbound.session_id is None:
            session_id = _id_of(inbound.owner, inbound.key) if inbound.key is not None else self._world.ids.new("ses")
            return session_id, queries.session(inbound.owner, session_id) if inbound.key is not None else None
        row = queries.session(inbound.owner, inbound.session_id)
        taken = row is None and queries.session(None, inbound.session_id) is not None
        if taken or (row is None and not inbound.create_if_missing) or (row is not None and row.ephemeral):
            raise Refused("session_not_found", "there is no such session")
        return inbound.session_id, row

    def _with_names(self, inbound: Inbound, row: SessionRow | None) -> Inbound:
        """Give results the names of the calls that they answer, from the record, where the client left them out."""
        if row is None or not any(_lacks_name(message) for message in inbound.input):
            return inbound
        names: dict[str, str] = {}
        for each in messages_of(self._world.queries, row.session_id):
            names |= tool_calls_of(each.message)
        filled = (
            {**each, "name": names.get(str(each.get("call_id")), "")} if _lacks_name(each) else each
            for each in inbound.input
        )
        return replace(inbound, input=tuple(filled))

    def _admitted(self, inbound: Inbound, session_id: str, row: SessionRow | None, profile: Profile) -> RunAdmitted:
        ids = self._world.ids
        provider = self.provider(inbound.provider or (row.provider if row is not None else None) or profile.provider)
        return RunAdmitted(
            session_id=session_id,
            owner=inbound.owner,
            message_id=inbound.message_id or ids.new("msg"),
            input=inbound.input,
            run_id=ids.new("run"),
            profile=profile.name,
            model=self.model(provider, inbound.model or (row.model if row is not None else None) or profile.model),
            provider=provider,
            platform=row.origin.platform if row is not None else inbound.origin.platform,
            provider_options=inbound.provider_options or {},
            tool_schemas=inbound.client_tools,
            system_prompt=inbound.system_prompt,
            limits=self._settings.limits_of(profile.limits, inbound.limits),
            metadata=inbound.metadata or {},
            on_disconnect=inbound.on_disconnect,
        )


def _lacks_name(message: Json) -> bool:
    return message["role"] == "tool" and not message.get("name")


def _created(inbound: Inbound, profile: Profile) -> SessionCreated:
    return SessionCreated(
        owner=inbound.owner,
        origin=inbound.origin,
        profile=profile.name,
        title=inbound.title,
        ephemeral=inbound.ephemeral,
        busy=profile.busy,
    )


def _id_of(*parts: Any) -> str:
    digest = hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()
    return "ses_" + base64.b32hexencode(digest).decode("ascii")[:26]
