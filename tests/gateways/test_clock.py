"""The real clock and the real ids keep what the ports promise."""

import time

from gateways.clock import ALPHABET, SystemClock, UlidIds


def test_the_clock_says_microseconds_of_utc() -> None:
    before = int(time.time() * 1_000_000)
    said = SystemClock().now()
    assert before <= said <= int(time.time() * 1_000_000) + 1


def test_monotonic_time_never_goes_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_an_id_is_prefix_underscore_and_26_characters() -> None:
    prefix, _, rest = UlidIds().new("run").partition("_")
    assert prefix == "run"
    assert len(rest) == 26
    assert set(rest) <= set(ALPHABET)


def test_ids_sort_in_the_order_in_which_they_were_made() -> None:
    ids = UlidIds()
    made = [ids.new("ses") for _ in range(5000)]
    assert made == sorted(made)
    assert len(set(made)) == 5000


def test_the_first_ten_characters_are_the_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    text = UlidIds().new("msg")[4:14]
    value = 0
    for character in text:
        value = value * 32 + ALPHABET.index(character)
    assert before <= value <= time.time_ns() // 1_000_000
