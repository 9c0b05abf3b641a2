"""Erases a session: nobody keeps its state in memory, the log removes what it said, and late mail finds it erased."""

import time
from collections.abc import Iterator

from actors.directory import Directory
from actors.errors import Refused
from actors.letters import Address
from actors.world import World
from eventstore.errors import SessionBusy, SessionMissing
from eventstore.log import Envelope

PAGE = 256
PATIENCE = 2.0
"""Seconds that a session gets to hear of the end of its last run."""
RESTED = 1.0
"""Seconds that actors get to finish what they are at."""
PAUSE = 0.01


class Erasures:
    """Erases sessions; blocks on the log, so for gateways' threads only."""

    def __init__(self, world: World, directory: Directory) -> None:
        self._world, self._directory = world, directory

    def erase(self, owner: str, session_id: str, reason: str) -> None:
        """Erase a session of this owner, with all its runs.

        Raises:
            Refused: `session_not_found`; `session_busy`, a run of it has not ended.
            LogError: the log failed.
        """
        if self._world.queries.session(owner, session_id) is None:
            raise _missing()
        if self._is_at_work(session_id):
            raise _busy()  # before anybody is asked to rest: a run at work would be waited for
        runs = [Address("run", run_id) for run_id in self._runs(session_id)]
        session = Address("session", session_id)
        self._put_away([session, *runs])
        told = self._erased(session_id, reason)
        # Whoever came back in between has to hear of it; an append over the old state meets a version conflict.
        self._directory.grew(session, tuple(one for one in told if one.stream == session.stream))
        self._put_away([session, *runs])

    def _put_away(self, addresses: list[Address]) -> None:
        """Put away who has the state in memory; whoever does not come to rest soon is left to be tidied up."""
        until = self._world.clock.monotonic() + RESTED
        while self._directory.put_away(addresses) and self._world.clock.monotonic() < until:
            time.sleep(PAUSE)

    def _erased(self, session_id: str, reason: str) -> tuple[Envelope, ...]:
        until = self._world.clock.monotonic() + PATIENCE
        while True:
            try:
                return self._world.log.erase(session_id, reason, self._world.clock.now())
            except SessionMissing:
                raise _missing() from None
            except SessionBusy:
                if self._is_at_work(session_id) or self._world.clock.monotonic() >= until:
                    raise _busy() from None
            time.sleep(PAUSE)  # the run's end is on record, and the session is about to hear of it

    def _is_at_work(self, session_id: str) -> bool:
        queries = self._world.queries
        open_states = ("queued", "running", "waiting")
        return any(queries.runs(None, limit=1, session_id=session_id, status=status) for status in open_states)

    def _runs(self, session_id: str) -> Iterator[str]:
        after: str | None = None
        while rows := self._world.queries.runs(None, limit=PAGE, after=after, session_id=session_id):
            yield from (row.run_id for row in rows)
            after = rows[-1].run_id


def _busy() -> Refused:
    return Refused("session_busy", "a run of the session has not ended; cancel the run first, or wait for its end")


def _missing() -> Refused:
    return Refused("session_not_found", "there is no such session")
