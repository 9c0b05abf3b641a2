"""Rows of the current transaction, in layers: what this append wants, what this transaction holds, what is kept of before.

An append that fails takes back its own layer, a transaction that fails takes back everything.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Layers(Generic[V]):
    """A bounded cache of rows by name, with undo; used by one thread.  `load` reads a row that is in no layer."""

    def __init__(self, load: Callable[[str], V | None], keep: int = 2048) -> None:
        self._load, self._keep = load, keep
        self._trial: dict[str, V] = {}
        self._changed: dict[str, V] = {}
        self._kept: dict[str, V] = {}

    def get(self, name: str) -> V | None:
        """Return the row as this append sees it."""
        for layer in (self._trial, self._changed, self._kept):
            if (row := layer.get(name)) is not None:
                return row
        row = self._load(name)
        if row is not None:
            self._remember(name, row)
        return row

    def put(self, name: str, row: V) -> None:
        """Change a row, for this append."""
        self._trial[name] = row

    def accept(self) -> None:
        """The append went well: its changes belong to the transaction."""
        self._changed.update(self._trial)
        self._trial.clear()

    def refuse(self) -> None:
        """The append failed: its changes never were."""
        self._trial.clear()

    def changed(self) -> dict[str, V]:
        """Return what the transaction has changed so far."""
        return self._changed

    def committed(self) -> None:
        """The transaction is durable: keep its rows for the next one."""
        for name, row in self._changed.items():
            self._remember(name, row)
        self._changed.clear()

    def forget(self) -> None:
        """The transaction failed, or somebody else wrote: trust nothing."""
        self._trial.clear()
        self._changed.clear()
        self._kept.clear()

    def _remember(self, name: str, row: V) -> None:
        self._kept.pop(name, None)
        self._kept[name] = row
        if len(self._kept) > self._keep:
            del self._kept[next(iter(self._kept))]
