"""A server on loopback that answers like deedbox's API, by script: for the command line's ugly cases."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str, bytes]
Script = Callable[[str, str, dict[str, str], Any], Answer]
"""Gets method, path with query, headers and body; gives status, content type and body (sent without a length)."""


class FakeApi:
    """Remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self._script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                asked = (self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                fake.asked.append(asked)
                status, kind, data = fake._script(*asked)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@contextmanager
def fake_api(script: Script) -> Iterator[FakeApi]:
    """Run a fake server for the length of a block."""
    fake = FakeApi(script)
    try:
        yield fake
    finally:
        fake.close()


def as_json(value: Any, status: int = 200) -> Answer:
    """Return a JSON answer."""
    return status, "application/json", json.dumps(value).encode()


def as_stream(*events: dict[str, Any]) -> Answer:
    """Return a stream of events that then breaks off or ends."""
    frames = "".join(f"id: {each['seq']}\nevent: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return 200, "text/event-stream", b": cursor\n\n" + frames.encode()
