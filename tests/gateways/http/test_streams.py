"""Event streams over real sockets: from a cursor in the log, live, resumed, slow, abandoned, and at shutdown."""

import socket
import time
from collections.abc import Callable

import pytest
import requests

from eventstore.catalogue import ModelDelta
from tests.fakes.service import said
from tests.gateways.http.conftest import Reader, Served


def start(served: Served, **body: object) -> str:
    made = requests.post(f"{served.url}/v1/runs", json={"input": "hello", **body}, timeout=10)
    assert made.status_code == 202, made.text
    run_id: str = made.json()["run_id"]
    return run_id


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


def test_a_stream_tells_its_cursor_at_once_and_how_soon_to_come_back(served: Served) -> None:
    run_id = start(served)
    reader = served.stream(f"/v1/runs/{run_id}/events?after=3")
    head = reader.head()
    assert head.startswith("HTTP/1.1 200 OK")
    assert "text/event-stream" in head
    assert "X-Accel-Buffering: no" in head
    assert "transfer-encoding" not in head.lower()
    assert reader.block() == "retry: 1000"
    assert reader.block() == ": cursor 3"
    reader.close()


def test_a_stream_shows_what_was_before_what_comes_and_ends_with_the_run(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    reader = served.stream(f"/v1/runs/{run_id}/events")
    assert [reader.event()["type"], reader.event()["type"]] == ["run.started", "model.started"]
    served.service.emit(run_id, ModelDelta, attempt=1, text="hi")
    assert reader.event()["text"] == "hi"
    served.service.finish(run_id, said("hi"))
    rest = reader.events()
    assert [event["seq"] for event in rest] == [4, 5]
    assert rest[-1]["type"] == "run.completed"
    reader.close()


def test_a_frame_has_the_seq_as_id_the_type_as_event_and_the_time_as_rfc_3339(served: Served) -> None:
    run_id = start(served)
    served.service.answer(run_id, "hi")
    reader = served.stream(f"/v1/runs/{run_id}/events")
    blocks = reader.rest().decode().split("\n\n")
    frame = next(block for block in blocks if "model.delta" in block).split("\n")
    assert frame[:2] == ["id: 3", "event: model.delta"]
    assert '"at":"2030-03-17T17:46:40.000000Z"' in frame[2]
    reader.close()


def test_a_cut_stream_resumed_by_last_event_id_has_no_gap_and_nothing_twice(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    first = served.stream(f"/v1/runs/{run_id}/events")
    seen = [first.event()["seq"], first.event()["seq"]]
    first.close()
    for text in ("a", "b", "c"):
        served.service.emit(run_id, ModelDelta, attempt=1, text=text)
    second = served.stream(f"/v1/runs/{run_id}/events?after=0", f"Last-Event-ID: {seen[-1]}")
    served.service.finish(run_id, said("abc"))
    seen += [event["seq"] for event in second.events()]
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    second.close()


def test_a_stream_of_an_ended_run_with_a_cursor_at_or_beyond_the_end_closes_cleanly(served: Served) -> None:
    run_id = start(served)
    served.service.answer(run_id, "hi")
    for after in (5, 999):
        reader = served.stream(f"/v1/runs/{run_id}/events?after={after}")
        assert reader.head().startswith("HTTP/1.1 200")
        assert reader.events() == []
        reader.close()


def test_a_cursor_beyond_the_end_of_a_live_run_waits_and_closes_when_the_run_ends(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    reader = served.stream(f"/v1/runs/{run_id}/events?after=999")
    reader.head()
    reader.block()
    assert reader.block() == ": cursor 999"
    served.service.finish(run_id, said("hi"))
    assert reader.events() == []
    reader.close()


def test_only_the_wanted_types_and_always_the_end_are_shown(served: Served) -> None:
    run_id = start(served)
    served.service.answer(run_id, "a", "b")
    reader = served.stream(f"/v1/runs/{run_id}/events?types=model.delta")
    assert [event["type"] for event in reader.events()] == ["model.delta", "model.delta", "run.completed"]
    reader.close()


def test_any_number_of_clients_read_the_same_run(served: Served) -> None:
    run_id = start(served)
    readers = [served.stream(f"/v1/runs/{run_id}/events") for _ in range(5)]
    served.service.answer(run_id, "a", "b")
    for reader in readers:
        assert [event["seq"] for event in reader.events()] == [1, 2, 3, 4, 5, 6]
        reader.close()


def test_a_quiet_stream_gets_comments_so_that_proxies_keep_it(served: Served) -> None:
    run_id = start(served)
    reader = served.stream(f"/v1/runs/{run_id}/events")
    reader.head()
    reader.block()
    reader.block()
    assert reader.block() == ": ping"
    reader.close()


def test_a_client_that_leaves_is_noticed_at_once_and_its_place_is_free(served: Served) -> None:
    reader = served.stream(f"/v1/runs/{start(served)}/events")
    reader.head()
    assert within(2, lambda: served.server.gateway.hub.active == 1)
    reader.close()
    assert within(1, lambda: served.server.gateway.streams.taken == 0)
    assert served.server.gateway.hub.active == 0


def test_a_run_goes_on_when_its_client_leaves_unless_it_was_told_to_end(served: Served) -> None:
    plain, cancelling = start(served), start(served, on_disconnect="cancel")
    for run_id in (plain, cancelling):
        served.service.start(run_id)
        reader = served.stream(f"/v1/runs/{run_id}/events")
        reader.event()
        reader.close()
    assert within(3, lambda: served.service.cancelled == [(cancelling, "client_disconnect")])
    status = requests.get(f"{served.url}/v1/runs/{plain}", timeout=10).json()["status"]
    assert status == "running"


def test_a_run_that_ends_with_its_client_stays_while_another_client_watches(served: Served) -> None:
    run_id = start(served, on_disconnect="cancel")
    served.service.start(run_id)
    first, second = served.stream(f"/v1/runs/{run_id}/events"), served.stream(f"/v1/runs/{run_id}/events")
    first.event()
    second.event()
    first.close()
    assert within(2, lambda: served.server.gateway.hub.active == 1)
    assert served.service.cancelled == []
    second.close()
    assert within(3, lambda: served.service.cancelled == [(run_id, "client_disconnect")])


def test_a_slow_reader_costs_bounded_memory_and_still_gets_every_event_once(served: Served) -> None:
    run_id = start(served)
    served.service.start(run_id)
    sock = served.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.sendall(f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    reader = Reader(sock)
    reader.head()
    most = 0
    for _ in range(600):
        served.service.emit(run_id, ModelDelta, attempt=1, text="x" * 8000)
        most = max(most, *(each.waiting for every in list(served.server.gateway.hub._runs.values()) for each in every))
    served.service.finish(run_id, said("x"))
    assert 0 < most <= 256 * 1024
    assert [event["seq"] for event in reader.events()] == list(range(1, 605))
    reader.close()


def test_a_reader_that_never_reads_is_dropped_and_its_place_is_free(make_served: Callable[..., Served]) -> None:
    served = make_served(stalled_seconds=0.5)
    run_id = start(served)
    served.service.start(run_id)
    sock = served.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    for _ in range(500):
        served.service.emit(run_id, ModelDelta, attempt=1, text="x" * 16_000)
    assert within(5, lambda: served.server.gateway.streams.taken == 0)
    sock.close()


def test_at_shutdown_every_client_hears_bye_and_the_run_is_not_cancelled(served: Served) -> None:
    run_id = start(served, on_disconnect="cancel")
    readers = [served.stream(f"/v1/runs/{run_id}/events") for _ in range(20)]
    for reader in readers:
        reader.head()
    began = time.monotonic()
    served.server.stop()
    assert time.monotonic() - began < 3
    for reader in readers:
        assert reader.rest().endswith(b": bye\n\n")
        reader.close()
    assert served.service.cancelled == []


def test_a_stream_goes_on_over_a_restart_of_the_server(make_served: Callable[..., Served]) -> None:
    before = make_served()
    run_id = start(before)
    before.service.start(run_id)
    reader = before.stream(f"/v1/runs/{run_id}/events")
    seen = [reader.event()["seq"], reader.event()["seq"]]
    before.server.stop()
    reader.close()
    before.service.emit(run_id, ModelDelta, attempt=1, text="meanwhile")
    after = make_served()
    again = after.stream(f"/v1/runs/{run_id}/events", f"Last-Event-ID: {seen[-1]}")
    after.service.finish(run_id, said("meanwhile"))
    seen += [event["seq"] for event in again.events()]
    assert seen == [1, 2, 3, 4, 5]
    again.close()


def test_open_streams_hold_no_worker(make_served: Callable[..., Served]) -> None:
    served = make_served(threads=2)
    readers = [served.stream(f"/v1/runs/{start(served)}/events") for _ in range(30)]
    for reader in readers:
        reader.head()
    began = time.monotonic()
    assert requests.get(f"{served.url}/health", timeout=5).status_code == 200
    assert time.monotonic() - began < 1
    for reader in readers:
        reader.close()


def test_too_many_streams_are_refused_with_the_time_to_wait(make_served: Callable[..., Served]) -> None:
    served = make_served(streams=2, streams_per_principal=2)
    run_id = start(served)
    readers = [served.stream(f"/v1/runs/{run_id}/events") for _ in range(2)]
    for reader in readers:
        reader.head()
    refused = requests.get(f"{served.url}/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, timeout=10)
    assert (refused.status_code, refused.json()["code"]) == (503, "streams_full")
    assert int(refused.headers["Retry-After"]) >= 1
    for reader in readers:
        reader.close()


def test_one_principal_may_not_take_all_streams(make_served: Callable[..., Served]) -> None:
    served = make_served(streams=10, streams_per_principal=1)
    run_id = start(served)
    reader = served.stream(f"/v1/runs/{run_id}/events")
    reader.head()
    refused = requests.get(f"{served.url}/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}, timeout=10)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    reader.close()


@pytest.mark.parametrize("header", ["-1", "x", "1.5", "٣", "1" * 30])
def test_a_cursor_that_is_no_number_is_refused(served: Served, header: str) -> None:
    run_id = start(served)
    headers: dict[str, str | bytes] = {"Accept": "text/event-stream", "Last-Event-ID": header.encode()}
    refused = requests.get(f"{served.url}/v1/runs/{run_id}/events", headers=headers, timeout=10)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
