"""Performs tool calls that were let through; holds no truth: a call that dies with it is settled from the record."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from actors.errors import Refused
from actors.performers import CancelToken, Performers
from actors.ports import Tool, ToolCall, ToolResult
from actors.run_commands import ReportTool

logger = logging.getLogger(__name__)

Report = Callable[[ReportTool], None]


class ToolPerformer:
    """Runs tools on a pool of its own; every method may be called from any thread and returns at once."""

    def __init__(self, performers: Performers, clean: Callable[[Any], Any]) -> None:
        """Args: `clean` takes secrets out of what a tool gives."""
        self._performers, self._clean = performers, clean
        self._lock = threading.Lock()
        self._keys: dict[tuple[str, int], int] = {}

    def run(self, tool: Tool | None, call: ToolCall, attempt: int, report: Report) -> None:
        """Run an attempt of a call; its report comes however it goes.

        Raises:
            Refused: all performers are busy.
        """
        if tool is None:
            error = {"code": "unknown_tool", "message": f"There is no tool named {call.name!r} any more."}
            report(ReportTool(call.call, attempt, ToolResult("failed", error["message"], error)))
            return

        def work(token: CancelToken) -> None:
            unwanted = token.cancelled()
            result = ToolResult("cancelled", "") if unwanted else tool.run(call, token.cancelled)
            self._done(call)
            report(ReportTool(call.call, attempt, self._cleaned(result)))

        def failed(error: BaseException) -> None:
            if isinstance(error, Refused):  # the server stops before the tool began
                self._done(call)
                report(ReportTool(call.call, attempt, ToolResult("cancelled", "")))
                return
            # The tool has a fault of its own; the model reads that, and no detail that it could leak.
            logger.error("tool %s of %s failed: %s", call.name, call.run_id, type(error).__name__, exc_info=error)
            self._done(call)
            problem = {"code": "tool_failed", "message": f"the tool failed: {type(error).__name__}"}
            report(ReportTool(call.call, attempt, ToolResult("failed", problem["message"], problem)))

        with self._lock:
            self._keys[call.run_id, call.call] = attempt
        try:
            self._performers.submit((call.run_id, call.call, attempt), work, failed)
        except Refused:
            self._done(call)
            raise

    def stop(self, run_id: str, number: int) -> None:
        """Tell a call that it is not wanted any more."""
        with self._lock:
            attempt = self._keys.get((run_id, number))
        if attempt is not None:
            self._performers.cancel((run_id, number, attempt))

    def stop_all(self, run_id: str | None = None) -> None:
        """Tell all calls of a run, or of all runs, that they are not wanted any more."""
        with self._lock:
            keys = [key for key in self._keys if run_id in (None, key[0])]
        for owner, number in keys:
            self.stop(owner, number)

    def active(self) -> int:
        """Return how many calls are at work."""
        return len(self._keys)

    def _done(self, call: ToolCall) -> None:
        with self._lock:
            self._keys.pop((call.run_id, call.call), None)

    def _cleaned(self, result: ToolResult) -> ToolResult:
        return replace(result, content=self._clean(result.content), error=self._clean(result.error))
