"""Rates and places: token buckets for each peer and principal, bounded in number, off unless asked for."""

from collections.abc import Callable

import pytest

from gateways.http.errors import ApiError
from gateways.http.limits import MAX_BUCKETS, Buckets, Slots
from tests.fakes.clock import ManualClock
from tests.gateways.http.conftest import Site


def test_without_a_setting_nothing_is_limited(site: Site) -> None:
    assert {site.get("/v1/runs").status_code for _ in range(100)} == {200}


def test_a_peer_that_asks_too_often_waits_and_then_goes_on(make_site: Callable[..., Site]) -> None:
    site = make_site(requests_per_minute_per_peer=3)
    assert [site.get("/v1/runs").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = site.get("/v1/runs")
    assert (refused.json["code"], refused.headers["retry-after"]) == ("rate_limited", "20")
    assert site.get("/health").status_code == 200
    site.world.clock.advance(20)
    assert site.get("/v1/runs").status_code == 200


def test_a_principal_is_limited_over_all_its_peers(make_site: Callable[..., Site]) -> None:
    site = make_site(requests_per_minute_per_principal=2)
    codes = [site.client.simulate_get("/v1/runs", remote_addr=f"127.0.0.{n}").status_code for n in range(1, 4)]
    assert codes == [200, 200, 429]


def test_the_openai_route_limits_in_openais_words(make_site: Callable[..., Site]) -> None:
    site = make_site(requests_per_minute_per_peer=1)
    site.get("/v1/models")
    refused = site.get("/v1/models")
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert "x-should-retry" not in refused.headers


def test_the_number_of_buckets_is_bounded_and_the_oldest_goes_first() -> None:
    buckets = Buckets(1, ManualClock().monotonic)
    for number in range(MAX_BUCKETS + 50):
        buckets.take(str(number))
    assert len(buckets) == MAX_BUCKETS
    buckets.take("0")
    with pytest.raises(ApiError):
        buckets.take(str(MAX_BUCKETS + 49))


def test_a_place_is_given_back_once_however_often_it_is_returned() -> None:
    slots = Slots(2, 2, full="streams_full", many="too_many_streams")
    first, _ = slots.take("a"), slots.take("a")
    with pytest.raises(ApiError):
        slots.take("b")
    first()
    first()
    assert slots.taken == 1
    slots.take("b")
    with pytest.raises(ApiError):
        slots.take("c")
