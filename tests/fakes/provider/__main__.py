"""The fake provider as a process of its own: `python -m tests.fakes.provider --port 0` prints its URL and serves."""

import argparse
import sys
import threading

from tests.fakes.provider.script import says
from tests.fakes.provider.server import FakeProvider


def main() -> None:
    """Serve until standard input ends or the process is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--text", default="Hello from the fake provider.", help="what every answer says")
    parser.add_argument("--pace", type=float, default=0, help="seconds between two events of a stream")
    parser.add_argument("--delay", type=float, default=0, help="seconds before an answer begins")
    parser.add_argument("--stamp", action="store_true", help="put the time of sending where the text has @monotonic@")
    parser.add_argument("--no-checks", action="store_true", help="take any request")
    options = parser.parse_args()
    answer = says(options.text, head_after=options.delay, pace=options.pace, stamp=options.stamp)
    with FakeProvider(port=options.port, checks=not options.no_checks, record=False) as fake:
        fake.always(answer)
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
