"""What the actors let a server, a session and a run use; the composition root fills it from the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

RECOVERIES: Final = 3
"""How often a run is taken up without progress (design, section 5)."""

MAX_CONTEXT_BYTES: Final = 2_000_000
"""The most JSON that a script's context may be (design, section 4)."""

RUN_LIMITS: Final[Mapping[str, int]] = {
    "deadline_ms": 3_600_000,
    "max_turns": 50,
    "max_events": 20_000,
    "max_event_bytes": 4_194_304,
    "max_open_calls": 256,
}
"""A run's limits where neither the profile nor the message says otherwise; what a message says may only narrow them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in seconds.

    `active_runs`, `queued_runs`: in the whole server; `session_queue`: runs that wait in one session.  `answer_timeout`: how
    long a gateway waits for an actor.  `tool_grace`: how long a cancelled run waits for its tools to end.
    """

    recovery: Literal["resume", "fail"] = "resume"
    active_runs: int = 64
    queued_runs: int = 1_000
    session_queue: int = 100
    max_input_bytes: int = 1_048_576
    max_context_bytes: int = MAX_CONTEXT_BYTES
    answer_timeout: float = 10.0
    tool_grace: float = 0.06
    script_threads: int = 16
    model_threads: int = 128
    tool_threads: int = 32
    limits: Mapping[str, Any] = field(default_factory=lambda: dict(RUN_LIMITS))

    def limits_of(self, profile: Mapping[str, Any], asked: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return a run's limits: the server's, the profile's over them, and what was asked where it is narrower."""
        limits = {**RUN_LIMITS, **self.limits, **profile}
        for name, value in (asked or {}).items():
            known = limits.get(name)
            limits[name] = min(known, value) if isinstance(known, int) and isinstance(value, int) else value
        return limits


def limit(limits: Mapping[str, Any], name: str) -> int:
    """Return a run's limit, or its default where the record has none or something else than a number."""
    value = limits.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else RUN_LIMITS[name]
