"""One page of a run's events for a stream that catches up: what both transports do between two live events."""

from eventstore.queries import Queries
from gateways.http import views
from gateways.http.streams import EventStream

PAGE_BYTES = 128 * 1024
PAGE_ROWS = 128


def next_page(queries: Queries, stream: EventStream) -> tuple[bytes, int]:
    """Feed the stream what comes after its cursor; return the bytes and how many events the log had.

    Where the log has nothing more and the run has ended, the stream is over, also with a cursor beyond the end.

    Raises:
        LogError: the log failed.
    """
    rows = queries.events(stream.run_id, after=stream.cursor, limit=PAGE_ROWS)
    data = stream.feed_page(rows, PAGE_BYTES)
    if not rows:
        run = queries.run(None, stream.run_id)
        stream.over = run is None or (run.status in views.TERMINAL_STATUSES and run.last_seq <= stream.cursor)
    return data, len(rows)
