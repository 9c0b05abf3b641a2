"""What the process of the server is to its system: signals, restarts under load, memory, files."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.fakes.provider import FakeProvider, Silence, calls, says
from tests.fakes.server_process import ServerProcess
from tests.service.served import HELLO, Served, eventually, said, serving, whole

WORDS = " ".join(f"word{number}" for number in range(60))
WARM_UP, TURNS, MOST_GROWTH = 50, 200, 25_000_000
"""Turns, turns, and bytes: generous beside the few hundred bytes that a turn may leave behind."""


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text("ascii").split()]
    return found


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text("ascii")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_runs_of_every_kind_come_to_one_end_after_a_stop(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as served:
        steps = (says(WORDS, pace=0.05), Silence(), says("x", head_after=3), calls("missing", {}, pace=0.2))
        runs: list[str] = []
        for step in (*steps, says("y", stall_after=1)):
            served.provider.then(step)
            runs.append(served.start("hi")["run_id"])
            assert served.provider.wait_requests(len(runs))
        queued = served.start("queued", session_id=served.get(f"/v1/runs/{runs[0]}")["session_id"])["run_id"]
        before = served.follow(runs[0]).until(lambda events: len(events) > 3)
        workers = children(served.server.pid)
        assert workers
        served.server.signal(number)
        code, took = served.server.wait()
        assert (code, took < 5) == (0 if number == signal.SIGTERM else -9, True)
        eventually(lambda: not any(alive(worker) for worker in workers), lambda: "workers outlive their server")
        served.server.start()
        for run_id in (*runs, queued):
            assert served.ended(run_id)["status"] == "completed"
            assert whole(served.events(run_id))
        assert served.events(runs[0])[: len(before)] == before
        eventually(lambda: all(row["active_run_id"] is None for row in served.get("/v1/sessions")["data"]))


def test_a_restart_under_load_loses_no_run_that_was_acknowledged(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.provider.always(says("one two", pace=0.02))
        acknowledged: list[str] = []

        def load(_: int) -> None:
            while True:
                try:
                    answer = requests.post(f"{served.url}/v1/runs", json={"input": "hi"}, timeout=5)
                except requests.RequestException:
                    return
                if answer.status_code == requests.codes.accepted:
                    acknowledged.append(answer.json()["run_id"])

        with ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(load, number) for number in range(4)]
            eventually(lambda: len(acknowledged) > 20)
            served.server.kill()
            for each in loads:
                each.result()
        served.server.start()
        for run_id in acknowledged:
            assert served.ended(run_id)["status"] == "completed"
            assert (whole(served.events(run_id)), said(served.events(run_id))) == (True, "one two")


def test_many_turns_do_not_make_the_server_grow(tmp_path: Path) -> None:
    with serving(tmp_path) as served, requests.Session() as http:
        body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}

        def turns(count: int) -> None:
            for _ in range(count):
                assert http.post(f"{served.url}/v1/chat/completions", json=body, timeout=20).status_code == 200

        turns(WARM_UP)
        before, threads, workers = memory(served.server.pid), _threads(served.server.pid), len(children(served.server.pid))
        turns(TURNS)
        assert memory(served.server.pid) - before < MOST_GROWTH
        assert _threads(served.server.pid) <= threads + 4
        assert len(children(served.server.pid)) <= workers + 2
        assert len(list(Path(f"/proc/{served.server.pid}/fd").iterdir())) < 200


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with FakeProvider() as provider, ServerProcess(tmp_path, provider.url) as server:
        for _ in range(2):
            server.signal(signal.SIGTERM)
        code, took = server.wait()
        assert (code in (0, 128 + signal.SIGTERM), took < 5) == (True, True)
        server.start()
        assert requests.get(f"{server.url}/ready", timeout=5).status_code == 200


def test_a_data_directory_that_does_not_exist_yet_is_made_with_all_above_it(tmp_path: Path) -> None:
    with FakeProvider() as provider:
        provider.always(says(HELLO))
        deep = tmp_path / "a" / "b c" / "d"
        with ServerProcess(tmp_path, provider.url, "--data-dir", str(deep)) as server:
            assert server.said[1] == f"data directory {deep}"
            assert Served(server, provider).turn()["status"] == "completed"
            assert (deep / "deedbox.db").exists()
            assert deep.stat().st_mode & 0o777 == 0o700
            server.stop()


def test_a_worker_that_is_killed_costs_no_run(tmp_path: Path) -> None:
    with FakeProvider() as provider, ServerProcess(tmp_path, provider.url) as server:
        served = Served(server, provider.always(says(WORDS)))
        provider.then(says(WORDS, pace=0.02))
        run_id = served.start()["run_id"]
        served.follow(run_id).until(lambda events: "word3" in said(events))
        for worker in children(server.pid):
            os.kill(worker, signal.SIGKILL)
        run = served.ended(run_id)
        assert (run["status"], run["output"]["content"][0]["text"]) == ("completed", WORDS)
        assert whole(served.events(run_id))
        assert served.turn("again", session_id=run["session_id"])["status"] == "completed"


def test_a_server_without_work_uses_next_to_no_time(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.turn()
        time.sleep(0.5)
        before = _cpu_ticks(served.server.pid)
        time.sleep(1)
        assert (_cpu_ticks(served.server.pid) - before) / os.sysconf("SC_CLK_TCK") < 0.2


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
