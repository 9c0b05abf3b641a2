"""What the three gates of encoded requests share: how a fault is told, and what holds in every protocol."""

import json
import re
from typing import Any

from llm.types import Json, dict_of, json_object, list_of, provider_error, text_of

GATE_BODY_LIMIT = 30_000_000


def gate_fault(where: str, what: str) -> Json:
    """Return the typed error of a request that its provider would refuse; the history is not at fault for ever."""
    return provider_error("client", "invalid_request", f"the request is not valid at {where}: {what}", {})


def gate_size(body: Json) -> Json | None:
    """Return the error of a body that is too large to be sent, in characters of JSON."""
    size = len(json.dumps(body, ensure_ascii=False))
    if size <= GATE_BODY_LIMIT:
        return None
    return provider_error("overflow", "request_too_large", f"the request has {size} characters", {})


def gate_first(faults: list[Json | None]) -> Json | None:
    """Return the first fault, if there is one."""
    for fault in faults:
        if fault is not None:
            return fault
    return None


def gate_named(where: str, name: Any, limit: int) -> Json | None:
    """Return the fault of a name that is not 1 to `limit` of a-z A-Z 0-9 _ and -."""
    told = text_of(name)
    return (
        None if re.search("[^A-Za-z0-9_-]", told) is None and 0 < len(told) <= limit else gate_fault(where, "no tool name")
    )


def gate_tools_named(names: list[Any], limit: int) -> Json | None:
    """Return the fault of the first tool name that is none, or that is there twice."""
    seen: Json = {}
    for number, name in enumerate(names):
        fault = gate_named(f"tools.{number}", name, limit)
        if fault is not None:
            return fault
        if name in seen:
            return gate_fault(f"tools.{number}", "the name is there twice")
        seen[name] = True
    return None


def gate_arguments(where: str, text: Any) -> Json | None:
    """Return the fault of arguments that are not the text of a JSON object."""
    good = isinstance(text, str) and text[:1] == "{" and json_object(text) is not None
    return None if good else gate_fault(where, "the arguments are no JSON object")


def gate_text(where: str, text: Any) -> Json | None:
    """Return the fault of a text that is blank or none."""
    return None if isinstance(text, str) and text.strip() else gate_fault(where, "blank text")


def gate_content(where: str, content: Any, kinds: tuple[str, ...]) -> Json | None:
    """Return the fault of a content that is neither a text nor a list of parts of these kinds."""
    if isinstance(content, str):
        return gate_text(where, content)
    parts = list_of(content)
    if not parts:
        return gate_fault(where, "no content")
    for number, part in enumerate(parts):
        kind = dict_of(part).get("type")
        if kind not in kinds:
            return gate_fault(f"{where}.{number}", f"a part of type {kind}")
        if kind in ("text", "input_text", "output_text"):
            fault = gate_text(f"{where}.{number}", part.get("text"))
            if fault is not None:
                return fault
    return None
