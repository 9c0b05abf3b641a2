"""What the proofs of the whole server share: a server process with a fake provider, and plain HTTP clients of it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import openai
import requests

from tests.fakes.provider import FakeProvider, says
from tests.fakes.server_process import ServerProcess

PATIENCE = 20.0
ENDED = ("completed", "failed", "cancelled")
HELLO = "Hello from the fake provider."


@dataclass(frozen=True, slots=True)
class Served:
    """A server and its provider; the methods are what a program without any library would do."""

    server: ServerProcess
    provider: FakeProvider

    @property
    def url(self) -> str:
        return self.server.url

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> requests.Response:
        """Send one request on a connection of its own; `body` is sent as JSON."""
        return requests.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE, **options)

    def get(self, path: str, **options: Any) -> Any:
        """Return what a path shows; it must be there."""
        answer = self.ask("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int, **options: Any) -> Any:
        """Send a body and return the answer, which must have this status."""
        answer = self.ask("POST", path, body, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def start(self, text: str = "hi", *, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
        """Start a run and return its admission."""
        return self.post("/v1/runs", {"input": text, **fields}, 202, headers=headers)

    def ended(self, run_id: str, headers: Mapping[str, str] | None = None) -> Any:
        """Wait for a run's end and return the run."""
        found: Any = None

        def over() -> bool:
            nonlocal found
            found = self.get(f"/v1/runs/{run_id}", headers=headers)
            return found["status"] in ENDED

        eventually(over, lambda: f"the run does not end: {found}")
        return found

    def turn(self, text: str = "hi", **fields: Any) -> Any:
        """Start a run and return it as it ended."""
        return self.ended(self.start(text, **fields)["run_id"])

    def events(self, run_id: str, limit: int = 200) -> list[Any]:
        """Return a run's events, read in pages."""
        found: list[Any] = []
        page: Any = {"has_more": True, "next": 0}
        while page["has_more"]:
            page = self.get(f"/v1/runs/{run_id}/events?after={page['next']}&limit={limit}")
            found += page["data"]
        return found

    def transcript(self, session_id: str) -> list[tuple[str, str]]:
        """Return the roles and texts of a session's messages."""
        rows = self.get(f"/v1/sessions/{session_id}/messages?limit=200")["data"]
        return [(row["role"], text_of(row["message"])) for row in rows]

    def follow(self, run_id: str, query: str = "", **headers: str) -> "Stream":
        """Open a run's event stream."""
        return Stream(f"{self.url}/v1/runs/{run_id}/events{query}", headers)

    def asked_of_the_model(self, number: int = -1) -> list[tuple[str, str]]:
        """Return the roles and texts of the messages of one request that the provider received, by default the last."""
        body = self.provider.requests[number].body
        return [(message["role"], plain(message["content"])) for message in body["messages"]]

    def openai(self) -> openai.OpenAI:
        """Return the SDK's client of this server; it must be closed."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE)


class Stream:
    """A run's event stream as a client reads it; `with` closes the connection, whether it is over or not."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.answer = requests.get(url, headers={"Accept": "text/event-stream", **headers}, stream=True, timeout=PATIENCE)
        self.text = b""

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.answer.close()

    def __iter__(self) -> Iterator[Any]:
        """Yield the events until the server ends the stream."""
        rest, until = b"", time.monotonic() + PATIENCE
        while piece := self._read():
            assert time.monotonic() < until, f"the stream does not end: {self.text!r}"
            self.text += piece
            *frames, rest = (rest + piece).split(b"\n\n")
            yield from (event for frame in frames if (event := _event(frame)) is not None)

    def until(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        """Read events until there are enough of them; the connection is closed then."""
        found: list[Any] = []
        with self:
            for event in self:
                found.append(event)
                if wanted(found):
                    return found
        raise AssertionError(f"the stream ended too early: {found}")

    def _read(self) -> bytes:
        try:
            return bytes(self.answer.raw.read1(65536))
        except (OSError, requests.RequestException):
            return b""


def _event(frame: bytes) -> Any:
    fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if ": " in line and line[0] != ":")
    if "data" not in fields:
        return None
    event = json.loads(fields["data"])
    assert (fields["id"], fields["event"]) == (str(event["seq"]), event["type"])
    return event


@contextmanager
def serving(folder: Path, *arguments: str, settings: str = "", **environ: str) -> Iterator[Served]:
    """Run a server in a folder, and in the end see that it stops in order and that nothing unforeseen happened."""
    with FakeProvider() as provider:
        provider.always(says(HELLO))
        with ServerProcess(folder, provider.url, *arguments, settings=settings, environ=environ) as server:
            yield Served(server, provider)
            code, _ = server.stop()
            assert (code, "Traceback" in server.log(), "unforeseen" in server.log()) == (0, False, False), server.log()


def text_of(message: Any) -> str:
    """Return the text of a canonical message."""
    return str(message["content"]) if message["role"] == "tool" else plain(message["content"])


def plain(content: Any) -> str:
    """Return the text of a message's content, in parts or not."""
    if not isinstance(content, list):
        return str(content)
    return "".join(part.get("text", "") for part in content if part["type"] == "text")


def said(events: list[Any]) -> str:
    """Return the text that a client has when it follows the rules: deltas, without those of a discarded attempt."""
    text = ""
    for event in events:
        text = "" if event["type"] == "model.discarded" else text + event.get("text", "")
    return text


def whole(events: list[Any]) -> bool:
    """Tell whether these are all events of an ended run: numbered without a gap, one end, and it comes last."""
    ends = [event["seq"] for event in events if event["type"] in ("run.completed", "run.cancelled", "run.failed")]
    return [event["seq"] for event in events] == list(range(1, len(events) + 1)) and ends == [len(events)]


def eventually(true: Callable[[], bool], told: Callable[[], str] = lambda: "it does not come true") -> None:
    """Wait until it is true."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, told()
        time.sleep(0.02)
