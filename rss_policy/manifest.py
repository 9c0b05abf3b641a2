"""The manifest of a policy, `policy.toml`: its entry module, its limits and what it may use."""

import difflib
import re
import tomllib

import msgspec

from rss_policy.errors import BundleRefused

MANIFEST_PATH = "policy.toml"
SURVIVED = frozenset({"recursion", "outcome_bytes"})
"""Limits that a script can meet and go on from; where they lie decides what it does next, so a replay has the same."""
MODULE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backstops for one script; sizes are in bytes of JSON text.

    A manifest can only narrow what the engine was given.  In a replay they are ten times wider, but for
    those in `SURVIVED`.

    Attributes:
        step_seconds: computing between two waits.
        memory_mb: the script's heap, in units of 1,000,000 bytes.
        recursion: depth of function calls.
        host_calls: everything that the script asks of the host, over the run.
        step_acts: everything that the script asks of the host between two waits.
        context_bytes: the context that the run starts with.
        event_bytes: one emitted event.
        call_bytes: the payload of one host call.
        outcome_bytes: the outcome of one host call.
        result_bytes: what the script returns.
        held_bytes: everything that the host keeps for it at once: what it emitted since its last wait, its open calls,
            and outcomes that it has not joined.
    """

    step_seconds: float = 5.0
    memory_mb: int = 64
    recursion: int = 500
    host_calls: int = 200_000
    step_acts: int = 10_000
    context_bytes: int = 2_000_000
    event_bytes: int = 4_000_000
    call_bytes: int = 8_000_000
    outcome_bytes: int = 8_000_000
    result_bytes: int = 4_000_000
    held_bytes: int = 24_000_000

    def wider(self, factor: int) -> "Limits":
        """Return the same limits, those that end a script `factor` times wider."""
        ending = [name for name in self.__struct_fields__ if name not in SURVIVED]
        return msgspec.structs.replace(self, **{name: getattr(self, name) * factor for name in ending})

    def narrowed(self, by: "NarrowedLimits") -> "Limits":
        """Return these limits, each replaced by the manifest's where that one is smaller."""
        smaller = {name: getattr(by, name) for name in self.__struct_fields__ if getattr(by, name) is not None}
        return Limits(
            **{name: min(getattr(self, name), smaller.get(name, getattr(self, name))) for name in self.__struct_fields__}
        )


class NarrowedLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[limits]` table of a manifest; what is left out stays as the engine has it."""

    step_seconds: float | None = None
    memory_mb: int | None = None
    recursion: int | None = None
    host_calls: int | None = None
    step_acts: int | None = None
    context_bytes: int | None = None
    event_bytes: int | None = None
    call_bytes: int | None = None
    outcome_bytes: int | None = None
    result_bytes: int | None = None
    held_bytes: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy's manifest.

    Attributes:
        name: what people call it.
        version: the author's own count.
        entry: the module that defines `async def run(context)`.
        modules: if given, exactly the modules that the folder must hold.
        tools: names of the tools that the policy may be offered; None for all that the profile has.
        providers: names of the providers that the policy may talk to; None for all that are configured.
        limits: narrower limits than the engine's.
    """

    name: str
    version: str
    entry: str
    modules: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    providers: tuple[str, ...] | None = None
    limits: NarrowedLimits = NarrowedLimits()


def read_manifest(text: str) -> Manifest:
    """Decode a `policy.toml`, strictly.

    Raises:
        BundleRefused: it is no TOML, a key is unknown or missing, or a value does not fit.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BundleRefused(f"{MANIFEST_PATH} is not TOML: {fault}", MANIFEST_PATH) from None
    _refuse_unknown(table, Manifest, "")
    if isinstance(table.get("limits"), dict):
        _refuse_unknown(table["limits"], NarrowedLimits, "limits.")
    try:
        manifest = msgspec.convert(table, Manifest)
    except msgspec.ValidationError as fault:
        raise BundleRefused(f"{MANIFEST_PATH}: {fault}", MANIFEST_PATH) from None
    _refuse_senseless(manifest)
    return manifest


def _refuse_unknown(table: dict[str, object], shape: type[msgspec.Struct], where: str) -> None:
    known = shape.__struct_fields__
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {where}{near[0]}?" if near else f"; known are {', '.join(known)}"
            raise BundleRefused(f"{MANIFEST_PATH}: there is no key {where}{key}{hint}", MANIFEST_PATH)


def _refuse_senseless(manifest: Manifest) -> None:
    for module in (manifest.entry, *(manifest.modules or ())):
        if not MODULE_NAME.fullmatch(module):
            raise BundleRefused(f"{MANIFEST_PATH}: {module!r} is not a module's name", MANIFEST_PATH)
    for name in NarrowedLimits.__struct_fields__:
        value = getattr(manifest.limits, name)
        if value is not None and value <= 0:
            raise BundleRefused(f"{MANIFEST_PATH}: limits.{name} must be above zero", MANIFEST_PATH)
