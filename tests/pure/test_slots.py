from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Refused
from actors.slots import Slots


def noting(granted: list[str], run_id: str) -> Callable[[], None]:
    return lambda: granted.append(run_id)


def test_places_are_taken_up_to_the_cap_and_a_repeat_takes_no_second_one() -> None:
    slots = Slots(limit=2, waiting=5)
    assert [slots.take(run) for run in ("a", "a", "b", "c")] == [True, True, True, False]
    assert slots.counts() == (2, 0)


def test_who_waits_is_served_in_order() -> None:
    slots, granted = Slots(limit=1, waiting=5), list[str]()
    slots.take("a")
    for run in ("b", "c"):
        slots.wait(run, noting(granted, run))
    slots.release("a")
    assert granted == ["b"]
    slots.release("b")
    assert granted == ["b", "c"]


def test_nobody_overtakes_the_line() -> None:
    slots, granted = Slots(limit=1, waiting=5), list[str]()
    slots.take("a")
    slots.wait("b", noting(granted, "b"))
    slots.release("a")
    slots.release("b")
    slots.take("x")
    slots.wait("c", noting(granted, "c"))
    assert not slots.take("d")
    assert granted == ["b"]


def test_who_has_a_place_is_granted_at_once() -> None:
    slots, granted = Slots(limit=1, waiting=5), list[str]()
    slots.take("a")
    slots.wait("a", noting(granted, "a"))
    assert granted == ["a"]
    slots.release("a")
    slots.wait("b", noting(granted, "b"))
    assert granted == ["a", "b"]


def test_waiting_again_keeps_the_place_in_the_line_and_counts_once() -> None:
    slots, granted = Slots(limit=1, waiting=2), list[str]()
    slots.take("a")
    for run in ("b", "c", "b"):
        slots.wait(run, noting(granted, run))
    slots.release("a")
    assert (granted, slots.counts()) == (["b"], (1, 1))


def test_a_line_that_is_full_refuses() -> None:
    slots = Slots(limit=1, waiting=1)
    slots.take("a")
    slots.wait("b", lambda: None)
    with pytest.raises(Refused) as refused:
        slots.wait("c", lambda: None)
    assert refused.value.code == "overloaded"
    slots.wait("b", lambda: None)


def test_leaving_the_line_makes_room_and_a_repeated_release_frees_nothing_twice() -> None:
    slots, granted = Slots(limit=1, waiting=1), list[str]()
    slots.take("a")
    slots.wait("b", noting(granted, "b"))
    slots.release("b")
    slots.wait("c", noting(granted, "c"))
    slots.release("a")
    slots.release("a")
    assert (granted, slots.counts()) == (["c"], (1, 0))


def test_a_run_that_cannot_take_its_place_gives_it_to_the_next() -> None:
    def fail() -> None:
        raise ValueError("a fault")

    slots, granted = Slots(limit=1, waiting=5), list[str]()
    slots.take("a")
    slots.wait("broken", fail)
    slots.wait("c", noting(granted, "c"))
    slots.release("a")
    assert (granted, slots.counts()) == (["c"], (1, 0))


@given(st.lists(st.tuples(st.sampled_from(["take", "wait", "release"]), st.integers(0, 6)), max_size=60))
def test_there_are_never_more_than_the_cap_and_no_free_place_while_somebody_waits(acts: list[tuple[str, int]]) -> None:
    slots = Slots(limit=2, waiting=3)
    for act, number in acts:
        run = f"run_{number}"
        try:
            match act:
                case "take":
                    slots.take(run)
                case "wait":
                    slots.wait(run, lambda: None)
                case _:
                    slots.release(run)
        except Refused:
            assert slots.counts() == (2, 3)
        active, waiting = slots.counts()
        assert active <= 2
        assert waiting <= 3
        assert active == 2 or waiting == 0
