"""Every benchmark still runs, in its tiniest form; nothing is said about times, which are the machine's."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.figures import Figure, quantile

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = ("appends", "first_delta", "idle", "replay", "size", "streams", "throughput", "turn")
COUNTED = (
    "answered and not completed in the log",
    "runs with a gap in their events",
    "turns that were refused",
    "6 streams of 2 runs: not read to the end",
)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_loses_nothing(name: str) -> None:
    figures = import_module(f"benchmarks.{name}").measure("tiny")
    assert figures
    assert all(str(figure).strip() for figure in figures)
    assert [figure.what for figure in figures if figure.what in COUNTED and not figure.met] == []


def test_the_readme_tells_every_benchmark() -> None:
    said = (FOLDER / "README.md").read_text("utf-8")
    programs = [path.stem for path in FOLDER.glob("[a-z]*.py") if "\n    main(" in path.read_text("utf-8")]
    assert {*NAMES} <= {*programs}
    assert [name for name in NAMES if f"benchmarks.{name}" not in said] == []


def test_a_target_is_met_or_missed_by_its_own_side() -> None:
    assert Figure("at most", 3.0, "ms", 3.0).met
    assert not Figure("at most", 3.1, "ms", 3.0).met
    assert Figure("at least", 3.1, "/s", 3.0, at_least=True).met
    assert not Figure("at least", 2.9, "/s", 3.0, at_least=True).met
    assert Figure("told", 1.0, "ms").met is None


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert quantile([1.0], 0.99) == 1.0
    assert quantile(list(map(float, range(1, 101))), 0.99) == 99.0
