"""What wakes those who wait for a run: no news is lost, also when it comes just as a wait gives up."""

import threading

from eventstore.log import Envelope
from gateways.http.feed import RunFeed
from gateways.http.ports import Listener


class LateNews(threading.Event):
    """News that comes when the wait is over and has not returned yet."""

    def wait(self, timeout: float | None = None) -> bool:
        came = super().wait(timeout)
        self.set()
        return came


def feed_without_log() -> RunFeed:
    def subscribe(_listener: Listener) -> "type[None]":
        return type(None)

    def publish(_envelopes: tuple[Envelope, ...]) -> None:
        """Publish nowhere."""

    return RunFeed(subscribe, publish)


def test_news_that_comes_as_a_wait_gives_up_wakes_the_next_one() -> None:
    watch = feed_without_log().watch("run_1", end_only=True)
    watch._news = LateNews()
    assert not watch.wait(0)
    assert watch.wait(0)


def test_news_wakes_once() -> None:
    watch = feed_without_log().watch("run_1")
    watch._news.set()
    assert watch.wait(0)
    assert not watch.wait(0)
