"""A server under load, killed at random moments: the short form of `python -m tests.crash.soak`."""

from pathlib import Path

from tests.crash.soak import soak


def test_a_server_that_is_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    soak(tmp_path, kills=2, runs=12, seed=7)
