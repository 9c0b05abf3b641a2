"""The canonical vocabulary between the agent loop and the wire adapters: plain JSON dicts, described field by field.

Adapters translate a provider's format into these shapes and back; nothing else in the policy knows a wire format.  A
canonical message is the one that the server records (see docs/policy.md); the shapes here live only inside a run.

Names are unique over the whole bundle, so every adapter prefixes its functions: `chat_`, `responses_`, `messages_`.
The six functions of an adapter, the same for every protocol (X is its prefix):

    X_encode(request, provider)          -> {"ok": True, "path", "body", "headers", "repairs": [names of what was changed]}
                                          | {"ok": False, "error": ProviderError}; what it returns passed its protocol's gate
    X_decode(body_text)                  -> {"ok": True, "response": LlmResponse} | {"ok": False, "error": ProviderError}
    X_begin()                            -> state of one streamed answer, a JSON dict; others read of it only `ended` (its
                                            end marker came) and `error` (a ProviderError): after either, nothing counts
    X_feed(state, {"event", "data"})     -> [LlmEvent...]
    X_end(state)                         -> as X_decode; a stream that was cut is an error, never a short answer
    X_error(status, headers, body_text)  -> ProviderError
"""

import json
import re
from typing import Any

Json = dict[str, Any]

JSON_DEPTH = 150


def llm_request(model: str, system: str, messages: list[Json], tools: list[Json], options: Json) -> Json:
    """Make an LlmRequest: everything that one model request says, in no provider's words.

    model              the provider's name of the model
    system             the system prompt, "" if there is none
    messages           canonical messages that passed the gate; no system messages among them
    tools              [{"name", "description", "parameters"}], sorted by name so that the prefix is stable
    tool_choice        None | "auto" | "none" | "required" | {"name"}
    max_output_tokens  int | None
    temperature        number | None
    top_p              number | None
    stop               [text] | None
    reasoning          None | {"effort"?: text, "max_tokens"?: int, "summary"?: text}
    response_format    None | {"type": "text" | "json_object" | "json_schema", "name"?, "schema"?, "strict"?}
    stream             bool: deltas are wanted
    provider_options   what only this provider understands; goes into the body under its own keys, never over ours
    """
    return {
        "model": model,
        "system": system,
        "messages": messages,
        "tools": sorted(tools, key=lambda tool: tool["name"]),
        "tool_choice": options.get("tool_choice"),
        "max_output_tokens": options.get("max_output_tokens"),
        "temperature": options.get("temperature"),
        "top_p": options.get("top_p"),
        "stop": options.get("stop"),
        "reasoning": options.get("reasoning"),
        "response_format": options.get("response_format"),
        "stream": options.get("stream", True),
        "provider_options": options.get("provider_options", {}),
    }


def llm_text_event(kind: str, text: str) -> Json:
    """Make an LlmEvent that carries text: kind is `text`, `reasoning` or `refusal`."""
    return {"type": kind, "text": text}


def llm_call_event(index: int, call_id: str | None, name: str | None, arguments: str) -> Json:
    """Make an LlmEvent that carries a piece of a tool call.

    index      position of the call in the answer, from 0
    id, name   on the piece that brings them, None on the others
    arguments  the next piece of the arguments' JSON text, "" if there is none; the pieces of a call without arguments
               may stay empty
    """
    return {"type": "tool_call", "index": index, "id": call_id, "name": name, "arguments": arguments}


def llm_error_event(error: Json) -> Json:
    """Make an LlmEvent for an error that came inside a stream; the end of that stream gives the same error."""
    return {"type": "error", "error": error}


def llm_response(parts: list[Json], raw_message: Json, usage: Json | None, stop: tuple[str, str | None], raw: Json) -> Json:
    """Make an LlmResponse: one whole answer.

    message      canonical assistant message without `provider` and `model` (the loop adds what it asked); its `raw` holds
                 fields of the provider's message that have no canonical place
    usage        Usage | None where the provider told none
    stop_reason  stop | length | tool_calls | content_filter | refusal | pause, or else the provider's own word
    model        the model that answered, as the provider names it
    raw          the fields of the answer that have no canonical place, as equal JSON values
    """
    message: Json = {"role": "assistant", "content": parts}
    if raw_message:
        message["raw"] = raw_message
    return {"message": message, "usage": usage, "stop_reason": stop[0], "model": stop[1], "raw": raw}


def llm_usage(input_tokens: int, output_tokens: int, cached: int, cache_write: int, reasoning: int, total: int) -> Json:
    """Make a Usage, all in tokens.

    input_tokens        everything that went in, cached or not
    output_tokens       what came out, as the provider counts it
    cached_tokens       part of the input that was read from a cache
    cache_write_tokens  part of the input that was written to a cache
    reasoning_tokens    tokens of reasoning, inside output_tokens or beside them (providers differ)
    total_tokens        as the provider says; where reasoning is beside the output, only this includes it
    reported_cost_micros  what the provider says it charges, in micro-units of its currency; None where it does not say
    """
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cached_tokens": cached,
        "cache_write_tokens": cache_write,
        "reasoning_tokens": reasoning,
        "total_tokens": max(total, input_tokens + output_tokens),
        "reported_cost_micros": None,
    }


def llm_priced(usage: Json | None, price: Json | None) -> Json | None:
    """Return the usage as events carry it: with its cost in micro-units and the price used, or null where none is known.

    A price is {"input", "output", "cached"?, "cache_write"?, "currency"?}: integers, micro-units for a million tokens.
    """
    if usage is None:
        return None
    event = {key: value for key, value in usage.items() if key not in ("total_tokens", "reported_cost_micros")}
    if price is not None and "input" in price and "output" in price:
        event["cost_micros"] = llm_cost(usage, price)
        event["price"] = price
    elif usage["reported_cost_micros"] is not None:
        event["cost_micros"] = usage["reported_cost_micros"]
        event["price"] = {"source": "provider"}
    return event


def llm_cost(usage: Json, price: Json) -> int:
    """Return the cost in micro-units, rounded up; reasoning that is counted beside the output is paid as output."""
    cached, written = usage["cached_tokens"], usage["cache_write_tokens"]
    fresh = max(0, usage["input_tokens"] - cached - written)
    output = max(usage["output_tokens"], usage["total_tokens"] - usage["input_tokens"])
    micros = fresh * price["input"] + output * price["output"]
    micros += cached * price.get("cached", price["input"]) + written * price.get("cache_write", price["input"])
    return int((micros + 999_999) // 1_000_000)


def provider_error(kind: str, code: str, message: str, more: Json) -> Json:
    """Make a ProviderError.

    kind            rate overload server timeout network overflow auth quota client protocol other
    status          HTTP status, None where there was none
    code            the provider's or the transport's own code, "" if it gave none
    message         one sentence, at most 500 characters
    retry_after_ms  how long the provider wants us to wait, None if it does not say
    retry_at        the same as a moment (microseconds UTC), where it named a date
    raw             the error as it came, as an equal JSON value or as text
    request_id      the provider's name for the request, for its support
    """
    return {
        "kind": kind,
        "status": more.get("status"),
        "code": code,
        "message": message[:500],
        "retry_after_ms": more.get("retry_after_ms"),
        "retry_at": more.get("retry_at"),
        "raw": more.get("raw"),
        "request_id": more.get("request_id"),
    }


def invalid_body(body_text: str) -> Json:
    """Return the result of an answer that is no JSON object, whatever the protocol."""
    told = f"the answer is no JSON object: {' '.join(body_text[:120].split())}"
    error = provider_error("protocol", "invalid_body", told, {"raw": body_text[:2_000]})
    return {"ok": False, "error": error, "usage": None}


def tool_call_part(call_id: str, name: str, arguments: Any, cut: bool) -> Json:
    """Make a ToolCall, a part of a canonical message: {"type": "tool_call", "id", "name", "arguments", "raw_arguments"?}.

    arguments      always an object
    raw_arguments  the text as the model wrote it, only where that is no JSON object; arguments is {} then, and the tool
                   must not run

    An absent or blank text means no arguments, unless the answer was `cut` here: then nobody knows.
    """
    part: Json = {"type": "tool_call", "id": call_id, "name": name}
    if isinstance(arguments, dict):
        part["arguments"] = arguments
        return part
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    value = {} if not text.strip() and not cut else json_object(text)
    part["arguments"] = {} if value is None else value
    if value is None:
        part["raw_arguments"] = text
    return part


def made_call_id(answer_id: str, number: int) -> str:
    """Return an id for a call that came without one: unique in the conversation, the same in a replay."""
    tail = "".join([letter for letter in answer_id if letter.isascii() and letter.isalnum()])[-16:]
    return "_".join(["call", tail, str(number)] if tail else ["call", str(number)])


def json_object(text: str) -> Json | None:
    """Return the object that a JSON text holds (also one that is wrapped in a JSON string; `null` is {}), or None."""
    value = json_value(text)
    if isinstance(value, str):
        value = json_value(value)
    elif value is None and text.strip() == "null":
        return {}
    return value if isinstance(value, dict) else None


def json_value(text: str) -> Any:
    """Return the value of a JSON text, or None where it is none, or nests too deep to be sent on.

    What JSON texts in the wild hold and JSON does not is mended: half a surrogate pair becomes U+FFFD, NaN and infinite
    numbers become null.
    """
    mended = json_mended(text) if "\\ud" in text.lower() else text
    try:
        value = json.loads(mended)
    except (ValueError, RecursionError):
        return None
    if text.count("[") + text.count("{") > JSON_DEPTH and json_too_deep(value):
        return None
    if "NaN" in text or "Infinity" in text or re.search("[eE][+]?[0-9]{3}", text):
        return json_finite(value)
    return value


def json_mended(text: str) -> str:
    """Return a JSON text with each escape of half a surrogate pair replaced by the one of U+FFFD."""
    pieces: list[str] = []
    at = 0
    while True:
        found = text.find("\\", at)
        if found < 0:
            return "".join(pieces) + text[at:]
        code, following = text[found + 1 : found + 6].lower(), text[found + 6 : found + 12].lower()
        if code[:2] != "ud" or code[2:3] < "8":
            end = found + 6 if code[:1] == "u" else found + 2
            pieces.append(text[at:end])
        elif code[2:3] < "c" and following[:3] == "\\ud" and following[3:4] >= "c":
            end = found + 12
            pieces.append(text[at:end])
        else:
            end = found + 6
            pieces.append(text[at:found] + "\\ufffd")
        at = end


def json_too_deep(value: Any) -> bool:
    """Return whether a value nests deeper than what can be sent on inside an event."""
    level = [value]
    for _ in range(JSON_DEPTH):
        below: list[Any] = []
        for held in level:
            if isinstance(held, dict):
                below.extend(held.values())
            elif isinstance(held, list):
                below.extend(held)
        level = below
        if not level:
            return False
    return True


def json_finite(value: Any) -> Any:
    """Return a value with null for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {name: json_finite(held) for name, held in value.items()}
    if isinstance(value, list):
        return [json_finite(held) for held in value]
    return None if isinstance(value, float) and not -1e308 < value < 1e308 else value


def text_of(value: Any) -> str:
    """Return a text as it is, and "" for everything else."""
    return value if isinstance(value, str) else ""


def dict_of(value: Any) -> Json:
    """Return an object as it is, and {} for everything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list as it is, and [] for everything else."""
    return value if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """Return a count as a non-negative int, and 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return max(0, int(value)) if -1e15 < value < 1e15 else 0


def first_text(*values: Any) -> str:
    """Return the first text that is not empty, else ""."""
    for value in values:
        if isinstance(value, str) and value:
            return value
    return ""


def message_text(message: Json, kind: str) -> str:
    """Return the text of all parts of one type, joined as they stand."""
    return "".join([text_of(part.get("text")) for part in message["content"] if part["type"] == kind])


def message_calls(message: Json) -> list[Json]:
    """Return the tool calls of an assistant message, in order."""
    return [part for part in message["content"] if part["type"] == "tool_call"]
