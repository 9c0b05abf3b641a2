"""What the actors are given by whoever puts the server together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.ports import Clock, Ids, ModelTransport, Profiles
from eventstore.log import EventLog
from eventstore.queries import Queries
from rss_policy.script import Engine


def unchanged(value: Any) -> Any:
    """Clean nothing."""
    return value


@dataclass(frozen=True, slots=True)
class World:
    """What the composition root gives and closes.

    `clean` takes secrets out of JSON values, `clean_bytes` secrets out of raw streams.
    """

    log: EventLog
    queries: Queries
    engine: Engine
    profiles: Profiles
    transport: ModelTransport
    clock: Clock
    ids: Ids
    clean: Callable[[Any], Any] = unchanged
    clean_bytes: Callable[[bytes], bytes] = bytes
