"""The command line's HTTP client: one place that speaks to a running server, resumes its streams and reads its problems."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec
import requests
import urllib3

from actors.sse import Parser
from gateways.errors import NoServer, ServerSaid

Json = dict[str, Any]
COME_BACK = frozenset({429, 502, 503, 504})
ENDED = frozenset({"completed", "cancelled", "failed"})
TERMINAL = frozenset({"run.completed", "run.cancelled", "run.failed"})
CONNECT_S, ANSWER_S = 3.0, 30.0
"""A stream that brings nothing for `ANSWER_S`, not even a heartbeat (every 10 s), counts as lost."""
RECONNECTS, PAUSE_S, NOTICE = 240, 0.25, 8
"""A server that restarts is waited for, a minute long; after `NOTICE` failures in a row the person is told."""
CHUNK = 65_536
UNKNOWN_CALLER = (
    "this server needs a token: make one with 'deedbox token create NAME', and give it with --token or in DEEDBOX_TOKEN"
)


class Client:
    """Talks to the server at `url` as the principal of `token`; not thread-safe."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        # A proxy of the environment must not see what is said to a server on this machine.
        self._session.trust_env = False
        self._met = False
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> "Client":
        """Return the client; its connections end with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._session.close()

    def get(self, path: str, **params: Any) -> Json:
        """Return the JSON answer of a GET; parameters that are None are left out.

        Raises:
            NoServer, ServerSaid.
        """
        return self._json("GET", path, params={name: value for name, value in params.items() if value is not None})

    def post(self, path: str, body: Json, key: str | None = None) -> Json:
        """Return the JSON answer of a POST; with an idempotency key it may be repeated.

        Raises:
            NoServer, ServerSaid.
        """
        return self._json("POST", path, json=body, headers={"Idempotency-Key": key} if key else {})

    def pages(self, path: str, limit: int, **params: Any) -> Iterator[Json]:
        """Yield up to `limit` rows of a listing, page by page."""
        after, left = params.pop("after", None), limit
        while left > 0:
            page = self.get(path, limit=min(left, 100), after=after, **params)
            rows = page["data"]
            yield from rows[:left]
            left -= len(rows)
            after = page["next"]
            if not page["has_more"]:
                return

    def follow(self, run_id: str, after: int = 0) -> Iterator[Json]:
        """Yield a run's events with seq greater than `after` until its end, over cut connections and restarts of the server.

        Raises:
            NoServer: the server stayed away, or was never there.
            ServerSaid: the run is unknown or not the principal's.
        """
        failures = 0
        while True:
            try:
                for event in self._stream(run_id, after):
                    if event["seq"] > after:
                        after, failures = event["seq"], 0
                        yield event
                        if event["type"] in TERMINAL:
                            return
                if self._ended(run_id, after):
                    return
            except (NoServer, ServerSaid, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as exc:
                if not self._may_come_back(exc):
                    raise
                failures += 1
                if failures == NOTICE:
                    # At a terminal, half an answer may stand in this line.
                    line_break = "\n" if sys.stderr.isatty() else ""
                    click.echo(f"{line_break}deedbox: the server does not answer; waiting for it", err=True)
                if failures > RECONNECTS:
                    again = f"'deedbox events {run_id} --after {after} --follow' goes on when it is back"
                    raise NoServer(
                        f"the stream of {run_id} broke off at event {after} and the server is gone: {again}"
                    ) from exc
            time.sleep(PAUSE_S)

    def _may_come_back(self, exc: Exception) -> bool:
        return self._met and not (isinstance(exc, ServerSaid) and exc.status not in COME_BACK)

    def _ended(self, run_id: str, after: int) -> bool:
        run = self.get(f"/v1/runs/{run_id}")
        return bool(run["status"] in ENDED and run["last_seq"] <= after)

    def _stream(self, run_id: str, after: int) -> Iterator[Json]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        answer = self._send("GET", f"/v1/runs/{run_id}/events", headers=headers, stream=True)
        with answer:
            parser = Parser()
            while chunk := answer.raw.read1(CHUNK, decode_content=True):
                for event in parser.feed(chunk):
                    yield msgspec.json.decode(event["data"])

    def _json(self, method: str, path: str, **request: Any) -> Json:
        with self._send(method, path, **request) as answer:
            found: Json = _decode(answer)
            return found

    def _send(self, method: str, path: str, **request: Any) -> requests.Response:
        try:
            answer = self._session.request(
                method, self._url + path, timeout=(CONNECT_S, ANSWER_S), allow_redirects=False, **request
            )
        except requests.ConnectionError as exc:
            raise NoServer(
                f"no deedbox server answers at {self._url}: start one with 'deedbox serve', or name it with --url"
            ) from exc
        except (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema) as exc:
            raise NoServer(f"{self._url!r} is no address of a server: write it as http://127.0.0.1:8787") from exc
        except requests.Timeout as exc:
            raise NoServer(f"the server at {self._url} did not answer within {ANSWER_S:.0f} seconds") from exc
        self._met = True
        if answer.status_code >= requests.codes.bad_request:
            with answer:
                raise _problem(answer)
        return answer


def _decode(answer: requests.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError as exc:
        raise ServerSaid(answer.status_code, "not_json", "what answers there is not a deedbox server") from exc


def _problem(answer: requests.Response) -> ServerSaid:
    try:
        body = msgspec.json.decode(answer.content, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ServerSaid(answer.status_code, "not_json", f"the server answered with status {answer.status_code}")
    if body.get("code") == "unauthorized" and "Authorization" not in answer.request.headers:
        return ServerSaid(answer.status_code, "unauthorized", UNKNOWN_CALLER)
    message = body.get("detail") or body.get("title") or f"the server answered with status {answer.status_code}"
    return ServerSaid(answer.status_code, str(body.get("code", "unknown")), str(message))
