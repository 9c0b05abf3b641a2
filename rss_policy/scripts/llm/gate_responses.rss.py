"""The gate of an encoded Responses request: what this protocol would refuse with 400 is found before it is sent."""

from typing import Any

from llm.gate_wire import gate_arguments, gate_content, gate_fault, gate_first, gate_named, gate_size, gate_tools_named
from llm.types import Json, dict_of, list_of, text_of

GATE_RESPONSES_NAME = 64
GATE_RESPONSES_USER = ("input_text", "input_image", "input_file")
GATE_RESPONSES_ASSISTANT = ("output_text", "refusal")


def gate_responses_request(body: Json) -> Json | None:
    """Return the fault of a request, or None."""
    tools = [tool.get("name") for tool in list_of(body.get("tools"))]
    return gate_first([
        gate_tools_named(tools, GATE_RESPONSES_NAME),
        gate_responses_choice(body, tools),
        gate_responses_items(list_of(body.get("input"))),
        gate_size(body),
    ])  # fmt: skip


def gate_responses_choice(body: Json, tools: list[Any]) -> Json | None:
    """Return the fault of a tool choice without its tool."""
    choice = dict_of(body.get("tool_choice"))
    if body.get("tool_choice") == "required" and not tools:
        return gate_fault("tool_choice", "there are no tools")
    if choice.get("type") == "function" and choice.get("name") not in tools:
        return gate_fault("tool_choice", f"there is no tool {choice.get('name')!r}")
    return None


def gate_responses_items(items: list[Any]) -> Json | None:
    """Return the first fault of the items: each call is answered once, after it; reasoning has an item behind it."""
    called: Json = {}
    if not items:
        return gate_fault("input", "there are no items")
    for number, item in enumerate(items):
        where = f"input.{number}"
        kind = item.get("type", "message")
        fault = None
        if kind == "message":
            fault = gate_responses_message(where, item)
        elif kind == "function_call":
            fault = gate_responses_call(where, item, called)
            called[text_of(item.get("call_id"))] = "open"
        elif kind == "function_call_output":
            fault = gate_responses_output(where, item, called)
            called[text_of(item.get("call_id"))] = "answered"
        elif kind == "reasoning":
            fault = gate_responses_reasoning(where, item, items[number + 1 : number + 2])
        if fault is None and item.get("role") == "user" and "open" in called.values():
            fault = gate_fault(where, "calls before have no results")
        if fault is not None:
            return fault
    return gate_fault("input", "calls at the end have no results") if "open" in called.values() else None


def gate_responses_message(where: str, item: Json) -> Json | None:
    """Return the fault of a message."""
    role = item.get("role")
    if role not in ("user", "assistant"):
        return gate_fault(where, f"a message of role {role}")
    return gate_content(where, item.get("content"), GATE_RESPONSES_ASSISTANT if role == "assistant" else GATE_RESPONSES_USER)


def gate_responses_call(where: str, item: Json, called: Json) -> Json | None:
    """Return the fault of a call."""
    call_id = text_of(item.get("call_id"))
    if not 0 < len(call_id) <= GATE_RESPONSES_NAME or call_id in called:
        return gate_fault(where, f"the call id {call_id!r} is missing, too long, or there twice")
    return gate_named(where, item.get("name"), GATE_RESPONSES_NAME) or gate_arguments(where, item.get("arguments"))


def gate_responses_output(where: str, item: Json, called: Json) -> Json | None:
    """Return the fault of a result."""
    if called.get(text_of(item.get("call_id"))) != "open":
        return gate_fault(where, "the result has no call before it, or a second one")
    return None if text_of(item.get("output")) else gate_fault(where, "no output")


def gate_responses_reasoning(where: str, item: Json, behind: list[Json]) -> Json | None:
    """Return the fault of a reasoning item that cannot stand here."""
    if not isinstance(item.get("summary"), list):
        return gate_fault(where, "no summary")
    following = behind[0] if behind else {"role": "user"}
    if following.get("role") == "user" or following.get("type") == "function_call_output":
        return gate_fault(where, "reasoning without an item behind it")
    return None
