"""Stands in for the embedded model's child process: comes up, or fails, as its flags say."""

import argparse
import http.server
import json
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gateways.embedded.child import die_with_parent


class Healthy(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", type=float, default=0)
    parser.add_argument("--fail")
    parser.add_argument("--says")
    parser.add_argument("--count")
    parser.add_argument("--stubborn", action="store_true")
    options = parser.parse_args()
    die_with_parent()
    sys.stdin.readline()
    if options.count:
        with Path(options.count).open("a") as count:
            count.write("x")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(options.load)
    if options.fail:
        sys.stderr.write(f"loading\n{options.fail}\n")
        sys.exit(3)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    said = options.says or json.dumps({"url": f"http://127.0.0.1:{server.server_port}"})
    sys.stdout.write(f"{said}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
