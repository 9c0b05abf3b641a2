"""An outcome of a host call on its way to the script."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventstore.catalogue import Json, Outcome


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a call brought: `value` for the script, `outcome` for the journal; of a read also its raw bytes.

    `of`: the request whose stream was read, or 0.
    """

    number: int
    value: Any
    outcome: Outcome
    raw: bytes = b""
    of: int = 0


Deliver = Callable[[Delivery], None]
"""Takes an outcome from any thread; one that comes too late, or second, is dropped."""


def plain(number: int, value: Json) -> Delivery:
    """Return an outcome that the journal keeps as it is."""
    return Delivery(number, value, Outcome(value=value))
