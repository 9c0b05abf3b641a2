"""The real server erases a session: over HTTP, across a restart, and out of its files."""

import re
from pathlib import Path
from typing import Any

from eventstore.redaction import Redactor
from eventstore.sqlite.store import open_store
from tests.fakes.provider import says
from tests.service.served import Served, serving

QUESTION, ANSWER, OTHER = "Wombats-are-secret", "Wombats-dig-at-night", "Numbats-eat-termites"
LONG = f"{QUESTION} " * 800


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def test_what_was_said_is_gone_for_clients_and_from_the_files(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.provider.always(says(ANSWER))
        mine = served.start(LONG, title=QUESTION, headers=keyed("first"))
        served.ended(mine["run_id"])
        second = served.turn(QUESTION, session_id=mine["session_id"])
        served.provider.always(says(OTHER))
        other = served.turn(OTHER)
        assert found(tmp_path) == {b"Wombats-are", b"Wombats-dig"}
        erased = served.ask("DELETE", f"/v1/sessions/{mine['session_id']}")
        assert (erased.status_code, erased.content) == (204, b"")
        assert ([gone(served, mine), gone(served, mine | second)], found(tmp_path)) == ([True, True], set())
    with serving(tmp_path) as served:
        assert gone(served, mine)
        assert served.transcript(other["session_id"]) == [("user", OTHER), ("assistant", OTHER)]
        again = served.ask("POST", "/v1/runs", {"input": LONG, "title": QUESTION}, headers=keyed("first"))
        assert (again.status_code, again.json()["code"]) == (410, "session_erased")
        assert served.ask("DELETE", f"/v1/sessions/{mine['session_id']}").status_code == 404
        assert served.turn("and on", session_id=other["session_id"])["status"] == "completed"
    assert found(tmp_path) == set()
    store = open_store(tmp_path / "var", Redactor(), holder="the test")
    assert (store.log.check(), len(store.queries.usage("local"))) == (None, 1)
    assert store.queries.usage("local")[0]["attempts"] == 4
    store.close()


def test_a_run_that_is_at_work_keeps_its_session(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.provider.always(says(ANSWER, pace=0.2))
        mine = served.start(QUESTION)
        path = f"/v1/sessions/{mine['session_id']}"
        refused = served.ask("DELETE", path)
        assert (refused.status_code, refused.json()["code"]) == (409, "session_busy")
        served.post(f"/v1/runs/{mine['run_id']}/cancel", {}, 202)
        served.ended(mine["run_id"])
        assert served.ask("DELETE", path).status_code == 204


def gone(served: Served, run: Any) -> bool:
    paths = (f"/v1/sessions/{run['session_id']}", f"/v1/runs/{run['run_id']}", f"/v1/runs/{run['run_id']}/events")
    listed = [*served.get("/v1/sessions")["data"], *served.get("/v1/runs")["data"]]
    statuses = [served.ask("GET", path).status_code for path in paths]
    return statuses == [404] * 3 and run["session_id"] not in {row["session_id"] for row in listed}


def found(folder: Path) -> set[bytes]:
    """Return what the server's files still hold of the erased words; `var` is read as bytes, not as a database."""
    files = [*(folder / "var").iterdir(), folder / "server.log"]
    return {word for path in files for word in re.findall(rb"Wombats-[a-z]+", path.read_bytes())}
