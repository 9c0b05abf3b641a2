"""Performs model requests and the reads of their streams; owns the exchanges that are open."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from actors.delivery import Deliver, Delivery, plain
from actors.errors import Refused
from actors.performers import CancelToken, Performers
from actors.ports import Exchange, ModelCall, ModelTransport, StreamBatch
from actors.steps import failure, read_outcome, read_record
from eventstore.catalogue import Json, Outcome

Clean = Callable[[Any], Any]
CleanBytes = Callable[[bytes], bytes]

STOPPED = ("stopped", "the script stopped this call")


class ModelPerformer:
    """Opens and reads exchanges on a pool of its own; every method may be called from any thread and returns at once."""

    def __init__(self, transport: ModelTransport, performers: Performers, clean: Clean, clean_bytes: CleanBytes) -> None:
        """Args: `clean` and `clean_bytes` take secrets out of whatever the world sent."""
        self._transport, self._performers = transport, performers
        self._clean, self._clean_bytes = clean, clean_bytes
        self._lock = threading.Lock()
        self._exchanges: dict[tuple[str, int], Exchange | None] = {}  # None: not begun yet

    def request(self, run_id: str, number: int, provider: str | None, payload: Json, deliver: Deliver) -> None:
        """Send a request; its answer's head, or the whole answer, is the outcome.

        Raises:
            Refused: all performers are busy.
        """
        if provider is None:
            deliver(plain(number, failure("no_provider", "no model provider is configured for this run")))
            return
        try:
            call = _model_call(provider, payload)
        except (KeyError, TypeError, ValueError) as error:
            deliver(plain(number, failure("invalid_call", f"this is no request: {error!r}")))
            return

        def work(_token: CancelToken) -> None:
            exchange = self._transport.exchange(call)
            if not self._begins(run_id, number, exchange):
                return
            outcome = self._clean(exchange.open())
            if not outcome.get("stream"):
                self._forget(run_id, number)
            deliver(plain(number, outcome))

        with self._lock:
            self._exchanges[run_id, number] = None
        try:
            self._performers.submit((run_id, number), work, _failed(number, deliver))
        except Refused:
            self._forget(run_id, number)
            raise

    def read(self, run_id: str, number: int, payload: Json, deliver: Deliver) -> None:
        """Read the next batch of a stream.

        Raises:
            Refused: all performers are busy.
        """
        of = payload.get("of")
        with self._lock:
            exchange = self._exchanges.get((run_id, of)) if isinstance(of, int) else None
        if exchange is None or not isinstance(of, int):
            deliver(interrupted_read(number))
            return

        def work(_token: CancelToken) -> None:
            batch = exchange.read()
            if batch.done or batch.error is not None:
                self._forget(run_id, of)
            deliver(self._delivery(number, of, batch))

        self._performers.submit((run_id, number), work, _failed(number, deliver))

    def stop(self, run_id: str, request: int) -> None:
        """Cut one exchange now."""
        exchange = self._forget(run_id, request)
        if exchange is not None:
            exchange.cancel()

    def stop_all(self, run_id: str) -> None:
        """Cut every exchange of a run now."""
        with self._lock:
            numbers = [number for owner, number in self._exchanges if owner == run_id]
        for number in numbers:
            self.stop(run_id, number)

    def stop_everything(self) -> None:
        """Cut every exchange; the server stops."""
        with self._lock:
            exchanges = [exchange for exchange in self._exchanges.values() if exchange is not None]
            self._exchanges.clear()
        for exchange in exchanges:
            exchange.cancel()

    def active(self) -> int:
        """Return how many exchanges are open."""
        return len(self._exchanges)

    def _begins(self, run_id: str, number: int, exchange: Exchange) -> bool:
        """Note an exchange, unless it was stopped before it began."""
        with self._lock:
            wanted = (run_id, number) in self._exchanges
            if wanted:
                self._exchanges[run_id, number] = exchange
            return wanted

    def _delivery(self, number: int, of: int, batch: StreamBatch) -> Delivery:
        raw = self._clean_bytes(batch.raw)
        record = read_record(of, raw, done=batch.done, error=self._clean(batch.error))
        return Delivery(number, read_outcome(record, raw), Outcome(value=record), raw, of)

    def _forget(self, run_id: str, number: int) -> Exchange | None:
        with self._lock:
            return self._exchanges.pop((run_id, number), None)


def interrupted_read(number: int) -> Delivery:
    """Return the outcome of a read whose stream is gone."""
    return plain(number, {**failure("interrupted", "the stream is not open any more"), "events": []})


def stopped_read(number: int, of: int) -> Delivery:
    """Return the outcome of a read that the script stopped, or whose stream it stopped."""
    record = read_record(of, b"", done=False, error=failure(*STOPPED)["error"])
    return Delivery(number, read_outcome(record, b""), Outcome(value=record))


def _model_call(provider: str, payload: Mapping[str, Any]) -> ModelCall:
    headers = payload.get("headers") or {}
    if not isinstance(headers, dict):
        raise TypeError("headers must be a mapping")
    return ModelCall(
        provider=provider,
        path=str(payload["path"]),
        body=payload.get("body"),
        stream=bool(payload.get("stream")),
        method="GET" if payload.get("method") == "GET" else "POST",
        headers={str(name): str(value) for name, value in headers.items()},
    )


def _failed(number: int, deliver: Deliver) -> Callable[[BaseException], None]:
    """A transport that raises has a fault of its own; the script hears of it as of any other failure."""

    def failed(error: BaseException) -> None:
        if not isinstance(error, Refused):  # else the server stops, and recovery tells the script
            deliver(plain(number, failure("transport_failed", f"{type(error).__name__}: {error}")))

    return failed
