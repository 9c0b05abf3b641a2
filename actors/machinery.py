"""What sessions and runs live on in one process: pools, timer, directory, performers; built whole, stopped in order."""

import logging
import time
from collections.abc import Iterator

from actors.calls import CallPerformer
from actors.context import Contexts
from actors.directory import Directory
from actors.directory import Settings as DirectorySettings
from actors.hosting import Hosting
from actors.hosts import Clocks, RunLauncher, SessionLauncher
from actors.letters import Address
from actors.model_performer import ModelPerformer
from actors.performers import Performers
from actors.pool import Pool
from actors.run import RUN
from actors.run_commands import Recover as RecoverRun
from actors.script_performer import ScriptPerformer
from actors.script_steps import Needs
from actors.session import SESSION
from actors.session_commands import Recover as RecoverSession
from actors.settings import Settings
from actors.slots import Slots
from actors.timer import Timer
from actors.tool_performer import ToolPerformer
from actors.world import World

logger = logging.getLogger(__name__)

ACTOR_THREADS = 4
PREPARING_THREADS = 4
MOST_WAITING = 100_000
"""Pieces of work behind a pool's threads; active runs and their open calls bound them long before."""


class Machinery:
    """Builds and wires the parts; `close` stops them, the log and the engine last of all and elsewhere."""

    def __init__(self, world: World, settings: Settings, directory: DirectorySettings | None = None) -> None:
        self._world, self._settings = world, settings
        self._pool = Pool(ACTOR_THREADS)
        self._timer = Timer(world.clock)
        self.clocks = Clocks(self._timer, world.clock)
        self.slots = Slots(settings.active_runs, settings.queued_runs)
        self.directory = Directory(
            world.log, world.clock, self._timer, self._pool, unfinished=self._unfinished, settings=directory
        )
        self.contexts = Contexts(world, settings)
        self._performers = self._pools()
        preparing, scripts, models, tools = self._performers
        self.models = ModelPerformer(world.transport, models, world.clean, world.clean_bytes)
        self.tools = ToolPerformer(tools, world.clean)
        self.calls = CallPerformer(self.models, self.tools, self.clocks, world.profiles)
        self.scripts = ScriptPerformer(self._needs(scripts))
        self._host(preparing)

    def _pools(self) -> tuple[Performers, Performers, Performers, Performers]:
        settings = self._settings
        return (
            Performers("prepare", PREPARING_THREADS, MOST_WAITING),
            Performers("script", settings.script_threads, MOST_WAITING),
            Performers("model", settings.model_threads, MOST_WAITING),
            Performers("tool", settings.tool_threads, MOST_WAITING),
        )

    def _needs(self, performers: Performers) -> Needs:
        world = self._world
        return Needs(
            engine=world.engine,
            contexts=self.contexts,
            log=world.log,
            calls=self.calls,
            performers=performers,
            later=self.clocks.later,
            now=world.clock.now,
            new_id=lambda: world.ids.new("id"),
            toolbox=self.calls.toolbox,
            grace=self._settings.tool_grace,
        )

    def _host(self, preparing: Performers) -> None:
        world, mode = self._world, self._settings.recovery
        grace = self._settings.tool_grace
        runs = RunLauncher(self.directory, self.scripts, self.calls, self.clocks, self.slots, world.ids, grace)
        sessions = SessionLauncher(self.directory, self.contexts, world.queries, preparing, self.slots)
        self.directory.host(Hosting(RUN, runs.launch, lambda _now: RecoverRun(mode)))
        self.directory.host(Hosting(SESSION, sessions.launch, lambda _now: RecoverSession()))

    def _unfinished(self) -> Iterator[Address]:
        """Yield who has work: a started run, or the session of a queued one."""
        for row in self._world.queries.unfinished():
            yield Address("session", row.session_id) if row.status == "queued" else Address("run", row.run_id)

    def close(self, deadline: float) -> bool:
        """End tools with their outcomes on record, leave runs to be taken up; return whether all was in time (seconds)."""
        until = time.monotonic() + deadline
        self.directory.stop_intake()
        self.scripts.freeze()
        self.tools.stop_all()
        self.models.stop_everything()
        self._wait_for_tools(until - 0.4 * deadline)
        in_time = self.directory.close(max(0.1, until - time.monotonic() - 0.2 * deadline))
        self._timer.stop(max(0.1, until - time.monotonic()))
        for performers in self._performers:
            in_time = performers.stop(max(0.1, until - time.monotonic())) and in_time
        return self._pool.stop(max(0.1, until - time.monotonic())) and in_time

    def _wait_for_tools(self, until: float) -> None:
        pause = 0.001
        while self.tools.active() and time.monotonic() < until:
            time.sleep(pause)
            pause = min(0.02, pause * 2)

    def counts(self) -> dict[str, int]:
        """Return what is at work, for metrics."""
        active, waiting = self.slots.counts()
        exchanges, tools = self.models.active(), self.tools.active()
        return {
            "active_runs": active,
            "waiting_runs": waiting,
            "scripts": self.scripts.active(),
            "open_exchanges": exchanges,
            "running_tools": tools,
            **self.directory.counts(),
        }
