"""The embedded model's life: starts the child, tells whether it serves, starts it again when it dies or hangs."""

import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import requests

from actors.ports import Clock
from gateways.embedded.child import ALIAS
from gateways.embedded.process import ChildFailed, ChildProcess
from gateways.embedded.weights import missing, weights_file
from gateways.provider.settings import Endpoint, Timeouts

log = logging.getLogger(__name__)

PROVIDER: Final = "embedded"
MODEL: Final = ALIAS
COMMAND: Final = (sys.executable, "-m", "gateways.embedded.child")
_CONTEXT: Final = 4096
_ANSWER: Final = 512
"""Tokens of an answer, unless the request says otherwise."""

Status = Literal["absent", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class ModelState:
    """`reason` is a sentence for people, where the status is `absent` or `failed`."""

    status: Status
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Supervision:
    """Seconds.

    `load`: until the child serves.  `backoff`: before the second start, doubled up to `backoff_most`; `stable`: so long
    ready, and the backoff begins anew.  `health_every`, `health_wait`: of the health checks; three in a row that fail mean
    that the child hangs.
    """

    load: float = 60.0
    backoff: float = 0.5
    backoff_most: float = 30.0
    stable: float = 60.0
    health_every: float = 10.0
    health_wait: float = 5.0


_HEALTH_TRIES: Final = 3
_STEP: Final = 0.05


class EmbeddedModel:
    """Supervises the child on a thread of its own; every method may be called from any thread."""

    def __init__(
        self,
        data_dir: Path,
        clock: Clock,
        command: Sequence[str] = COMMAND,
        supervision: Supervision | None = None,
    ) -> None:
        """Nothing starts before `start`; `data_dir` gets `embedded.log`, the child's error output."""
        self._log_file = data_dir / "embedded.log"
        self._monotonic = clock.monotonic
        self._command, self._supervision = tuple(command), supervision or Supervision()
        self._lock = threading.Lock()
        self._state = ModelState("absent", "not started")
        self._endpoint: Endpoint | None = None
        self._pid: int | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> ModelState:
        """What `/ready` shows."""
        with self._lock:
            return self._state

    @property
    def pid(self) -> int | None:
        """The child's process id while there is one."""
        with self._lock:
            return self._pid

    def endpoint(self) -> Endpoint | None:
        """Where the model answers now, or None; ask again for each request, a restart changes the port."""
        with self._lock:
            return self._endpoint

    def base_url(self) -> str | None:
        """Return the endpoint's base URL, or None while the model does not serve."""
        endpoint = self.endpoint()
        return endpoint.base_url if endpoint else None

    def start(self) -> None:
        """Start the child, or state why there is none."""
        lacks = missing() if self._command == COMMAND else None
        if lacks is not None:
            self._become(ModelState("absent", lacks))
            return
        self._become(ModelState("loading"))
        self._thread = threading.Thread(target=self._supervise, name="embedded-model", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the child, within two seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(3)
        self._become(ModelState("absent", "stopped"))

    def _supervise(self) -> None:
        backoff = self._supervision.backoff
        while not self._stopping.is_set():
            began = self._monotonic()
            reason = self._live()
            if self._stopping.is_set():
                return
            log.warning("the embedded model %s", reason)
            self._become(ModelState("failed", f"the embedded model {reason}"))
            if self._monotonic() - began > self._supervision.stable:
                backoff = self._supervision.backoff
            self._stopping.wait(backoff)
            backoff = min(backoff * 2, self._supervision.backoff_most)

    def _live(self) -> str:
        """Have one child from its start to its end; return why it ended."""
        self._become(ModelState("loading"))
        settings = {"model": str(weights_file()), "context": _CONTEXT, "answer": _ANSWER}
        try:
            child = ChildProcess(self._command, settings, self._log_file)
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        self._become(ModelState("loading"), pid=child.pid)
        try:
            url = child.wait_for_url(self._supervision.load, self._stopping.is_set)
            self._become(ModelState("ready"), self._endpoint_at(url), child.pid)
            return self._watch(child, url)
        except ChildFailed as failed:
            return str(failed)
        finally:
            self._become(ModelState("loading"))
            child.end()

    def _watch(self, child: ChildProcess, url: str) -> str:
        failures, next_check = 0, self._monotonic() + self._supervision.health_every
        while not self._stopping.wait(_STEP):
            if child.has_ended:
                return child.how_it_ended()
            if self._monotonic() >= next_check:
                failures = 0 if self._is_healthy(url) else failures + 1
                if failures == _HEALTH_TRIES:
                    return "does not answer any more"
                next_check = self._monotonic() + self._supervision.health_every
        return "was stopped"

    def _is_healthy(self, url: str) -> bool:
        try:
            with requests.Session() as session:
                session.trust_env = False
                return session.get(f"{url}/health", timeout=self._supervision.health_wait).ok
        except requests.RequestException:
            return False

    def _endpoint_at(self, url: str) -> Endpoint:
        seconds = Timeouts(first_byte=600, idle=300)
        return Endpoint(PROVIDER, f"{url}/v1", auth="none", timeouts=seconds, connections=4)

    def _become(self, state: ModelState, endpoint: Endpoint | None = None, pid: int | None = None) -> None:
        with self._lock:
            self._state, self._endpoint, self._pid = state, endpoint, pid
