"""The Chat Completions adapter, outwards: canonical request to wire body, and what the two sides need to agree on.

Written from OpenAI's public API reference and from what other vendors of the protocol document; the way in is
llm/openai_chat_answer.  Nothing here depends on time or chance, and each message is encoded by itself, so that the next
turn's messages begin with this turn's, element by element.
"""

import json
from typing import Any

from llm.fit import fit_calls, fit_file_word, fit_own, fit_request
from llm.gate_chat import gate_chat_request
from llm.retry import retry_http_error
from llm.types import Json, dict_of, list_of, message_calls, message_text, text_of

CHAT_RESERVED = ("model", "messages", "tools", "stream", "stream_options", "n")
CHAT_CALL_FIELDS = ("id", "type", "index", "function", "custom", "messages_block", "responses_item")
CHAT_NAME_LIMIT = 64
CHAT_ID_RULE: dict[str, Any] = {"longest": 40, "plain": False, "once": False}


def chat_encode(request: Json, provider: Json) -> Json:
    """Return the wire request, or a typed error for what the model cannot do; see llm/types for the shape."""
    fitted = fit_request(request, provider, CHAT_NAME_LIMIT)
    if fitted["error"] is not None:
        return {"ok": False, "error": fitted["error"]}
    asked = fitted["request"]
    body: Json = {"model": asked["model"], "messages": chat_messages(asked, provider)}
    if asked["tools"]:
        body["tools"] = [chat_tool(tool) for tool in asked["tools"]]
        if asked["tool_choice"] is not None:
            body["tool_choice"] = chat_tool_choice(asked["tool_choice"])
    chat_put_options(body, asked, provider)
    body["stream"] = asked["stream"]
    if asked["stream"]:
        body["stream_options"] = {"include_usage": True}
    fault = gate_chat_request(body)
    if fault is not None:
        return {"ok": False, "error": fault}
    return {"ok": True, "path": "/chat/completions", "body": body, "headers": {}, "repairs": sorted(fitted["repairs"])}


def chat_put_options(body: Json, request: Json, provider: Json) -> None:
    """Put the options that were given, and the provider's own under their own keys; those cannot replace what is ours."""
    if request["max_output_tokens"] is not None:
        body[provider.get("max_tokens_field") or "max_tokens"] = request["max_output_tokens"]
    for name in ("temperature", "top_p", "stop"):
        if request[name] is not None:
            body[name] = request[name]
    chat_put_reasoning(body, request["reasoning"], provider)
    if request["response_format"] is not None:
        body["response_format"] = chat_response_format(request["response_format"])
    for name, value in request["provider_options"].items():
        if name not in CHAT_RESERVED and name not in body:
            body[name] = value


def chat_error(status: int, headers: Json, body_text: str) -> Json:
    """Return the ProviderError of an HTTP error status."""
    return retry_http_error(status, headers, body_text)


def chat_tool(tool: Json) -> Json:
    """Return one tool on the wire."""
    function: Json = {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool["parameters"]}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def chat_tool_choice(choice: Any) -> Any:
    """Return the tool choice on the wire."""
    if isinstance(choice, dict):
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def chat_put_reasoning(body: Json, reasoning: Any, provider: Json) -> None:
    """Put the wish for reasoning under the field that this provider has for it; one without a field is asked nothing."""
    wish = dict_of(reasoning)
    field = provider.get("reasoning_field")
    if field == "reasoning_effort" and wish.get("effort"):
        body["reasoning_effort"] = wish["effort"]
    elif field == "reasoning" and wish:
        body["reasoning"] = {name: wish[name] for name in ("effort", "max_tokens") if name in wish}


def chat_response_format(wanted: Json) -> Json:
    """Return the answer's format on the wire."""
    if wanted.get("type") != "json_schema":
        return {"type": wanted.get("type")}
    schema: Json = {"name": wanted.get("name") or "answer", "schema": dict_of(wanted.get("schema"))}
    if wanted.get("strict") is not None:
        schema["strict"] = wanted["strict"]
    return {"type": "json_schema", "json_schema": schema}


def chat_messages(request: Json, provider: Json) -> list[Json]:
    """Return the messages on the wire: the system prompt first, then each canonical message in order."""
    wire: list[Json] = []
    if request["system"].strip():
        wire.append({"role": provider.get("system_role") or "system", "content": request["system"]})
    with_reasoning = chat_replayed(request["messages"], provider.get("reasoning_replay") or "never")
    for number, message in enumerate(fit_calls(request, provider, CHAT_ID_RULE)):
        if message["role"] == "user":
            wire.append({"role": "user", "content": chat_user_content(message["content"])})
        elif message["role"] == "tool":
            wire.append({"role": "tool", "tool_call_id": message["call_id"], "content": text_of(message["content"])})
        elif message_calls(message) or message_text(message, "text") or message_text(message, "refusal"):
            own = fit_own(message, request, provider)
            wire.append(chat_assistant(message, own, own and number in with_reasoning))
    return wire


def chat_replayed(messages: list[Json], rule: str) -> list[int]:
    """Return the numbers of the assistant messages whose reasoning goes back: `always`, in `tool_turns`, or `never`.

    A tool turn is everything between two user messages if a call is among it.  By the time a message is sent back for the
    first time, it is known whether its turn has a call, so the answer never changes for a message.
    """
    chosen: list[int] = []
    calls_before = False
    for number, message in enumerate(messages):
        if message["role"] == "user":
            calls_before = False
        elif message["role"] == "assistant":
            calls_before = calls_before or bool(message_calls(message))
            if rule == "always" or (rule == "tool_turns" and calls_before):
                chosen.append(number)
    return chosen


def chat_user_content(parts: list[Json]) -> Any:
    """Return a user's content: one text where all parts are text (some servers take nothing else), else a list."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join([part["text"] for part in parts])
    return [chat_user_part(part) for part in parts]


def chat_user_part(part: Json) -> Json:
    """Return one part of a user's content."""
    if part["type"] == "image":
        url = part.get("url") or f"data:{part.get('media_type')};base64,{part.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if part["type"] == "file" and part.get("data"):
        data = f"data:{part.get('media_type')};base64,{part['data']}"
        return {"type": "file", "file": {"filename": part.get("name") or "file", "file_data": data}}
    if part["type"] == "file":
        return {"type": "text", "text": fit_file_word(part)}
    return {"type": "text", "text": text_of(part.get("text"))}


def chat_assistant(message: Json, own: bool, with_reasoning: bool) -> Json:
    """Return an assistant's message; blocks that another provider or model made are dropped whole."""
    text = message_text(message, "text") or message_text(message, "refusal")
    calls = message_calls(message)
    wire: Json = {"role": "assistant", "content": text if text or not calls else None}
    if with_reasoning:
        for part in message["content"]:
            if part["type"] == "reasoning":
                chat_put_back(wire, part)
    if own and "extra_content" in dict_of(message.get("raw")):
        wire["extra_content"] = message["raw"]["extra_content"]
    if calls:
        wire["tool_calls"] = [chat_call(call, own) for call in calls]
    return wire


def chat_put_back(wire: Json, part: Json) -> None:
    """Put reasoning back under the names under which it came."""
    raw = dict_of(part.get("raw"))
    name = text_of(raw.get("name"))
    if name:
        wire[name] = part["text"]
    for field, blocks in dict_of(raw.get("blocks")).items():
        wire[field] = list_of(blocks)


def chat_call(call: Json, own: bool) -> Json:
    """Return one tool call; the arguments' text is the same for equal arguments."""
    arguments = json.dumps(call["arguments"], ensure_ascii=False, separators=(",", ":"))
    wire: Json = {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}
    if own:
        # A vendor's own fields of a call, such as a thought signature, are wanted back with it.
        for name, value in dict_of(call.get("raw")).items():
            if name not in CHAT_CALL_FIELDS:
                wire[name] = value
    return wire
