"""Numbers for Prometheus: requests as they are answered, the rest asked for when somebody looks."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateways.http.schemas import STATUSES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A second line a series that says when it began would double the page, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library forgot it
_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """The gateway's own registry; nothing global, so that two servers in one process do not meet.  Any thread."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], gauges: Mapping[str, Callable[[], float]]) -> None:
        """Take the log's counts, and further numbers by name."""
        self._registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("deedbox_http_requests", "Answered requests.", labels, registry=self._registry)
        self._seconds = Histogram(
            "deedbox_http_request_seconds",
            "Time to the answer, or to the hand-over of a stream.",
            ("route",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Asked(counts, gauges))

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        known = method if method in ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS") else "other"
        self._requests.labels(route, known, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return everything in the text format."""
        return generate_latest(self._registry)


class _Asked(Collector):
    """Numbers that live elsewhere, read at the moment somebody looks."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], gauges: Mapping[str, Callable[[], float]]) -> None:
        self._counts, self._gauges = counts, gauges

    def describe(self) -> Iterable[Metric]:
        """Describe nothing, so that registering asks nobody."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield all numbers."""
        counts = self._counts()
        runs = GaugeMetricFamily("deedbox_runs", "Runs on record, by status.", labels=["status"])
        for status in STATUSES:
            runs.add_metric([status], counts.get(f"runs.{status}", 0))
        yield runs
        yield GaugeMetricFamily("deedbox_sessions", "Sessions on record.", value=counts.get("sessions", 0))
        yield CounterMetricFamily("deedbox_events", "Events on record.", value=counts.get("events", 0))
        yield GaugeMetricFamily("deedbox_database_bytes", "Size of the database.", value=counts.get("database_bytes", 0))
        for name, read in self._gauges.items():
            yield GaugeMetricFamily(f"deedbox_{name}", name.replace("_", " ").capitalize() + ".", value=read())
