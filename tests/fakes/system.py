"""A whole system in one process: log, engine, front door, with scripted models and tools; can be lost and built again."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from actors.directory import Settings as DirectorySettings
from actors.front import Front, Settings, World
from actors.ports import ModelTransport, Profile
from actors.replaying import replay_run
from actors.service import Admitted, Inbound
from eventstore.catalogue import CANONICAL_TAGS, Event, NoteTaken, RunCancelled, RunCompleted, RunFailed, tag_of
from eventstore.log import EventLog
from eventstore.queries import Queries
from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_archive
from rss_policy.script import BundleRef
from tests.fakes.models import Plan, ScriptedModels
from tests.fakes.scripts import bundle_of
from tests.fakes.tools import FakeToolbox

PACE = DirectorySettings(sweep_every=600, backoff=0.01)
TERMINAL = (RunCompleted, RunCancelled, RunFailed)


class RealClock:
    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()


class CountingIds:
    """Ids that count; systems that follow one another on one log continue the count."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count:026}"


@dataclass
class FakeProfiles:
    """One profile `default`, and a provider `fake`."""

    bundle_ref: Bundle
    toolbox: FakeToolbox = field(default_factory=FakeToolbox)
    limits: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | None = "Be brief."
    busy: Any = "queue"
    adapter: str = "openai_chat"

    def find(self, name: str) -> Profile | None:
        if name != "default":
            return None
        return Profile(name, self.bundle_ref, "fake", "some-model", self.system_prompt, self.toolbox, self.limits, self.busy)

    def names(self) -> list[str]:
        return ["default"]

    def provider_names(self) -> list[str]:
        return ["fake"]

    def closed_models(self, provider: str) -> list[str] | None:
        return None

    def provider(self, name: str) -> Mapping[str, Any] | None:
        return {"name": "fake", "adapter": self.adapter} if name == "fake" else None

    def bundle(self, digest: str, stored: Callable[[str], bytes | None]) -> BundleRef:
        if digest == self.bundle_ref.digest:
            return self.bundle_ref
        archive = stored(f"policy:{digest}")
        assert archive is not None
        return load_archive(archive)


def script(body: str, **modules: str) -> Bundle:
    """Return a bundle whose `run(context)` has this body; the whole vocabulary is imported."""
    names = "emit, start, join, any_of, stop, request, read, call_tool, sleep, now, random_id, new_messages"
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = (
        f"from typing import Any\nfrom host import {names}\n\nasync def run(context: dict[str, Any]) -> dict[str, Any]:\n"
    )
    return bundle_of({"agent.main": f"{source}{lines}\n", **modules})


DONE = 'return {"output": None, "finish_reason": "stop", "error": None}'


@dataclass
class System:
    """A running system; `events` and `wait` look at the log only."""

    log: EventLog
    queries: Queries
    engine: MontyEngine
    profiles: FakeProfiles
    models: ModelTransport
    ids: CountingIds
    settings: Settings = field(default_factory=Settings)
    clean: Callable[[Any], Any] = lambda value: value
    patience: float = 2.0
    pace: DirectorySettings = PACE
    front: Front = field(init=False)

    def __post_init__(self) -> None:
        world = World(
            self.log, self.queries, self.engine, self.profiles, self.models, RealClock(), self.ids, clean=self.clean
        )
        self.front = Front(world, self.settings, self.pace)
        self.front.start()

    def say(self, text: str = "hello", **more: Any) -> Admitted:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return self.front.admit(Inbound(owner=more.pop("owner", "ann"), input=(message,), **more))

    def events(self, run_id: str) -> list[Event]:
        return [envelope.event for envelope in self.log.read(f"run-{run_id}")]

    def canonical(self, run_id: str) -> list[Event]:
        return [event for event in self.events(run_id) if tag_of(event) in CANONICAL_TAGS]

    def types(self, run_id: str) -> list[str]:
        return [tag_of(event) for event in self.canonical(run_id)]

    def wait(self, run_id: str, seconds: float = 10.0) -> Event:
        """Wait for the run's end and return it."""
        return self.until(run_id, lambda event: isinstance(event, TERMINAL), seconds)

    def until(self, run_id: str, holds: Callable[[Event], bool], seconds: float = 10.0) -> Event:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = next((event for event in self.events(run_id) if holds(event)), None)
            if found is not None:
                return found
            time.sleep(0.002)
        raise AssertionError(f"{run_id} did not get there: {self.events(run_id)}")

    def settled(self, session_id: str, seconds: float = 10.0) -> None:
        """Wait until the session has no run at work."""
        deadline = time.monotonic() + seconds
        while (row := self.queries.session(None, session_id)) is None or row.active_run_id is not None:
            assert time.monotonic() < deadline, row
            time.sleep(0.002)

    def stop(self) -> None:
        self.front.shutdown(self.patience)


def notes(system: System, run_id: str, kind: str) -> list[dict[str, Any]]:
    """Return what a run's script noted under a name."""
    return [event.data for event in system.events(run_id) if isinstance(event, NoteTaken) and event.kind == kind]


def is_equal(system: System, run_id: str) -> bool:
    """Replay a run; say whether it had steps, and tell the difference if there is one."""
    report = replay_run(system.log, system.queries, system.engine, system.profiles, run_id)
    assert report.equal, report
    return report.steps > 0


@contextmanager
def running(
    log: Any, engine: MontyEngine, bundle: Bundle, *plans: Plan, toolbox: FakeToolbox | None = None, **more: Any
) -> Iterator[System]:
    """Give a system on a log (with `queries`), and stop it; the log stays open."""
    profile = {name: more.pop(name) for name in ("limits", "busy", "system_prompt", "adapter") if name in more}
    profiles = FakeProfiles(bundle, toolbox or FakeToolbox(), **profile)
    ids = more.pop("ids", None) or CountingIds()
    models = more.pop("models", None) or ScriptedModels(plans or (Plan(body="{}"),))
    system = System(log, more.pop("queries", None) or log.queries, engine, profiles, models, ids, **more)
    try:
        yield system
    finally:
        system.stop()
