"""The gate of an encoded Anthropic request: what this protocol would refuse with 400 is found before it is sent."""

from typing import Any

from llm.gate_wire import gate_fault, gate_first, gate_named, gate_size, gate_text, gate_tools_named
from llm.types import Json, dict_of, list_of, text_of

GATE_MESSAGES_USER = ("text", "image", "document", "tool_result")
GATE_MESSAGES_SIGNED = ("thinking", "redacted_thinking")
GATE_MESSAGES_NAME = 128


def gate_messages_request(body: Json) -> Json | None:
    """Return the fault of a request, or None."""
    tools = [tool.get("name") for tool in list_of(body.get("tools"))]
    return gate_first([
        None if isinstance(body.get("max_tokens"), int) else gate_fault("max_tokens", "it is missing"),
        gate_tools_named(tools, GATE_MESSAGES_NAME),
        gate_messages_choice(body, tools),
        gate_messages_system(body.get("system")),
        gate_messages_turns(list_of(body.get("messages"))),
        gate_size(body),
    ])  # fmt: skip


def gate_messages_choice(body: Json, tools: list[Any]) -> Json | None:
    """Return the fault of a tool choice without its tool."""
    choice = dict_of(body.get("tool_choice"))
    if choice and not tools:
        return gate_fault("tool_choice", "there are no tools")
    if choice.get("type") == "tool" and choice.get("name") not in tools:
        return gate_fault("tool_choice", f"there is no tool {choice.get('name')!r}")
    return None


def gate_messages_system(system: Any) -> Json | None:
    """Return the fault of a blank system prompt."""
    for block in list_of(system):
        fault = gate_text("system", dict_of(block).get("text"))
        if fault is not None:
            return fault
    return None


def gate_messages_turns(turns: list[Any]) -> Json | None:
    """Return the first fault of the turns: roles alternate, blocks fit, each call is answered once in the next turn."""
    waiting: list[str] = []
    seen: Json = {}
    if not turns:
        return gate_fault("messages", "there are none")
    for number, turn in enumerate(turns):
        where = f"messages.{number}"
        role = "assistant" if number % 2 else "user"
        if turn.get("role") != role:
            return gate_fault(where, f"the role is not {role}")
        blocks = list_of(turn.get("content"))
        if not blocks:
            return gate_fault(where, "no content")
        fault = gate_messages_results(where, blocks, waiting) if role == "user" else gate_messages_last(where, blocks)
        fault = fault or gate_first([gate_messages_block(f"{where}.{at}", one, role) for at, one in enumerate(blocks)])
        if fault is not None:
            return fault
        waiting = [text_of(block.get("id")) for block in blocks if block["type"] == "tool_use"]
        for call_id in waiting:
            if call_id in seen:
                return gate_fault(where, f"the call id {call_id!r} is there twice")
            seen[call_id] = True
    return gate_fault("messages", "calls at the end have no results") if waiting else None


def gate_messages_results(where: str, blocks: list[Json], waiting: list[str]) -> Json | None:
    """Return the fault of results that are missing, too many, or not in front."""
    told = [text_of(block.get("tool_use_id")) for block in blocks if block["type"] == "tool_result"]
    if sorted(told) != sorted(waiting):
        return gate_fault(where, "the results are not those of the calls before")
    if any(block["type"] != "tool_result" for block in blocks[: len(told)]):
        return gate_fault(where, "something stands before the results")
    return None


def gate_messages_last(where: str, blocks: list[Json]) -> Json | None:
    """Return the fault of an assistant's turn that ends with thinking."""
    return gate_fault(where, "it ends with thinking") if blocks[-1]["type"] in GATE_MESSAGES_SIGNED else None


def gate_messages_block(where: str, block: Json, role: str) -> Json | None:
    """Return the fault of one block."""
    kind = block["type"]
    if kind == "text":
        return gate_text(where, block.get("text"))
    if role == "user":
        return None if kind in GATE_MESSAGES_USER else gate_fault(where, f"a block of type {kind} from the user")
    if kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            return gate_fault(where, "the input is no object")
        return gate_named(where, block.get("name"), GATE_MESSAGES_NAME) or gate_named(where, block.get("id"), 1_000)
    if kind == "thinking" and not text_of(block.get("signature")):
        return gate_fault(where, "thinking without a signature")
    return gate_fault(where, f"a block of type {kind} from the assistant") if kind in ("image", "tool_result") else None
