"""The OpenAI Responses adapter, outwards: canonical request to wire body.

Written from OpenAI's public API reference.  Nothing is kept at the provider (`store` is false unless `provider_options` say
otherwise): the whole conversation goes along as input items, reasoning with its encrypted content.  Nothing here depends on
time or chance, and each message is encoded by itself, so that the next turn's input begins with this turn's, item by item.
Reasoning items go back whatever the profile's rule is: the protocol wants them between calls.
"""

from typing import Any

from llm.fit import fit_calls, fit_capabilities, fit_file_word, fit_own, fit_request
from llm.gate_responses import gate_responses_request
from llm.openai_responses_items import responses_input_items
from llm.retry import retry_http_error
from llm.types import Json, dict_of, list_of, text_of

RESPONSES_RESERVED = (
    "model", "input", "instructions", "tools", "stream", "background", "previous_response_id", "conversation", "prompt",
)  # fmt: skip
RESPONSES_UNKNOWN = (  # What OpenAI's chat clients send and this protocol refuses.
    "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "seed", "n", "prediction", "modalities", "audio",
    "web_search_options", "prompt_cache_options",
)  # fmt: skip
RESPONSES_NAME_LIMIT = 64
RESPONSES_LEAST_OUTPUT = 16
RESPONSES_ID_RULE: dict[str, Any] = {"longest": 64, "plain": False, "once": True}


def responses_encode(request: Json, provider: Json) -> Json:
    """Return the wire request, or a typed error; see llm/types for the shape, `repairs` names what had to be changed."""
    fitted = fit_request(request, provider, RESPONSES_NAME_LIMIT)
    if fitted["error"] is not None:
        return {"ok": False, "error": fitted["error"]}
    asked, repairs = fitted["request"], fitted["repairs"]
    stored = asked["provider_options"].get("store") is True
    body: Json = {"model": asked["model"]}
    if asked["system"].strip():
        body["instructions"] = asked["system"]
    if asked["tools"]:
        body["tools"] = [responses_tool(tool) for tool in asked["tools"]]
        if asked["tool_choice"] is not None:
            body["tool_choice"] = responses_tool_choice(asked["tool_choice"])
    body["input"] = responses_input(asked, provider, stored)
    body["store"] = stored
    responses_put_reasoning(body, asked, provider)
    responses_put_options(body, asked, repairs)
    body["stream"] = asked["stream"]
    fault = gate_responses_request(body)
    if fault is not None:
        return {"ok": False, "error": fault}
    return {"ok": True, "path": "/responses", "body": body, "headers": {}, "repairs": sorted(repairs)}


def responses_error(status: int, headers: Json, body_text: str) -> Json:
    """Return the ProviderError of an HTTP error status."""
    return retry_http_error(status, headers, body_text)


def responses_tool(tool: Json) -> Json:
    """Return one tool on the wire; left out, `strict` would mean true here."""
    return {
        "type": "function", "name": tool["name"], "description": text_of(tool.get("description")),
        "parameters": dict_of(tool["parameters"]), "strict": tool.get("strict") is True,
    }  # fmt: skip


def responses_tool_choice(choice: Any) -> Any:
    """Return the tool choice on the wire."""
    return {"type": "function", "name": choice.get("name")} if isinstance(choice, dict) else choice


def responses_put_reasoning(body: Json, request: Json, provider: Json) -> None:
    """Ask for reasoning as wished, and for its encrypted form, without which it could not go back."""
    wish = dict_of(request["reasoning"])
    asked = {name: wish[name] for name in ("effort", "summary") if wish.get(name)}
    if asked:
        body["reasoning"] = asked
    if not body["store"] and fit_capabilities(request["model"], provider).get("reasoning") is not False:
        body["include"] = ["reasoning.encrypted_content"]


def responses_put_options(body: Json, request: Json, repairs: Json) -> None:
    """Put the options that were given, and the provider's own under their own keys; those cannot replace what is ours."""
    limit = request["max_output_tokens"]
    if limit is not None:
        body["max_output_tokens"] = max(RESPONSES_LEAST_OUTPUT, limit)
        if limit < RESPONSES_LEAST_OUTPUT:
            repairs["output_limit_raised"] = True
    for name in ("temperature", "top_p"):
        if request[name] is not None:
            body[name] = request[name]
    if request["stop"]:
        repairs["options_left_out"] = True
    if request["response_format"] is not None:
        body["text"] = {"format": responses_format(request["response_format"])}
    for name, value in request["provider_options"].items():
        responses_put_own(body, name, value, repairs)


def responses_put_own(body: Json, name: str, value: Any, repairs: Json) -> None:
    """Put an option of the provider's own."""
    if name in RESPONSES_UNKNOWN:
        repairs["options_left_out"] = True
    elif name == "verbosity":
        body["text"] = {**dict_of(body.get("text")), "verbosity": value}
    elif name == "text" and isinstance(value, dict):
        body["text"] = {**value, **dict_of(body.get("text"))}
    elif name == "include":
        present = list_of(body.get("include"))
        body["include"] = present + [one for one in list_of(value) if one not in present]
    elif name not in RESPONSES_RESERVED and name not in body:
        body[name] = value


def responses_format(wanted: Json) -> Json:
    """Return the answer's format on the wire."""
    if wanted.get("type") != "json_schema":
        return {"type": wanted.get("type") or "text"}
    form: Json = {"type": "json_schema", "name": wanted.get("name") or "answer", "schema": dict_of(wanted.get("schema"))}
    if wanted.get("strict") is not None:
        form["strict"] = wanted["strict"]
    return form


def responses_input(request: Json, provider: Json, stored: bool) -> list[Json]:
    """Return the messages as input items, in order."""
    items: list[Json] = []
    seen: Json = {}
    for message in fit_calls(request, provider, RESPONSES_ID_RULE):
        if message["role"] == "tool":
            items.append({
                "type": "function_call_output", "call_id": message["call_id"], "output": text_of(message["content"]),
            })  # fmt: skip
        elif message["role"] == "user":
            items.append(
                {"type": "message", "role": "user", "content": [responses_user_part(part) for part in message["content"]]}
            )
        else:
            items.extend(responses_input_items(message, fit_own(message, request, provider), stored, seen))
    return items


def responses_user_part(part: Json) -> Json:
    """Return one part of a user's message on the wire."""
    data = f"data:{part.get('media_type')};base64,{part.get('data')}"
    if part["type"] == "image":
        return {"type": "input_image", "image_url": part.get("url") or data, "detail": "auto"}
    if part["type"] == "file" and part.get("data"):
        return {"type": "input_file", "filename": part.get("name") or "file", "file_data": data}
    if part["type"] == "file":
        return {"type": "input_text", "text": fit_file_word(part)}
    return {"type": "input_text", "text": part["text"]}
