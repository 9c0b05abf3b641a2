"""A process that has imported the whole server and forks one for each request, so that hundreds of starts cost little.

Commands come as JSON lines: `{"config", "die_at", "moment", "counter"}` starts a server and answers with its pid; the
server kills itself with SIGKILL at its `die_at`-th commit, before or after it (0: never, and it counts its commits in
`counter`).  `{"wait": pid}` answers with how it ended.
"""

import gc
import json
import os
import signal
import sqlite3
import sys
import threading
from functools import partial
from pathlib import Path

from eventstore.sqlite.log import commit
from eventstore.sqlite.store import open_store
from gateways import compose
from gateways.config_load import load


class Killer:
    """The commit that ends the process at a chosen transaction."""

    def __init__(self, die_at: int, moment: str, counter: Path) -> None:
        self._die_at, self._moment, self._counter, self._seen = die_at, moment, counter, 0

    def __call__(self, db: sqlite3.Connection) -> None:
        self._seen += 1
        here = self._seen == self._die_at
        if here and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(db)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self._die_at:
            self._counter.write_text(str(self._seen))


def serve(asked: dict[str, str]) -> None:
    """Serve until SIGTERM; the address goes to a file beside the configuration."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    config = Path(asked["config"])
    killer = Killer(int(asked["die_at"]), asked["moment"], Path(asked["counter"]))
    parts = compose.Parts(environ={}, store=partial(open_store, commit=killer), look=lambda: None)
    with compose.serving(load(config, environ={}), parts) as server:
        address = config.with_suffix(".address")
        address.with_suffix(".new").write_text(server.url)
        address.with_suffix(".new").rename(address)
        stop.wait()


def spawn(asked: dict[str, str]) -> int:
    """Fork a server and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with Path(asked["config"]).with_suffix(".stderr").open("ab", buffering=0) as log:
            os.dup2(log.fileno(), 2)
        serve(asked)
        code = 0
    except BaseException:  # noqa: BLE001 - the fork must end here, and its parent is told by the exit code
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def main() -> None:
    """Answer commands until standard input ends."""
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]) if "wait" in asked else spawn(asked)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
