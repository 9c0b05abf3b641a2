"""One conversation with a server that is killed in the middle of it: what the client does and what it must have seen."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.fakes.provider import Answer, FakeProvider, Faults, Text, ToolCall
from tests.fakes.provider.request import Received
from tests.fakes.provider.script import Step

PATIENCE_S = 20.0
PACE_S = 0.06
"""Longer than a batch, so that each piece of an answer is a commit of its own, on a busy machine too."""
ENDINGS = {"run.completed", "run.failed", "run.cancelled"}


class Zygote:
    """The forking process; one command at a time, from any thread."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )
        self._lock = threading.Lock()

    def ask(self, command: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=10)


class Conduct:
    """How the provider behaves in one conversation: its first answer is cut, the second calls a tool, the third ends."""

    def __init__(self) -> None:
        self._lock, self._asked = threading.Lock(), 0

    def __call__(self, request: Received) -> Step:
        with self._lock:
            self._asked += 1
            first = self._asked == 1
        if first:
            return Answer((Text("I begin, and"),), faults=Faults(cut_after=900, pace=PACE_S))
        roles = [message["role"] for message in request.body["messages"]]
        if "tool" in roles:
            return Answer((Text("The tool knew all of it by now."),), faults=Faults(pace=PACE_S))
        return Answer((Text("Let me look around."), ToolCall("look", '{"where": "here"}')), faults=Faults(pace=PACE_S))


@dataclass
class Seen:
    """What the client saw of one run over all its connections, in order."""

    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in ENDINGS


@dataclass
class Conversation:
    """A server that may die at a commit, its successor, and the client between them."""

    folder: Path
    zygote: Zygote
    provider: FakeProvider
    die_at: int
    moment: str
    pid: int = 0
    died_as_told: bool = False
    seen: Seen = field(default_factory=Seen)

    @property
    def config(self) -> Path:
        return self.folder / "deedbox.toml"

    def start(self, die_at: int) -> None:
        address = self.config.with_suffix(".address")
        address.unlink(missing_ok=True)
        command = {
            "config": str(self.config),
            "die_at": die_at,
            "moment": self.moment,
            "counter": str(self.folder / "count"),
        }
        self.pid = self.zygote.ask(command)

    def url(self) -> str | None:
        """Return where the server listens, or None if it is not up yet; start its successor if it was killed."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            state = "Z"
        if state == "Z":
            code = self.zygote.ask({"wait": self.pid})
            assert code == -9, f"the server ended by itself with {code}: {self.config.with_suffix('.stderr').read_text()}"
            self.died_as_told = True
            self.start(0)
        address = self.config.with_suffix(".address")
        return address.read_text() if address.exists() else None

    def insist(self, attempt: Callable[[str], Any]) -> Any:
        """Try until it works, as a client does that knows that its server comes back."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            url = self.url()
            if url is not None:
                try:
                    return attempt(url)
                except requests.RequestException:
                    pass
            time.sleep(0.01)
        raise AssertionError(f"no answer in {PATIENCE_S} s: {self.config.with_suffix('.stderr').read_text()}")

    def say(self, text: str, key: str, session_id: str | None = None) -> dict[str, Any]:
        body = {"input": text} | ({"session_id": session_id} if session_id else {})

        def attempt(url: str) -> dict[str, Any]:
            answer = requests.post(f"{url}/v1/runs", json=body, headers={"Idempotency-Key": key}, timeout=5)
            if answer.status_code == 503:
                raise requests.ConnectionError(answer.text)
            assert answer.status_code == 202, answer.text
            taken: dict[str, Any] = answer.json()
            return taken

        taken: dict[str, Any] = self.insist(attempt)
        return taken

    def watch(self, run_id: str, seen: Seen, until: Callable[[Seen], bool]) -> None:
        """Follow a run's stream, over as many servers as it takes, always from the last event that was seen."""

        def attempt(url: str) -> None:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(seen.seqs[-1])} if seen.events else {})
            with requests.get(f"{url}/v1/runs/{run_id}/events", headers=headers, stream=True, timeout=5) as answer:
                assert answer.status_code == 200, answer.text
                for line in answer.iter_lines(chunk_size=1):
                    if line.startswith(b"data: "):
                        seen.events.append(json.loads(line[6:]))
                        if until(seen):
                            return
            raise requests.ConnectionError("the stream ended early")

        if not until(seen):
            self.insist(attempt)

    def hold(self) -> tuple[str, str]:
        """Have a run that streams, retries, uses a tool and is steered; return its id and that of the run steered."""
        self.start(self.die_at)
        taken = self.say("What is there?", "first")
        self.watch(taken["run_id"], self.seen, lambda seen: any(e["type"] == "model.delta" for e in seen.events))
        steering = self.say("And be brief.", "second", taken["session_id"])
        self.watch(taken["run_id"], self.seen, lambda seen: seen.ended)
        self.insist(lambda url: self.settled(url, taken["session_id"]))
        return taken["run_id"], steering["run_id"]

    def settled(self, url: str, session_id: str) -> None:
        """Return when the session has nothing to do any more."""
        session = requests.get(f"{url}/v1/sessions/{session_id}", timeout=5).json()
        runs = requests.get(f"{url}/v1/runs", params={"session_id": session_id}, timeout=5).json()["data"]
        if session["active_run_id"] is not None or any(run["status"] in ("queued", "running", "waiting") for run in runs):
            raise requests.ConnectionError("not yet")

    def stop(self) -> None:
        if Path(f"/proc/{self.pid}").exists():
            subprocess.run(["kill", "-TERM", str(self.pid)], check=False)
            self.zygote.ask({"wait": self.pid})


@contextmanager
def conversation(folder: Path, zygote: Zygote, die_at: int, moment: str) -> Iterator[Conversation]:
    """Give a conversation with a fresh data directory and a provider that outlives the server."""
    folder.mkdir(parents=True)
    with FakeProvider(choose=Conduct()) as provider:
        (folder / "deedbox.toml").write_text(
            f'[server]\naddress = "127.0.0.1:0"\ndata_dir = "{folder}/var"\n[model]\nprovider = "custom"\n'
            f'model = "fake-model"\n[providers.custom]\nadapter = "openai_chat"\nbase_url = "{provider.url}"\n'
            '[profiles.default]\nbusy = "steer"\n'
        )
        talk = Conversation(folder, zygote, provider, die_at, moment)
        try:
            yield talk
        finally:
            talk.stop()
