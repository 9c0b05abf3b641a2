"""Tools that tests can hold, watch and break, and a toolbox of them."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.ports import EffectClass, RiskClass, Tool, ToolCall, ToolResult


@dataclass
class FakeTool:
    """Notes each call, waits for `gate` if there is one, and gives `content`; a cancel ends the wait unless `deaf`."""

    name: str
    effect: EffectClass = "read"
    risk: RiskClass = "read"
    content: str = "done"
    gate: threading.Event | None = None
    deaf: bool = False
    error: Exception | None = None
    calls: list[ToolCall] = field(default_factory=list)

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"name": self.name, "description": self.name, "parameters": {"type": "object"}}

    def run(self, call: ToolCall, cancelled: Callable[[], bool]) -> ToolResult:
        self.calls.append(call)
        while self.gate is not None and not self.gate.wait(0.002):
            if cancelled() and not self.deaf:
                return ToolResult("cancelled", "stopped half way")
        if self.error is not None:
            raise self.error
        return ToolResult("ok", self.content)


class FakeToolbox:
    def __init__(self, *tools: FakeTool) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self._tools[name].schema for name in sorted(self._tools))
