"""A crowd of clients of server-sent events in a process of its own: one epoll loop, which notes when each event came.

`python -m benchmarks.listeners URL COUNT PATH…`: opens COUNT streams, the paths in turn, prints `open`, reads them all to
their ends, and prints one JSON line: how many events came, and a sample of the seconds from an event's `at` to its arrival.
"""

import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

SAMPLE = 20_000
PATIENCE = 120.0
_AT, _TYPE = b'"at":"', b"event: model.delta"


@dataclass(slots=True)
class Listener:
    """One stream: its socket, and what came and when (wall clock, seconds)."""

    sock: socket.socket
    came: list[tuple[float, bytes]] = field(default_factory=list)


def main() -> None:
    """Listen until every stream has ended."""
    url, count, paths = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    where = urlsplit(url)
    selector = selectors.EpollSelector()
    for number in range(count):
        sock = socket.create_connection((where.hostname or "", where.port or 80))
        request = f"GET {paths[number % len(paths)]} HTTP/1.1\r\nHost: {where.netloc}\r\nAccept: text/event-stream\r\n\r\n"
        sock.sendall(request.encode())
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, Listener(sock))
    listeners = [key.data for key in selector.get_map().values()]
    while not all(_begun(listener, selector) for listener in listeners):
        _read(selector)
    print("open", flush=True)
    until = time.monotonic() + PATIENCE
    while selector.get_map() and time.monotonic() < until:
        _read(selector)
    print(json.dumps(_told(listeners)), flush=True)


def _begun(listener: Listener, selector: selectors.BaseSelector) -> bool:
    return bool(listener.came) or listener.sock.fileno() not in selector.get_map()


def _read(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(1.0):
        listener: Listener = key.data
        try:
            data = listener.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if data:
            listener.came.append((time.time(), data))
        else:
            selector.unregister(listener.sock)
            listener.sock.close()


def _told(listeners: list[Listener]) -> dict[str, object]:
    delays: list[float] = []
    ended = events = 0
    for listener in listeners:
        rest = b""
        for came, data in listener.came:
            *frames, rest = (rest + data).split(b"\n\n")
            deltas = [frame for frame in frames if _TYPE in frame]
            events += len(deltas)
            ended += any(b"event: run.completed" in frame for frame in frames)
            delays += [came - _at(frame) for frame in deltas]
    step = max(1, len(delays) // SAMPLE)
    return {"streams": len(listeners), "ended": ended, "events": events, "delays": sorted(delays)[::step]}


def _at(frame: bytes) -> float:
    text = frame.partition(_AT)[2].partition(b'"')[0].decode("ascii")
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
