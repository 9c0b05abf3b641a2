"""Workers that are ready before anybody asks: used once, for their bundle only, and given up where they are needed."""

import time
from collections.abc import Callable, Iterator

import pytest

from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.script import Ended, Waiting
from rss_policy.seats import Parking
from tests.fakes.scripts import CONTEXT, answers, bundle_of

ONE_READY = Parking(idle_seconds=3_600, ready=1)
COUNTS = "seen = []\n\nasync def run(context):\n    seen.append(1)\n    return len(seen)\n"
OTHER = "async def run(context):\n    return 'other'\n"
WAITS = "from host import sleep\n\nasync def run(context):\n    await sleep(1)\n    return 'slept'\n"


@pytest.fixture
def engine() -> Iterator[Callable[[int], MontyEngine]]:
    opened: list[MontyEngine] = []

    def make(workers: int) -> MontyEngine:
        opened.append(MontyEngine(workers, parking=ONE_READY, checkout_timeout=2.0))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def result(engine: MontyEngine, bundle: Bundle) -> object:
    script, _ = engine.open(bundle, CONTEXT)
    halt = script.begin(answers)
    assert isinstance(halt, Ended)
    return halt.result


def until_taken(engine: MontyEngine, count: int) -> None:
    deadline = time.monotonic() + 5
    while engine.seats.taken != count:
        assert time.monotonic() < deadline, engine.seats.taken
        time.sleep(0.005)


def test_after_a_run_a_worker_is_made_ready_for_the_next(engine: Callable[[int], MontyEngine]) -> None:
    one, bundle = engine(4), bundle_of({"agent.main": COUNTS})
    result(one, bundle)
    until_taken(one, 1)
    lease = one.ready(bundle, one._limits.narrowed(bundle.manifest.limits))
    assert lease is not None
    lease.give_back()


def test_every_run_starts_from_fresh_modules_also_on_a_ready_worker(engine: Callable[[int], MontyEngine]) -> None:
    one, bundle = engine(4), bundle_of({"agent.main": COUNTS})
    for _ in range(3):
        assert result(one, bundle) == 1
        until_taken(one, 1)


def test_a_worker_that_is_ready_for_one_bundle_is_not_used_for_another(engine: Callable[[int], MontyEngine]) -> None:
    one = engine(4)
    result(one, bundle_of({"agent.main": COUNTS}))
    until_taken(one, 1)
    assert result(one, bundle_of({"agent.main": OTHER})) == "other"
    until_taken(one, 1)
    assert result(one, bundle_of({"agent.main": OTHER})) == "other"


def test_a_ready_worker_gives_way_where_it_is_the_last(engine: Callable[[int], MontyEngine]) -> None:
    one = engine(1)
    result(one, bundle_of({"agent.main": COUNTS}))
    until_taken(one, 1)
    script, _ = one.open(bundle_of({"agent.main": WAITS}), CONTEXT)
    assert isinstance(script.begin(answers), Waiting)
    assert one.seats.taken == 1
    assert isinstance(script.settle(1, {"ok": True}, answers), Ended)


def test_a_ready_worker_that_died_costs_one_run_another_try_at_most(engine: Callable[[int], MontyEngine]) -> None:
    one, bundle = engine(2), bundle_of({"agent.main": COUNTS})
    result(one, bundle)
    until_taken(one, 1)
    lease = one.ready(bundle, one._limits.narrowed(bundle.manifest.limits))
    assert lease is not None
    lease.kill()
    lease.give_back()
    assert result(one, bundle) == 1


def test_closing_the_engine_ends_what_is_ready(engine: Callable[[int], MontyEngine]) -> None:
    one = engine(2)
    result(one, bundle_of({"agent.main": COUNTS}))
    until_taken(one, 1)
    one.close()
    assert one.seats.taken == 0
