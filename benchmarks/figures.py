"""How a benchmark is run and how it tells what it found: its size, and figures with their targets, floors and peers."""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Size = Literal["tiny", "quick", "full"]
"""`tiny` only shows that the benchmark works, `quick` takes seconds, `full` gives the figures of the README."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number; `limit` is the target, which the value may reach but not exceed, or not fall short of (`at_least`).

    `beside`: what it was compared with in the same run, in words.
    """

    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    beside: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        words = {None: "", True: "met", False: "MISSED"}[self.met]
        bound = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {_short(self.limit)} {words}"
        return f"  {self.what:<52} {_short(self.value):>9} {self.unit:<9} {bound:<18} {self.beside}".rstrip()


Measure = Callable[[Size], Sequence[Figure]]


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which `part` (0 to 1) of the values are; nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]


def spread(what: str, seconds: Sequence[float], *, p50: float | None = None, p99: float | None = None) -> list[Figure]:
    """Return median and 99th percentile of durations as figures in milliseconds; `p50` and `p99` are targets in ms."""
    of = f"of {len(seconds)}"
    return [
        Figure(f"{what}, p50", statistics.median(seconds) * 1e3, "ms", p50, beside=of),
        Figure(f"{what}, p99", quantile(seconds, 0.99) * 1e3, "ms", p99, beside=of),
    ]


def main(measure: Measure) -> None:
    """Run one benchmark as a program and print what it found."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", dest="size", action="store_const", const="quick", help="seconds (the default)")
    sizes.add_argument("--full", dest="size", action="store_const", const="full", help="minutes, for the README")
    sizes.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="only show that it works")
    size: Size = parser.parse_args().size or "quick"
    for figure in measure(size):
        print(figure, flush=True)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
