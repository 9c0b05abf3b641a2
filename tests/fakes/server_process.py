"""The real server as a process of its own, on a free port of loopback; for tests that start, kill and restart it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import requests

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
KEYS = ("OPENAI", "ANTHROPIC", "OPENROUTER", "DEEPSEEK", "OPENCODE")


class ServerProcess:
    """`with ServerProcess(folder, provider_url) as server: … server.url …`; `folder` gets `deedbox.toml` and the data."""

    def __init__(
        self,
        folder: Path,
        provider_url: str,
        *arguments: str,
        settings: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "var"
        self._provider_url, self._settings, self._arguments = provider_url, settings, arguments
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.said: list[str] = []

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if kind is not None:
            sys.stderr.write(self.log())

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> "ServerProcess":
        """Start the server, again after a stop, and wait until it has said where it listens."""
        self._write_settings()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateways", "serve", "--address", "127.0.0.1:0", *self._arguments],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self.said = [self._process.stdout.readline().strip() for _ in range(3)]
        if "http://" not in self.said[0]:
            self.kill()
            raise AssertionError(f"the server did not start: {self.said} {self.log()}")
        self.url = self.said[0].rpartition(" ")[2]
        self._wait_ready()
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and return at once."""
        self._running().send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> tuple[int, float]:
        """Wait for the end; return exit code and seconds that it took."""
        began = time.monotonic()
        process = self._running()
        code = process.wait(timeout)
        took = time.monotonic() - began
        assert process.stdout is not None
        self.said += process.stdout.read().splitlines()
        process.stdout.close()
        self._process = None
        return code, took

    def stop(self) -> tuple[int, float]:
        """Stop in order; return exit code and seconds."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill it, as kill -9 does; nothing happens if it does not run."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def log(self) -> str:
        """Return what it wrote to standard error, over all its lives."""
        return self._log_file.read_text("utf-8") if self._log_file.exists() else ""

    @property
    def _log_file(self) -> Path:
        return self.folder / "server.log"

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server does not run"
        return self._process

    def _write_settings(self) -> None:
        text = (
            f'[server]\ndata_dir = "{self.data_dir}"\n[providers.custom]\nbase_url = "{self._provider_url}"\n'
            f'models = ["fake-model", "fake-model-2"]\n{self._settings}'
        )
        (self.folder / "deedbox.toml").write_text(text, "utf-8")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOX_")}
        for name in KEYS:
            kept.pop(f"{name}_API_KEY", None)
        return kept | {"PYTHONPATH": str(ROOT)} | self._environ

    def _wait_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if requests.get(f"{self.url}/ready", timeout=PATIENCE).status_code == requests.codes.ok:
                return
            time.sleep(0.02)
        raise AssertionError(f"the server is not ready: {self.log()}")
