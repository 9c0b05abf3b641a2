"""What a session's and a run's row say after an event, and how many rows are remembered."""

from eventstore.catalogue import Origin, RunStarted, TurnSettled, TurnStarted
from eventstore.layers import Layers
from eventstore.projections import Run, Session, run_after, session_after

NEW: dict[str, object] = {"owner": "ann", "profile": "default", "metadata": {}, "created_at": 1}


def test_only_the_end_of_the_active_turn_leaves_a_session_without_one() -> None:
    origin, shape = Origin(), {"title": None, "busy": "queue", "ephemeral": False, "parent_session_id": None}
    fresh = Session(session_id="1", origin=origin, updated_at=1, **shape, **NEW)  # type: ignore[arg-type]
    active = session_after(fresh, TurnStarted(run_id="b"), 2)
    assert session_after(active, TurnSettled(run_id="a", status="cancelled"), 3).active_run_id == "b"
    assert session_after(active, TurnSettled(run_id="b", status="completed"), 3).active_run_id is None


def test_a_run_keeps_the_model_that_it_was_admitted_with_until_it_starts_with_another() -> None:
    places = {"parent_run_id": None, "platform": "http", "admitted": 1, "inputs": 0}
    queued = Run(run_id="1", session_id="1", model="small", provider="custom", **places, **NEW)  # type: ignore[arg-type]
    kept = run_after(queued, RunStarted(seq=1, session_id="1"), 2, 2)
    assert (kept.status, kept.model, kept.provider) == ("running", "small", "custom")
    changed = run_after(queued, RunStarted(seq=1, session_id="1", model="big", provider="local"), 2, 2)
    assert (changed.model, changed.provider) == ("big", "local")


def test_the_rows_that_are_remembered_are_bounded_and_those_not_remembered_are_loaded() -> None:
    loaded: list[str] = []

    def load(name: str) -> str:
        loaded.append(name)
        return name.upper()

    layers = Layers(load, keep=2)
    assert [layers.get(name) for name in "abbcba"] == list("ABBCBA")
    assert loaded == ["a", "b", "c", "a"]
    for name in "xyz":
        layers.put(name, "new")
    layers.accept()
    layers.committed()
    assert [layers.get(name) for name in "yzx"] == ["new", "new", "X"]
