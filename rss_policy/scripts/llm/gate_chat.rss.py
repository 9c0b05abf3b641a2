"""The gate of an encoded Chat Completions request: what this protocol would refuse with 400 is found before it is sent."""

from typing import Any

from llm.gate_wire import gate_arguments, gate_content, gate_fault, gate_first, gate_named, gate_size, gate_tools_named
from llm.types import Json, dict_of, list_of, text_of

GATE_CHAT_NAME = 64
GATE_CHAT_USER = ("text", "image_url", "file", "input_audio")


def gate_chat_request(body: Json) -> Json | None:
    """Return the fault of a request, or None."""
    tools = [dict_of(tool.get("function")).get("name") for tool in list_of(body.get("tools"))]
    return gate_first([
        gate_tools_named(tools, GATE_CHAT_NAME),
        gate_chat_choice(body, tools),
        gate_chat_messages(list_of(body.get("messages"))),
        gate_size(body),
    ])  # fmt: skip


def gate_chat_choice(body: Json, tools: list[Any]) -> Json | None:
    """Return the fault of a tool choice without its tool."""
    choice = dict_of(body.get("tool_choice"))
    if body.get("tool_choice") == "required" and not tools:
        return gate_fault("tool_choice", "there are no tools")
    name = dict_of(choice.get("function")).get("name")
    return gate_fault("tool_choice", f"there is no tool {name!r}") if choice and name not in tools else None


def gate_chat_messages(messages: list[Any]) -> Json | None:
    """Return the first fault of the messages: the system first and once, each call answered in place, no orphan result."""
    waiting: list[str] = []
    told = [message for message in messages if message.get("role") not in ("system", "developer")]
    if not told:
        return gate_fault("messages", "there are none")
    for number, message in enumerate(messages):
        where, role = f"messages.{number}", message.get("role")
        fault = None
        if role == "tool":
            call_id = text_of(message.get("tool_call_id"))
            if call_id not in waiting:
                return gate_fault(where, f"the result {call_id!r} has no call before it")
            waiting = [one for one in waiting if one != call_id]
        elif waiting:
            fault = gate_fault(where, "calls before have no results")
        elif role in ("system", "developer"):
            fault = gate_fault(where, "the system prompt is not in front") if number else None
        if fault is None and (role != "assistant" or message.get("content") is not None or not message.get("tool_calls")):
            fault = gate_content(f"{where}.content", message.get("content"), GATE_CHAT_USER if role == "user" else ("text",))
        if fault is None and role == "assistant":
            waiting = [text_of(dict_of(call).get("id")) for call in list_of(message.get("tool_calls"))]
            fault = gate_chat_calls(where, list_of(message.get("tool_calls")), waiting)
        if fault is not None:
            return fault
    return gate_fault("messages", "calls at the end have no results") if waiting else None


def gate_chat_calls(where: str, calls: list[Any], ids: list[str]) -> Json | None:
    """Return the first fault of an assistant's calls."""
    for number, call in enumerate(calls):
        if not ids[number] or ids[number] in ids[:number]:
            return gate_fault(where, f"the call id {ids[number]!r} is missing or there twice")
        function = dict_of(call.get("function"))
        fault = gate_named(where, function.get("name"), GATE_CHAT_NAME) or gate_arguments(where, function.get("arguments"))
        if fault is not None:
            return fault
    return None
