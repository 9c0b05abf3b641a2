"""How the fake provider answers one request: refusals as the vendor words them, answers with their faults."""

import gzip
import itertools
import json
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any, assert_never

from tests.fakes.provider import anthropic_messages, openai_chat, openai_responses
from tests.fakes.provider.connection import Connection
from tests.fakes.provider.request import Invalid, Received
from tests.fakes.provider.script import STAMP, Answer, Exactly, HangUp, Silence, Status, Step, Wire

_PROTOCOLS: dict[str, ModuleType] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
}
_FOREVER = 3600.0


class Reply:
    """The answer to one request."""

    def __init__(self, connection: Connection, request: Received, key: str | None, models: tuple[str, ...]) -> None:
        self._connection, self._request, self._key, self._models = connection, request, key, models
        anthropic = "anthropic-version" in request.headers
        self._vendor = _PROTOCOLS.get(request.protocol, anthropic_messages if anthropic else openai_chat)

    def refused(self, checks: bool) -> bool:
        """Answer what needs no step: no key, no such path, a list of models, a request that breaks the protocol."""
        if self._key is not None and not self._has_key():
            self._fail(Status(401, "Incorrect API key provided.", kind=None), code="invalid_api_key")
            return True
        if self._request.protocol == "models":
            self._json(200, self._list(), {})
            return True
        if self._request.protocol == "other":
            self._fail(Status(404, f"Invalid URL ({self._request.method} {self._request.path})"))
            return True
        return checks and self._is_invalid()

    def give(self, step: Step) -> None:
        """Answer as the script says."""
        match step:
            case Answer():
                self._answer(step)
            case Status():
                self._fail(step)
            case Exactly():
                self._exactly(step)
            case Wire(data):
                self._connection.send(data)
                self._connection.end(reset=False)
            case HangUp(reset):
                self._connection.end(reset)
            case Silence():
                self._connection.pause(_FOREVER)
            case _:
                assert_never(step)

    def _has_key(self) -> bool:
        headers = self._request.headers
        return headers.get("authorization") == f"Bearer {self._key}" or headers.get("x-api-key") == self._key

    def _is_invalid(self) -> bool:
        try:
            self._vendor.check(self._request)
        except Invalid as invalid:
            self._fail(Status(400, invalid.message), param=invalid.param, code=invalid.code)
            return True
        except (AttributeError, TypeError, KeyError) as error:  # the request's shape is quite wrong
            self._fail(Status(400, f"the request's shape is wrong: {error}"))
            return True
        return False

    def _list(self) -> dict[str, Any]:
        if self._vendor is anthropic_messages:
            date = "2025-01-01T00:00:00Z"
            data = [{"type": "model", "id": name, "display_name": name, "created_at": date} for name in self._models]
            return {"data": data, "has_more": False, "first_id": self._models[0], "last_id": self._models[-1]}
        models = [{"id": name, "object": "model", "created": 1_750_000_000, "owned_by": "fake"} for name in self._models]
        return {"object": "list", "data": models}

    def _fail(self, status: Status, param: str | None = None, code: str | None = None) -> None:
        headers = dict(status.headers)
        if status.retry_after is not None:
            headers["retry-after"] = status.retry_after
        if status.retry_after_ms is not None:
            headers["retry-after-ms"] = str(status.retry_after_ms)
        self._json(status.code, self._vendor.error(status.message, status.code, status.kind, param, code), headers)

    def _json(self, status: int, value: Any, headers: dict[str, str]) -> None:
        body = json.dumps(value, ensure_ascii=False).encode()
        common = {"content-type": "application/json", "content-length": str(len(body)), "x-request-id": self._request_id()}
        self._connection.send(self._connection.head(status, common | headers) + body)

    def _request_id(self) -> str:
        return f"req_fake{self._request.number}"

    def _exactly(self, step: Exactly) -> None:
        self._connection.pause(step.after)
        headers = {"content-type": step.content_type, "content-length": str(len(step.body)), **step.headers}
        self._connection.send(self._connection.head(step.status, headers) + step.body)

    def _answer(self, answer: Answer) -> None:
        faults = answer.faults
        self._connection.pause(faults.head_after)
        if not self._request.streams or faults.json_although_stream:
            self._whole(answer)
        elif faults.is_none:
            body = "\n\n".join([*self._vendor.events(answer, self._request), ""]).encode("utf-8", "replace")
            headers = self._stream_headers(answer) | {"transfer-encoding": "chunked"}
            self._connection.send(self._connection.head(200, headers) + _chunk(body) + _chunk(b""))
        else:
            _Stream(self._connection, self._vendor, self._request, answer, self._stream_headers(answer)).run()

    def _whole(self, answer: Answer) -> None:
        body = json.dumps(self._vendor.body(answer, self._request), ensure_ascii=False).encode("utf-8", "replace")
        faults = answer.faults
        zipped = {"content-encoding": "gzip"} if faults.gzip else {}
        body = gzip.compress(body) if faults.gzip else body
        headers = {"content-type": "application/json", "content-length": str(len(body)), "x-request-id": self._request_id()}
        head = self._connection.head(200, headers | zipped | dict(answer.headers))
        if faults.is_none:
            self._connection.send(head + body)
            return
        self._connection.send(head)
        self._connection.pause(faults.body_after)
        if faults.stall_after is not None:
            self._connection.pause(_FOREVER)
        self._connection.send(body[: faults.cut_after])
        if faults.cut_after is not None:
            self._connection.end(faults.reset)

    def _stream_headers(self, answer: Answer) -> dict[str, str]:
        kind = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-request-id": self._request_id(),
        }
        return kind | dict(answer.headers)


class _Stream:
    """A stream with faults, written piece by piece."""

    def __init__(
        self, connection: Connection, vendor: ModuleType, request: Received, answer: Answer, headers: dict[str, str]
    ) -> None:
        self._connection, self._vendor, self._request, self._answer = connection, vendor, request, answer
        self._faults = answer.faults
        self._headers = headers
        self._left = answer.faults.cut_after

    def run(self) -> None:
        faults = self._faults
        framing = {"transfer-encoding": "chunked"} if faults.framing == "chunked" else {"connection": "close"}
        if faults.framing == "length":
            framing["content-length"] = str(sum(map(len, self._pieces())))
        if faults.gzip:
            framing["content-encoding"] = "gzip"
        self._connection.send(self._connection.head(200, self._headers | framing))
        self._connection.pause(faults.body_after)
        if faults.gzip:
            self._write(gzip.compress(b"".join(self._pieces())))
        else:
            for number, piece in enumerate(self._pieces()):
                self._connection.pause(faults.pace if number else 0)
                self._write(piece.replace(STAMP, b"%d" % time.monotonic_ns()) if faults.stamp else piece)
        self._finish()

    def _finish(self) -> None:
        if self._faults.stall_after is not None:
            self._connection.pause(_FOREVER)
        if self._faults.framing != "chunked":
            self._connection.end(reset=False)
        self._connection.send(_chunk(b""))

    def _pieces(self) -> Iterator[bytes]:
        """Yield each event's bytes, with what the faults put between them."""
        faults = self._faults
        end = faults.line_end
        if faults.bom:
            yield b"\xef\xbb\xbf"
        while faults.comments_only:
            yield f": keep-alive{end}{end}".encode()
        for number, event in enumerate(self._events()):
            if number == faults.stall_after:
                return
            if number == faults.garbage_after:
                yield faults.garbage
            if number == faults.error_after:
                yield _bytes(self._vendor.error_event("the fake provider is overloaded"), end)
                return
            yield f": keep-alive{end}{end}".encode() * faults.comments + _bytes(event, end)

    def _events(self) -> Iterator[str]:
        events = self._vendor.events(self._answer, self._request)
        if self._faults.endless:
            first = next(number for number, event in enumerate(events) if number and "delta" in event)
            return itertools.chain(events[:first], itertools.repeat(events[first]))
        return iter(events[:-1] if self._faults.no_end else events)

    def _write(self, data: bytes) -> None:
        size = self._faults.write_size or len(data)
        for i in range(0, len(data), size or 1):
            self._write_piece(data[i : i + size])

    def _write_piece(self, data: bytes) -> None:
        self._connection.check()
        if self._left is not None:
            data, self._left = data[: self._left], self._left - len(data)
        if data:
            self._connection.send(_chunk(data) if self._faults.framing == "chunked" else data)
        if self._left is not None and self._left <= 0:
            self._connection.end(self._faults.reset)


def _bytes(event: str, end: str) -> bytes:
    return (event.replace("\n", end) + end + end).encode("utf-8", "replace")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
