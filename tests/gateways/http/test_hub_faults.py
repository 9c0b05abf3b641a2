"""Faults around the hub: one stream's trouble stays its own, and what was too much at once is read from the log."""

import socket

import pytest
import requests

from eventstore.catalogue import ModelDelta
from gateways.http import hub
from gateways.http.hub import StreamHub
from gateways.http.streams import Ending, EventStream, RunRenderer
from tests.fakes.service import said
from tests.gateways.http.conftest import Reader, Served, World
from tests.gateways.http.test_streams import start, within


def test_what_is_published_faster_than_it_is_taken_is_read_in_pages_and_not_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(served)
    served.service.start(run_id)
    reader = served.stream(f"/v1/runs/{run_id}/events")
    reader.event()
    monkeypatch.setattr(hub, "MAX_PUBLISHED", 0)
    for _ in range(50):
        served.service.emit(run_id, ModelDelta, attempt=1, text="x")
    served.service.finish(run_id, said("x"))
    assert [event["seq"] for event in reader.events()] == list(range(2, 55))


def test_a_page_that_cannot_be_read_ends_that_stream_and_the_client_comes_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = start(served)
    served.service.start(run_id)

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk")

    with monkeypatch.context() as patched:
        patched.setattr(type(served.world.ports.queries), "events", broken)
        first = served.stream(f"/v1/runs/{run_id}/events")
        assert first.rest().endswith(b": cursor 0\n\n")
    assert "a page of a stream failed" in caplog.text
    assert served.stream(f"/v1/runs/{run_id}/events").event()["seq"] == 1


class Faulty(RunRenderer):
    """Fails at the first delta."""

    def _frame(self, envelope: object) -> bytes:
        if isinstance(getattr(envelope, "event", None), ModelDelta):
            raise ZeroDivisionError
        return super()._frame(envelope)  # type: ignore[arg-type]


def test_a_renderer_that_fails_ends_its_own_stream_and_no_other(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    good = served.stream(f"/v1/runs/{run_id}/events")
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    endings: list[Ending] = []
    served.server.gateway.hub.adopt(
        EventStream(run_id, 2, Faulty(), on_closed=lambda ending, _: endings.append(ending)), theirs
    )
    assert within(2, lambda: served.server.gateway.hub.active == 2)
    served.service.emit(run_id, ModelDelta, attempt=1, text="x")
    assert Reader(ours).rest()
    ours.close()
    assert within(2, lambda: endings == ["disconnected"])
    served.service.finish(run_id, said("x"))
    assert [event["seq"] for event in good.events()] == [1, 2, 3, 4, 5]


def test_a_callback_that_fails_keeps_no_other_from_being_told(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Ending] = []

    def fail(_: Ending, __: int) -> None:
        raise ZeroDivisionError

    run_id = start(served)
    pairs = [socket.socketpair() for _ in range(2)]
    for (_, theirs), on_closed in zip(pairs, (fail, lambda ending, _: told.append(ending)), strict=True):
        theirs.setblocking(False)
        served.server.gateway.hub.adopt(EventStream(run_id, 0, RunRenderer(), on_closed=on_closed), theirs)
    for ours, _ in pairs:
        ours.close()
    assert within(2, lambda: told == ["disconnected"])
    assert "could not be handled" in caplog.text


def test_a_hub_that_has_stopped_takes_nothing_and_says_so(world: World) -> None:
    stopped = StreamHub(world.ports.queries, heartbeat=1, first_event=1, stalled=1)
    stopped.start()
    stopped.stop()
    stopped.stop()
    ours, theirs = socket.socketpair()
    endings: list[Ending] = []
    stopped.adopt(EventStream("run_1", 0, RunRenderer(), on_closed=lambda ending, _: endings.append(ending)), theirs)
    assert endings == ["shutdown"]
    assert ours.recv(10) == b""
    ours.close()


def test_a_client_that_closes_only_its_sending_side_counts_as_gone(served: Served) -> None:
    reader = served.stream(f"/v1/runs/{start(served)}/events")
    reader.head()
    reader.sock.shutdown(socket.SHUT_WR)
    assert within(2, lambda: served.server.gateway.streams.taken == 0)
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
