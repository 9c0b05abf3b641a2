"""Workers: bounded, shared by parking, given back, checked, and quick to be had."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.errors import BundleRefused, EngineBusy, EngineFailed, PolicyError, TypesRefused, WorkerLost
from rss_policy.live import LiveScript
from rss_policy.loader import load_bundle
from rss_policy.manifest import Limits
from rss_policy.script import Ended, Waiting
from rss_policy.seats import Parking, Seats
from rss_policy.shelf import Shelf, check
from tests.fakes.scripts import CONTEXT, answers, bundle_of

WAITS = (
    "from host import sleep\n\nasync def run(context):\n    a = await sleep(1)\n"
    "    b = await sleep(2)\n    return [a['n'], b['n']]\n"
)
FOREVER = "async def run(context):\n    while True:\n        pass\n"
NEVER_IDLE = Parking(idle_seconds=3_600)


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine() -> Iterator[Callable[..., MontyEngine]]:
    opened: list[MontyEngine] = []

    def make(workers: int, **more: object) -> MontyEngine:
        opened.append(MontyEngine(workers, **{"parking": NEVER_IDLE, **more}))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def waiting(engine: MontyEngine, text: str = WAITS) -> LiveScript:
    script, halt = engine.open(bundle_of({"agent.main": text}), CONTEXT)
    assert halt is None
    assert isinstance(script.begin(answers), Waiting)
    return script


def lose(script: LiveScript) -> None:
    with pytest.raises(WorkerLost):
        script.begin(answers)


def test_more_scripts_than_workers_take_turns(engine: Callable[..., MontyEngine]) -> None:
    small = engine(2)
    scripts = [waiting(small) for _ in range(7)]
    assert small.seats.taken == 2
    for index, script in enumerate(scripts):
        script.settle(1, {"n": index}, answers)
    halts = [script.settle(2, {"n": index}, answers) for index, script in enumerate(scripts)]
    assert halts == [Ended((), [index, index], frozenset()) for index in range(7)]
    assert small.seats.taken == 0


def test_the_script_that_waits_longest_is_parked_first(engine: Callable[..., MontyEngine]) -> None:
    small = engine(2)
    first, second = waiting(small), waiting(small)
    first.settle(1, {"n": 1}, answers)
    waiting(small)
    assert (second.park(), first.park()) == (False, True)


class Stubborn:
    """Holds a seat and may not give it back."""

    def __init__(self, seats: Seats, *, parks: bool) -> None:
        self._seats, self._parks, self.asked = seats, parks, 0

    def park(self) -> bool:
        self.asked += 1
        assert self.asked < 9, "the same one is asked for ever"
        if self._parks:
            self._seats.leaves(self)
            self._seats.free()
        return self._parks

    def drop(self, _reason: str) -> None: ...

    def kill(self) -> None: ...


def test_who_cannot_be_parked_just_now_is_not_asked_for_ever() -> None:
    seats = Seats(2, 5.0, NEVER_IDLE, time.monotonic)
    first, second = Stubborn(seats, parks=False), Stubborn(seats, parks=True)
    for one in (first, second):
        seats.take()
        seats.rests(one)
    seats.take()
    assert (first.asked, second.asked, seats.taken) == (1, 1, 2)
    seats.close()


def test_a_worker_that_was_given_back_is_given_back_once_and_no_longer_killed(engine: Callable[..., MontyEngine]) -> None:
    opened = engine(1)
    lease = opened.lease(Limits())
    pid = lease.pid
    assert pid is not None
    lease.give_back()
    lease.give_back()
    lease.kill()
    assert (lease.pid, opened.seats.taken) == (None, 0)
    again = opened.lease(Limits())
    assert again.pid == pid
    assert again.session.feed_run("1 + 1") == 2
    again.give_back()


def test_a_script_that_waits_two_seconds_is_parked_and_goes_on(engine: Callable[..., MontyEngine]) -> None:
    clock = Seconds()
    small = engine(2, parking=Parking(idle_seconds=2.0), monotonic=clock)
    script = waiting(small)
    clock.now = 1.9
    assert (small.seats.park_idle(), small.seats.taken) == (0, 1)
    clock.now = 2.0
    assert (small.seats.park_idle(), small.seats.taken) == (1, 0)
    assert isinstance(script.settle(1, {"n": 1}, answers), Waiting)
    assert script.settle(2, {"n": 2}, answers) == Ended((), [1, 2], frozenset())


def test_the_engine_parks_by_itself(engine: Callable[..., MontyEngine]) -> None:
    small = engine(1, parking=Parking(idle_seconds=0.05))
    waiting(small)
    ends = time.monotonic() + 5
    while small.seats.taken and time.monotonic() < ends:
        threading.Event().wait(0.01)
    assert small.seats.taken == 0


def test_when_all_workers_compute_a_script_is_told_that_the_engine_is_busy(engine: Callable[..., MontyEngine]) -> None:
    small = engine(1, checkout_timeout=0.1)
    quick = bundle_of({"agent.main": WAITS})
    late, _ = small.open(quick, CONTEXT)
    endless, _ = small.open(bundle_of({"agent.main": FOREVER}), CONTEXT)
    thread = threading.Thread(target=lose, args=(endless,))
    thread.start()
    while not small.seats.taken:
        threading.Event().wait(0.01)
    with pytest.raises(EngineBusy, match=r"no worker came free in 0.1 s"):
        late.begin(answers)
    endless.kill()
    thread.join(5)
    again, _ = small.open(quick, CONTEXT)
    assert isinstance(again.begin(answers), Waiting)


def test_parked_state_is_bounded_and_what_is_dropped_is_lost_to_replay(engine: Callable[..., MontyEngine]) -> None:
    sample = waiting(engine(1))
    assert sample.park()
    size = len(sample._dump or b"")
    small = engine(2, parking=Parking(idle_seconds=3_600, most_bytes=size * 5 // 2))
    scripts = [waiting(small) for _ in range(6)]
    assert sum(script.park() for script in scripts) == 2
    for dropped in scripts[:4]:
        with pytest.raises(WorkerLost, match="bound memory"):
            dropped.settle(1, {"n": 1}, answers)
    for kept in scripts[4:]:
        assert isinstance(kept.settle(1, {"n": 1}, answers), Waiting)


def test_a_parked_state_larger_than_the_bound_is_lost_to_replay(engine: Callable[..., MontyEngine]) -> None:
    script = waiting(engine(1, parking=Parking(idle_seconds=3_600, most_bytes=1)))
    assert script.park()
    with pytest.raises(WorkerLost, match="bound memory"):
        script.settle(1, {"n": 1}, answers)


def test_a_script_that_is_closed_gives_its_worker_back_parked_or_not(engine: Callable[..., MontyEngine]) -> None:
    small = engine(2)
    held, parked = waiting(small), waiting(small)
    parked.park()
    held.close()
    parked.close()
    assert small.seats.taken == 0
    assert not held.park()


def test_a_closed_engine_loses_its_scripts_and_opens_none(engine: Callable[..., MontyEngine]) -> None:
    small = engine(2)
    bundle = bundle_of({"agent.main": WAITS})
    held, parked = waiting(small), waiting(small)
    parked.park()
    small.close()
    small.close()
    for script in (held, parked):
        with pytest.raises(WorkerLost):
            script.settle(1, {"n": 1}, answers)
    late, _ = small.open(bundle, CONTEXT)
    with pytest.raises(EngineFailed, match="closed"):
        late.begin(answers)


def test_closing_the_engine_ends_a_script_that_computes(engine: Callable[..., MontyEngine]) -> None:
    small = engine(1)
    endless, _ = small.open(bundle_of({"agent.main": FOREVER}), CONTEXT)
    lost: list[BaseException] = []

    def run() -> None:
        try:
            endless.begin(answers)
        except EngineFailed as fault:
            lost.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    while not small.seats.taken:
        threading.Event().wait(0.01)
    small.close()
    thread.join(5)
    assert [type(fault) for fault in lost] == [WorkerLost]


def test_a_bundle_is_opened_from_its_archive_too_and_must_be_the_one_it_says(engine: Callable[..., MontyEngine]) -> None:
    class Stored:
        def __init__(self, digest: str, archive: bytes) -> None:
            self.digest, self.archive = digest, archive

    small = engine(1)
    bundle = bundle_of({"agent.main": WAITS})
    for _ in range(2):
        script, _halt = small.open(Stored(bundle.digest, bundle.archive), CONTEXT)
        assert isinstance(script.begin(answers), Waiting)
    with pytest.raises(BundleRefused, match="the archive holds"):
        small.open(Stored("0" * 64, bundle.archive), CONTEXT)


def test_scripts_share_nothing(engine: Callable[..., MontyEngine]) -> None:
    text = "SEEN = []\n\nasync def run(context):\n    SEEN.append(1)\n    return len(SEEN)\n"
    small = engine(1)
    bundle = bundle_of({"agent.main": text})
    for _ in range(3):
        script, _halt = small.open(bundle, CONTEXT)
        assert script.begin(answers) == Ended((), 1, frozenset())


def test_a_prepared_bundle_is_opened_quickly(engine: Callable[..., MontyEngine]) -> None:
    small = engine(1)
    bundle = bundle_of(
        {
            "agent.main": "from llm.a import f1\n" + WAITS,
            "llm.a": "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(500)),
        }
    )
    small.open(bundle, CONTEXT)[0].close()
    best = min(timed(small, bundle) for _ in range(10))
    assert best < 0.02


def timed(engine: MontyEngine, bundle: Bundle) -> float:
    began = time.perf_counter()
    script, _ = engine.open(bundle, CONTEXT)
    script.begin(answers)
    took = time.perf_counter() - began
    script.close()
    return took


def test_the_version_names_the_interpreter(engine: Callable[..., MontyEngine]) -> None:
    assert engine(1).version == "pydantic-monty 1.4.0"


def folder(path: Path, main: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "policy.toml").write_text('name = "x"\nversion = "1"\nentry = "main"\n')
    (path / "main.rss.py").write_text(main)
    return path


TYPED = (
    "from typing import Any\n\nfrom host import emit\n\n\n"
    "async def run(context: dict[str, Any]) -> dict[str, Any]:\n"
    "    emit({'type': 'note.x'})\n    return {}\n"
)


def test_a_policy_is_checked_against_the_types_of_the_host(engine: Callable[..., MontyEngine], tmp_path: Path) -> None:
    small = engine(1)
    assert check(folder(tmp_path, TYPED), small).manifest.name == "x"
    with pytest.raises(TypesRefused) as refused:
        check(folder(tmp_path, TYPED.replace("{'type': 'note.x'}", "'note.x'").replace("return {}", "return 3")), small)
    first, second = str(refused.value).splitlines()
    assert refused.value.place == "main:7"
    assert first.startswith("main:7:10: error[invalid-argument-type]")
    assert second.startswith("main:8:12: error[invalid-return-type]")
    with pytest.raises(TypesRefused, match=r"main:7:\d+: error"):
        check(folder(tmp_path, TYPED.replace("emit({", "emit({1: 2, ")), small)


@pytest.mark.parametrize("main", ["def f(:\n", "import os\n", TYPED.replace("return {}", "return 3"), "X = 1 / 0\n" + TYPED])
def test_a_broken_policy_never_replaces_a_working_one(engine: Callable[..., MontyEngine], tmp_path: Path, main: str) -> None:
    shelf = Shelf(engine(1))
    works = shelf.put("default", folder(tmp_path, TYPED))
    with pytest.raises(PolicyError):
        shelf.put("default", folder(tmp_path, main))
    assert shelf.find("default") is works
    better = shelf.put("default", folder(tmp_path, TYPED + "\n# better\n"))
    assert shelf.find("default") is better
    assert (shelf.known(works.digest), shelf.known("0"), shelf.find("other")) == (works, None, None)


def test_an_old_bundle_is_restored_from_its_archive(engine: Callable[..., MontyEngine], tmp_path: Path) -> None:
    old = load_bundle(folder(tmp_path, TYPED))
    shelf = Shelf(engine(1))
    assert shelf.restore(old.archive) == old
    assert shelf.known(old.digest) == old
