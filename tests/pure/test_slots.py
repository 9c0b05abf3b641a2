from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Refused
from actors.slots import Slots


def noting(granted: list[str], run_id: str) -> Callable[[], None]:
    return lambda: granted.append(run_id)


def nothing() -> None:
    """Be granted a place without a word."""


def waiting_behind_a(limit: int = 1, waiting: int = 5, *runs: str) -> tuple[Slots, list[str]]:
    """Return slots with `a` at work and these runs in the line, and who was granted a place so far."""
    slots, granted = Slots(limit, waiting), list[str]()
    slots.hold("a")
    for run in runs:
        slots.wait(run, noting(granted, run))
    return slots, granted


def test_places_are_booked_up_to_the_cap_and_after_that_the_right_to_wait() -> None:
    slots = Slots(limit=2, waiting=5)
    assert [slots.book(run, place=True) for run in ("a", "b", "c")] == [True, True, False]
    assert slots.counts() == (2, 1)


def test_a_run_of_a_busy_session_books_no_place() -> None:
    slots = Slots(limit=2, waiting=5)
    assert not slots.book("a", place=False)
    assert slots.counts() == (0, 1)


def test_no_more_book_than_may_wait_however_many_ask_before_the_first_one_comes() -> None:
    slots = Slots(limit=1, waiting=2)
    for run in ("a", "b", "c"):
        slots.book(run, place=True)
    with pytest.raises(Refused) as refused:
        slots.book("d", place=True)
    assert refused.value.code == "overloaded"
    slots.wait("b", nothing)
    slots.wait("c", nothing)
    assert slots.counts() == (1, 2)


def test_what_was_booked_in_vain_is_free_again() -> None:
    slots = Slots(limit=1, waiting=1)
    slots.book("a", place=True)
    slots.book("b", place=True)
    slots.give_back("a", waits=False)
    slots.give_back("b", waits=False)
    assert slots.counts() == (0, 0)


def test_a_place_that_was_booked_for_a_run_which_has_to_wait_goes_to_another() -> None:
    slots, granted = Slots(limit=1, waiting=2), list[str]()
    slots.book("a", place=True)
    slots.wait("b", noting(granted, "b"))
    slots.give_back("a", waits=True)
    assert (granted, slots.counts()) == (["b"], (1, 1))


def test_a_booking_is_given_back_too_late_when_its_run_has_come_for_the_place() -> None:
    slots, granted = Slots(limit=1, waiting=2), list[str]()
    slots.book("a", place=True)
    slots.wait("a", noting(granted, "a"))
    slots.give_back("a", waits=True)
    assert (granted, slots.counts()) == (["a"], (1, 0))


def test_who_waits_is_served_in_order() -> None:
    slots, granted = waiting_behind_a(1, 5, "b", "c")
    slots.end("a")
    assert granted == ["b"]
    slots.end("b")
    assert granted == ["b", "c"]


def test_nobody_overtakes_the_line() -> None:
    slots, granted = waiting_behind_a(1, 5, "b")
    assert not slots.book("c", place=True)
    slots.end("a")
    assert granted == ["b"]


def test_waiting_again_keeps_the_place_in_the_line_and_counts_once() -> None:
    slots, granted = waiting_behind_a(1, 2, "b", "c", "b")
    slots.end("a")
    assert (granted, slots.counts()) == (["b"], (1, 1))


def test_an_end_leaves_the_line_and_a_repeated_one_frees_nothing_twice() -> None:
    slots, granted = waiting_behind_a(1, 5, "b", "c")
    slots.end("b")
    slots.end("a")
    slots.end("a")
    assert (granted, slots.counts()) == (["c"], (1, 0))


def test_a_session_that_asks_for_a_run_which_has_ended_takes_no_place_and_does_not_wait() -> None:
    slots, granted = waiting_behind_a()
    slots.end("b")
    slots.wait("b", noting(granted, "b"))
    slots.hold("b")
    assert (granted, slots.counts()) == (["b"], (1, 0))


def test_a_run_that_begins_counts_although_nobody_booked() -> None:
    slots, _ = waiting_behind_a(1, 5)
    slots.hold("b")
    assert slots.counts() == (2, 0)
    assert not slots.book("c", place=True)


def test_a_run_that_cannot_take_its_place_gives_it_to_the_next() -> None:
    def fail() -> None:
        raise ValueError("a fault")

    slots, granted = waiting_behind_a()
    slots.wait("broken", fail)
    slots.wait("c", noting(granted, "c"))
    slots.end("a")
    assert (granted, slots.counts()) == (["c"], (1, 0))


ACTS = st.sampled_from(["book", "book later", "give back", "stand back", "wait", "end"])


@given(st.lists(st.tuples(ACTS, st.integers(0, 6)), max_size=60))
def test_the_bounds_hold_and_no_place_is_free_while_somebody_waits_for_one(acts: list[tuple[str, int]]) -> None:
    slots, line = Slots(limit=2, waiting=3), set[str]()
    for act, number in acts:
        run = f"run_{number}"
        match act:
            case "book" | "book later":
                try:
                    slots.book(run, place=act == "book")
                except Refused:
                    assert slots.counts()[1] >= 3
            case "give back" | "stand back":
                slots.give_back(run, waits=act == "stand back")
            case "wait":
                line.add(run)
                slots.wait(run, lambda run=run: line.discard(run))  # type: ignore[misc]
            case _:
                line.discard(run)
                slots.end(run)
        active, waiting = slots.counts()
        assert active <= 2
        assert active == 2 or not line
        assert waiting >= len(line)


@given(st.lists(st.tuples(ACTS, st.integers(0, 6)), max_size=60))
def test_when_all_have_ended_all_places_are_free(acts: list[tuple[str, int]]) -> None:
    slots = Slots(limit=2, waiting=30)
    for number in range(7):
        slots.end(f"run_{number}")
    for act, number in acts:
        run = f"run_{number}"
        match act:
            case "wait":
                slots.wait(run, nothing)
            case "end":
                slots.end(run)
            case _:
                slots.hold(run)
    assert slots.counts() == (0, 0)
