"""Tokens and money of an answer: integers, with the price that was used, and nothing invented."""

import json
from typing import Any

import pytest

from tests.fakes.adapter import ScriptAdapter, script_names

Json = dict[str, Any]
NAMES = script_names()
PRICE = {"input": 3_000_000, "output": 15_000_000, "cached": 300_000, "cache_write": 3_750_000}


def usage_of(told: Json) -> Json:
    body = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "usage": told}
    value: Json = ScriptAdapter("chat").decode(json.dumps(body))["response"]["usage"]
    return value


def priced(told: Json, price: Json | None) -> Json:
    value: Json = NAMES["llm_priced"](usage_of(told), price)
    return value


def test_cached_and_written_tokens_have_their_own_price() -> None:
    told = {
        "prompt_tokens": 1_000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 200},
    }
    event = priced(told, PRICE)
    assert event["cost_micros"] == 200 * 3 + 600 * 0.3 + 200 * 3.75 + 100 * 15
    assert event["price"] == PRICE


def test_a_cost_below_one_micro_unit_is_rounded_up_so_that_it_never_passes_as_nothing() -> None:
    assert priced({"prompt_tokens": 1, "completion_tokens": 0}, {"input": 1, "output": 1})["cost_micros"] == 1


def test_reasoning_that_is_counted_beside_the_output_is_paid_too() -> None:
    told = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 115,
        "completion_tokens_details": {"reasoning_tokens": 100},
    }
    event = priced(told, {"input": 0, "output": 1_000_000})
    assert (event["output_tokens"], event["reasoning_tokens"], event["cost_micros"]) == (5, 100, 105)


def test_what_the_provider_says_it_charges_counts_where_no_price_is_known() -> None:
    event = priced({"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.001234}, None)
    assert (event["cost_micros"], event["price"]) == (1234, {"source": "provider"})


def test_without_a_price_there_is_no_cost() -> None:
    assert "cost_micros" not in priced({"prompt_tokens": 10, "completion_tokens": 5}, None)


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"])
def test_cached_tokens_are_found_under_each_vendors_name(name: str) -> None:
    assert usage_of({"prompt_tokens": 10, "completion_tokens": 5, name: 7})["cached_tokens"] == 7


@pytest.mark.parametrize("value", [None, "12", -3, True, [], 1e40])
def test_a_senseless_count_is_none(value: Any) -> None:
    assert usage_of({"prompt_tokens": value, "completion_tokens": 5})["input_tokens"] == 0
