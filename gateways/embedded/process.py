"""One life of the child process: started in a group of its own, asked for its address, ended within a second."""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

_STEP: Final = 0.05
_GRACE: Final = 1.0
_LINE: Final = 4096


class ChildFailed(Exception):
    """The child did not come up; the message says why."""


class ChildProcess:
    """Made, used and ended on one thread: the kernel ends the child when that thread ends."""

    def __init__(self, command: Sequence[str], settings: Mapping[str, Any], log_file: Path) -> None:
        """Start the command and give it its settings; its error output goes to `log_file`, which begins anew."""
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the composition root's
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(settings).encode() + b"\n")
            self._stdin.flush()

    @property
    def pid(self) -> int:
        """The process id, which is the group's too."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def wait_for_url(self, seconds: float, given_up: Callable[[], bool]) -> str:
        """Return the address as soon as the child serves there.

        Raises:
            ChildFailed: it ended, said something else, or took longer; or `given_up` became true.
        """
        line, waited = b"", 0.0
        while not line.endswith(b"\n"):
            if given_up() or waited > seconds:
                raise ChildFailed(f"did not serve within {seconds:g} s")
            readable = select.select([self._stdout], [], [], _STEP)[0]
            waited += 0 if readable else _STEP
            data = os.read(self._stdout.fileno(), _LINE) if readable else None
            if data == b"" or len(line) > _LINE:
                raise ChildFailed(self._last_words())
            line += data or b""
        return _url(line)

    def end(self) -> None:
        """End the whole group, by force after a second, and reap the child."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
                break
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def how_it_ended(self) -> str:
        """Say how the process ended."""
        code = self._process.poll()
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        text = self._log_file.read_text("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return f"{self.how_it_ended()}{': ' + text[:300] if text else ''}"


def _url(line: bytes) -> str:
    try:
        url = json.loads(line)["url"]
    except (ValueError, KeyError, TypeError) as error:
        raise ChildFailed("said something that is no address") from error
    return str(url)
