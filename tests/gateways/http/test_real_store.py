"""The same streams over the log in SQLite: long catch-ups, filters, and a server that starts again on the same directory."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from eventstore.catalogue import ModelDelta
from eventstore.redaction import Redactor
from eventstore.sqlite import open_store
from gateways.http.ports import HttpSettings
from tests.fakes.service import FakeService, said
from tests.gateways.http.conftest import Served, World, world_over
from tests.gateways.http.test_streams import start


@pytest.fixture
def world(tmp_path: Path, settings: HttpSettings) -> Iterator[World]:
    store = open_store(tmp_path / "data", Redactor(), holder="test")
    yield world_over(store.log, store.queries, tmp_path, settings)
    store.close()


def test_a_long_run_is_caught_up_page_by_page_and_then_followed(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    for number in range(400):
        served.service.emit(run_id, ModelDelta, attempt=1, text=str(number))
    reader = served.stream(f"/v1/runs/{run_id}/events")
    seen = [reader.event()["seq"] for _ in range(402)]
    served.service.finish(run_id, said("all"))
    seen += [event["seq"] for event in reader.events()]
    assert seen == list(range(1, 405))


def test_pages_keys_and_lists_are_as_over_the_memory(served: Served) -> None:
    key = {"Idempotency-Key": "k"}
    made = [requests.post(f"{served.url}/v1/runs", json={"input": "hi"}, headers=key, timeout=10) for _ in range(2)]
    assert made[0].json()["run_id"] == made[1].json()["run_id"]
    run_id = made[0].json()["run_id"]
    served.service.answer(run_id, "a", "b")
    page = requests.get(f"{served.url}/v1/runs/{run_id}/events?types=model.delta&limit=1", timeout=10).json()
    assert ([each["seq"] for each in page["data"]], page["has_more"], page["next"]) == ([3], True, 3)
    metrics = requests.get(f"{served.url}/metrics", timeout=10).text
    assert 'deedbox_runs{status="completed"} 1.0' in metrics
    assert "deedbox_database_bytes 0.0" not in metrics


def test_a_client_resumes_at_a_server_that_started_again_on_the_same_directory(
    tmp_path: Path, settings: HttpSettings, make_served: Callable[..., Served], world: World
) -> None:
    before = make_served()
    run_id = start(before)
    before.service.start(run_id)
    reader = before.stream(f"/v1/runs/{run_id}/events")
    seen = [reader.event()["seq"], reader.event()["seq"]]
    before.close()
    before.service.finish(run_id, said("hi"))
    world.ports = replace(world.ports, service=FakeService(world.log, world.ports.queries))
    again = make_served().stream(f"/v1/runs/{run_id}/events", f"Last-Event-ID: {seen[-1]}")
    seen += [event["seq"] for event in again.events()]
    assert seen == [1, 2, 3, 4]
