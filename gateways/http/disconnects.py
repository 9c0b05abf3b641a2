"""The disconnect rule: runs go on, a completion without a session is cancelled; the caller may choose."""

import logging
from collections.abc import Callable

from actors.errors import Refused
from actors.service import Service
from eventstore.errors import LogError
from gateways.http.streams import Ending

log = logging.getLogger(__name__)


class Disconnects:
    """Cancels runs whose last client went away, where that was asked for; any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def rule(
        self,
        owner: str,
        run_id: str,
        *,
        cancels: bool,
        release: Callable[[], None],
        broken: Callable[[], bool] = lambda: False,
    ) -> Callable[[Ending, int], None]:
        """Return what a stream calls at its end: gives its place back, and cancels the run if it must not go on alone.

        `broken`: the stream ended by itself before its run did.  A server that shuts down is no client that left.
        """

        def on_closed(ending: Ending, others: int) -> None:
            release()
            left = ending in ("disconnected", "stalled") or broken()
            if cancels and left and not others:
                self.cancel(owner, run_id)

        return on_closed

    def cancel(self, owner: str, run_id: str) -> None:
        """Cancel a run because its client is gone; a run that has ended stays as it is."""
        try:
            self._service.cancel(owner, run_id, "client_disconnect")
        except (Refused, LogError) as exc:
            log.info("a run was not cancelled after its client left: %s", exc.code, extra={"stream": f"run-{run_id}"})
