"""Runs over HTTP: start, list, read, cancel, and pages of events."""

from tests.gateways.http.conftest import Site


def test_a_run_is_readable_as_soon_as_its_202_is_out(site: Site) -> None:
    made = site.post("/v1/runs", {"input": "hello"})
    assert made.status_code == 202
    assert made.json["status"] == "queued"
    assert made.headers["location"] == f"/v1/runs/{made.json['run_id']}"
    read = site.get(f"/v1/runs/{made.json['run_id']}")
    assert (read.status_code, read.json["session_id"]) == (200, made.json["session_id"])
