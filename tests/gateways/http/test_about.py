"""Health, readiness, metrics, the OpenAPI document, and that all of them tell of what is there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from openapi_spec_validator import validate

from actors.errors import RefusalCode
from eventstore import errors as store_errors
from gateways.http.errors import CODES, TABLE, from_log
from gateways.http.openapi import document, errors_of
from gateways.http.ports import Readiness
from gateways.http.routes import BY_PLACE, ROUTES
from tests.gateways.http.conftest import Site

DOCUMENT: Any = document()


def fits(name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)
    return True


def test_health_asks_nobody_and_ready_says_what_is_missing(make_site: Callable[..., Site]) -> None:
    site = make_site(ready=lambda: Readiness(ok=False, parts={"model": "loading"}))
    assert site.get("/health").json == {"status": "ok"}
    ready = site.get("/ready")
    assert (ready.status_code, ready.json) == (503, {"ready": False, "parts": {"model": "loading"}})


def test_metrics_tell_of_requests_runs_events_streams_and_what_the_root_adds(site: Site) -> None:
    site.service.answer(site.run(), "hi")
    site.get("/v1/runs/unknown")
    text = site.get("/metrics").text
    for line in (
        'deedbox_http_requests_total{method="POST",route="/v1/runs",status="202"} 1.0',
        'deedbox_http_requests_total{method="GET",route="/v1/runs/{run_id}",status="404"} 1.0',
        'deedbox_http_request_seconds_bucket{le="60.0",route="/v1/runs"} 1.0',
        'deedbox_runs{status="completed"} 1.0',
        "deedbox_sessions 1.0",
        "deedbox_streams_active 0.0",
        "deedbox_policy_workers 3.0",
    ):
        assert line in text, text
    assert "deedbox_events_total 1" in text
    assert "unknown" not in text
    assert "_created" not in text


def test_metrics_survive_a_dropped_socket_for_they_come_from_the_log(site: Site) -> None:
    run_id = site.run()
    site.service.start(run_id)
    site.service.cancel("local", run_id, "gone")
    assert 'deedbox_runs{status="cancelled"} 1.0' in site.get("/metrics").text


def test_the_document_validates() -> None:
    validate(DOCUMENT)


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, each in DOCUMENT["paths"].items() for method in each}
    assert described == {(route.method, route.path.replace(":path}", "}")) for route in ROUTES}
    assert len(BY_PLACE) == len(ROUTES)


def test_the_page_on_the_api_lists_every_route_with_its_scope_and_nothing_else() -> None:
    page = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
    rows = re.findall(r"^\| ([A-Z]+) \| `([^`]+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(each.method, each.path.replace(":path}", "}"), each.scope or "none") for each in ROUTES]


def test_every_path_of_the_document_is_routed(site: Site) -> None:
    for route in ROUTES:
        path = route.path.replace("{model_id:path}", "default").replace("{session_id}", "x").replace("{run_id}", "x")
        answer = site.call(route.method, path)
        assert answer.status_code != 405, route
        assert (answer.json or {}).get("code") != "route_not_found" if "json" in answer.headers["content-type"] else True


def test_every_answer_fits_its_schema(site: Site) -> None:
    made = site.post("/v1/runs", {"input": "hi"})
    site.service.answer(made.json["run_id"], "hi")
    run, session = f"/v1/runs/{made.json['run_id']}", f"/v1/sessions/{made.json['session_id']}"
    assert fits("Admitted", made.json)
    for path in (run, "/v1/runs", f"{run}/events", session, "/v1/sessions", f"{session}/messages", "/v1/models"):
        template = path.replace(made.json["run_id"], "{run_id}").replace(made.json["session_id"], "{session_id}")
        assert fits(str(BY_PLACE["GET", template].response), site.get(path).json), path
    for path in ("/health", "/ready"):
        assert fits(str(BY_PLACE["GET", path].response), site.get(path).json)
    assert fits("Cancelled", site.call("POST", f"{run}/cancel").json)
    assert fits("Session", site.call("POST", "/v1/sessions").json)
    assert fits("Model", site.get("/v1/models/default").json)
    site.service.on_admit = lambda run_id, _: site.service.answer(run_id, "hi")
    chat = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
    assert fits("ChatCompletion", site.post("/v1/chat/completions", chat).json)
    assert fits("Problem", site.get("/v1/runs/no").json)
    assert fits("OpenAIError", site.post("/v1/chat/completions", {}).json)


def test_unknown_routes_and_methods_are_problems_too(site: Site) -> None:
    missing = site.get("/v2/nothing")
    assert (missing.status_code, missing.json["code"]) == (404, "route_not_found")
    assert missing.headers["content-type"] == "application/problem+json"
    wrong = site.call("PUT", "/v1/runs")
    assert (wrong.status_code, wrong.json["code"]) == (405, "method_not_allowed")
    assert fits("Problem", wrong.json)


def test_every_answer_forbids_caching_and_sniffing(site: Site) -> None:
    for answer in (site.get("/health"), site.get("/v1/runs/no"), site.get("/nothing")):
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_every_refusal_from_inside_is_in_the_table() -> None:
    assert set(get_args(RefusalCode)) <= set(TABLE)


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(store_errors).values() if isinstance(each, type) and issubclass(each, store_errors.LogError)],
)
def test_every_error_of_the_log_is_in_the_table(kind: type[store_errors.LogError]) -> None:
    error = kind.__new__(kind)
    assert from_log(error, keyed=False).entry.status >= 404


def test_every_code_that_a_route_names_is_in_the_table_and_has_advice() -> None:
    for route in ROUTES:
        assert set(errors_of(route)) <= set(CODES)
    assert all(sentence.endswith(".") for sentence in CODES.values())
