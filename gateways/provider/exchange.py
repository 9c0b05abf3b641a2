"""One request to a provider, from the first byte sent to the last byte read, or cut in between."""

import http.client
import json
import logging
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

import requests
import urllib3

from actors.ports import ModelCall, StreamBatch
from actors.sse import LineTooLong, Parser
from gateways import __version__
from gateways.provider.batching import BatchBuffer
from gateways.provider.connection import Line, use_line
from gateways.provider.deadlines import Watchdog
from gateways.provider.errors import Broken, BrokenCode
from gateways.provider.settings import Endpoint

log = logging.getLogger(__name__)

_READ: Final = 1 << 16
_ERROR_BODY: Final = 1 << 20
_GOOD: Final = range(200, 300)
_CAUSES: Final = 16
_HEADERS: Final = frozenset({"content-type", "retry-after", "retry-after-ms", "x-request-id", "request-id"})
_WORLD: Final = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,  # of the HTTP libraries: a header or a chunk size that is none
    AttributeError,  # of http.client, whose socket went away in a cut
)


class HttpExchange:
    """Implements `actors.ports.Exchange`; `open` and `read` on one performer thread at a time, `cancel` from any."""

    def __init__(
        self,
        endpoint: Endpoint,
        call: ModelCall,
        session: Callable[[Endpoint], requests.Session],
        watchdog: Watchdog,
        monotonic: Callable[[], float],
        on_first_byte: Callable[[], None] | None = None,
    ) -> None:
        """Prepare; nothing is sent.  `session` gives the endpoint's session when it is needed."""
        self._endpoint, self._call, self._session = endpoint, call, session
        self._monotonic, self._on_first_byte = monotonic, on_first_byte
        self._alarm = watchdog.alarm()
        self._total_at = float("inf")
        self._line = Line(endpoint.address_rule, endpoint.timeouts.connect, self._connected)
        self._buffer = BatchBuffer(monotonic)
        self._received = 0
        self._reader: threading.Thread | None = None

    def open(self) -> dict[str, Any]:
        """Send and wait for the answer, or its head where it streams; see the port."""
        seconds = self._endpoint.timeouts
        self._total_at = self._monotonic() + seconds.total
        try:
            self._line.check()
            self._expect(seconds.connect, "network_error", f"no connection within {seconds.connect:g} s")
            response = self._send()
            if self._is_stream(response):
                self._start_reading(response)
                return self._head(response) | {"stream": True}
            return self._head(response) | {"body": self._body(response)}
        except Broken as broken:
            return self._failed(self._line.reason or broken)
        except _WORLD as error:
            return self._failed(self._line.reason or _translated(error))
        finally:
            if self._reader is None:
                self._settle()

    def read(self) -> StreamBatch:
        """Wait for the next batch; see the port and `gateways.provider.batching` for the pace."""
        return self._buffer.take()

    def cancel(self) -> None:
        """Cut the connection; a blocked `open` or `read` returns at once with `cancelled`."""
        self._line.cut("cancelled", "the request was cancelled")

    def _send(self) -> requests.Response:
        call, endpoint = self._call, self._endpoint
        body = _encoded(call.body, endpoint.max_request_bytes) if call.method == "POST" else None
        url, headers = endpoint.url_for(call.path), self._headers()
        session = self._session(endpoint)
        with use_line(self._line):
            response = session.request(
                call.method,
                url,
                data=body,
                headers=headers,
                stream=True,
                allow_redirects=False,
                timeout=(endpoint.timeouts.connect, None),
            )
        if response.is_redirect:
            response.close()
            raise Broken("refused_url", f"the provider answered {response.status_code} (go elsewhere), which is refused")
        self._expect_more()
        return response

    def _headers(self) -> dict[str, str]:
        return {
            "user-agent": f"deedbox/{__version__}",
            "accept": "text/event-stream" if self._call.stream else "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
        } | self._endpoint.headers_for(self._call.headers)

    def _head(self, response: requests.Response) -> dict[str, Any]:
        names = {name.lower(): value[:1024] for name, value in response.headers.items()}
        kept = {n: v for n, v in names.items() if n in _HEADERS or "ratelimit" in n or "rate-limit" in n}
        return {"ok": True, "status": response.status_code, "headers": kept}

    def _is_stream(self, response: requests.Response) -> bool:
        kind = response.headers.get("content-type", "text/event-stream").partition(";")[0].strip().lower()
        return self._call.stream and response.status_code in _GOOD and kind == "text/event-stream"

    def _body(self, response: requests.Response) -> str:
        good = response.status_code in _GOOD
        limit = self._endpoint.max_response_bytes if good else _ERROR_BODY
        body = bytearray()
        while data := response.raw.read1(_READ, decode_content=True):
            self._first_byte()
            body += data
            if len(body) > limit:
                response.close()
                if good:
                    raise Broken("response_too_large", f"the answer is larger than {limit} bytes")
                break
            self._expect_more()
        self._line.check()
        return body[:limit].decode("utf-8", "replace")

    def _start_reading(self, response: requests.Response) -> None:
        self._line.on_cut(lambda: self._buffer.end(self._line.reason))
        self._reader = threading.Thread(target=self._read_all, args=(response,), name="provider-stream", daemon=True)
        self._reader.start()

    def _read_all(self, response: requests.Response) -> None:
        error: Broken | None = None
        try:
            self._pump(response)
            self._line.check()
        except Broken as broken:
            error = broken
        except LineTooLong as too_long:
            error = Broken("line_too_long", str(too_long))
        except _WORLD as problem:
            error = self._line.reason or _translated(problem)
        finally:
            if error is not None:
                response.close()
            self._settle()
            self._buffer.end(error)

    def _pump(self, response: requests.Response) -> None:
        parser, raw = Parser(), bytearray()
        while data := response.raw.read1(_READ, decode_content=True):
            self._first_byte()
            self._count(len(data))
            raw += data
            whole, events = parser.whole, 0
            try:
                events = len(parser.feed(data))
            finally:
                whole = parser.whole - whole
                self._hand_over(bytes(raw[:whole]), events)
                del raw[:whole]

    def _hand_over(self, raw: bytes, events: int) -> None:
        """Give whole events to the reader; while it is the slow one, silence is not the provider's fault."""
        slow = self._buffer.is_full
        if slow:
            self._expect(self._endpoint.timeouts.total, "timeout_total", "")
        self._buffer.put(raw, events)
        if events or slow:
            self._expect_more()

    def _count(self, size: int) -> None:
        self._received += size
        limit = self._endpoint.max_response_bytes
        if self._received > limit:
            raise Broken("response_too_large", f"the stream is larger than {limit} bytes")

    def _first_byte(self) -> None:
        callback, self._on_first_byte = self._on_first_byte, None
        if callback is not None:
            callback()

    def _connected(self) -> None:
        seconds = self._endpoint.timeouts.first_byte
        self._expect(seconds, "timeout_first_byte", f"no answer within {seconds:g} s")

    def _expect_more(self) -> None:
        seconds = self._endpoint.timeouts.idle
        self._expect(seconds, "timeout_idle", f"nothing came for {seconds:g} s")

    def _expect(self, seconds: float, code: BrokenCode, message: str) -> None:
        """Cut the line in so many seconds, or when the whole exchange has lasted too long, unless this moves on."""
        when = self._monotonic() + seconds
        if when >= self._total_at:
            when, code = self._total_at, "timeout_total"
            message = f"the exchange took longer than {self._endpoint.timeouts.total:g} s"
        self._alarm.move(when, lambda: self._line.cut(code, message))

    def _settle(self) -> None:
        self._alarm.stop()
        self._line.detach()

    def _failed(self, broken: Broken) -> dict[str, Any]:
        log.info("provider %s: %s", self._endpoint.name, broken.code)
        self._buffer.end(broken)
        return {"ok": False, "error": broken.as_error()}


def _encoded(body: Any, limit: int) -> bytes:
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Broken("invalid_request", "the body of a model request must be JSON") from error
    data = text.encode("utf-8", "replace")
    if len(data) > limit:
        raise Broken("request_too_large", f"the request has {len(data)} bytes, more than {limit} are not sent")
    return data


def _translated(error: BaseException) -> Broken:
    """Turn an exception of the libraries into a code and a sentence; their own texts hold URLs and objects."""
    for cause in _causes(error):
        if isinstance(cause, Broken):
            return cause
        if isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError):
            return Broken("tls_error", "the secure connection broke")
        if isinstance(cause, http.client.RemoteDisconnected):
            return Broken("network_error", "the provider closed the connection without an answer")
        if isinstance(cause, ConnectionResetError | BrokenPipeError):
            return Broken("network_error", "the provider reset the connection")
        if isinstance(cause, http.client.IncompleteRead | urllib3.exceptions.IncompleteRead):
            return Broken("network_error", "the answer ended too early")
    return Broken("network_error", f"the provider's answer could not be read ({type(error).__name__})")


def _causes(error: BaseException) -> list[BaseException]:
    """Return the exception and what it wraps, by cause, by context or as an argument."""
    found: list[BaseException] = []
    queue: list[object] = [error]
    while queue and len(found) < _CAUSES:
        item = queue.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            queue += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
    return found
