"""The Anthropic Messages adapter, outwards: canonical request to wire body.

Written from Anthropic's public API reference.  Nothing here depends on time or chance, and a message once sent stays as it
is when the history grows: cache marks stand on the system prompt, the tools and the first message, which never move; where
the provider has automatic caching (`cache` in its profile), it marks the end of the conversation itself.  The blocks of an
answer go back unchanged to the model that made them, whatever the profile's rule for reasoning is: the protocol wants them.
"""

from typing import Any

from llm.anthropic_messages_turns import messages_turns
from llm.fit import fit_capabilities, fit_request
from llm.gate_messages import gate_messages_request
from llm.retry import retry_http_error
from llm.types import Json, count_of, dict_of, provider_error, text_of

MESSAGES_RESERVED = ("model", "messages", "system", "tools", "stream", "max_tokens")
MESSAGES_UNKNOWN = (  # What OpenAI's clients send and this protocol refuses.
    "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "seed", "n", "store", "user",
    "parallel_tool_calls", "verbosity", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "stream_options", "modalities", "audio", "web_search_options",
)  # fmt: skip
MESSAGES_NAME_LIMIT = 128
MESSAGES_DEFAULT_MAX_TOKENS = 8_192
MESSAGES_LEAST_THINKING = 1_024
MESSAGES_BUDGETS: dict[str, int] = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768}
MESSAGES_HEADERS: dict[str, str] = {"anthropic-version": "2023-06-01"}
MESSAGES_MARK: dict[str, str] = {"type": "ephemeral"}


def messages_encode(request: Json, provider: Json) -> Json:
    """Return the wire request, or a typed error; see llm/types for the shape, `repairs` names what had to be changed."""
    fitted = fit_request(request, provider, MESSAGES_NAME_LIMIT)
    if fitted["error"] is not None:
        return {"ok": False, "error": fitted["error"]}
    asked, repairs = fitted["request"], fitted["repairs"]
    wanted = dict_of(asked["response_format"]).get("type")
    if wanted not in (None, "text", "json_schema"):
        told = f"this protocol has no response format {wanted!r}; use json_schema"
        return {"ok": False, "error": provider_error("client", "unsupported_response_format", told, {})}
    body: Json = {"model": asked["model"], "max_tokens": messages_max_tokens(asked, provider)}
    if asked["system"].strip():
        body["system"] = [{"type": "text", "text": asked["system"], "cache_control": MESSAGES_MARK}]
    if asked["tools"]:
        body["tools"] = messages_tools(asked["tools"])
        if asked["tool_choice"] is not None:
            body["tool_choice"] = messages_tool_choice(asked["tool_choice"])
    body["messages"] = messages_turns(asked, provider, repairs)
    messages_put_options(body, asked, provider, repairs)
    body["stream"] = asked["stream"]
    fault = gate_messages_request(body)
    if fault is not None:
        return {"ok": False, "error": fault}
    return {"ok": True, "path": "/messages", "body": body, "headers": MESSAGES_HEADERS, "repairs": sorted(repairs)}


def messages_error(status: int, headers: Json, body_text: str) -> Json:
    """Return the ProviderError of an HTTP error status."""
    return retry_http_error(status, headers, body_text)


def messages_max_tokens(request: Json, provider: Json) -> int:
    """Return the output limit, which this protocol wants always: the one that was asked for, else the model's own."""
    asked = request["max_output_tokens"]
    if isinstance(asked, int) and asked > 0:
        return asked
    model = dict_of(dict_of(provider.get("models")).get(request["model"]))
    return count_of(model.get("max_output_tokens")) or MESSAGES_DEFAULT_MAX_TOKENS


def messages_tools(tools: list[Json]) -> list[Json]:
    """Return the tools on the wire, the last one with a cache mark: it covers all of them."""
    wire: list[Json] = []
    for tool in tools:
        schema = dict_of(tool["parameters"])
        if schema.get("type") != "object":
            schema = {**schema, "type": "object"}
        one: Json = {"name": tool["name"], "input_schema": schema}
        if text_of(tool.get("description")).strip():
            one["description"] = tool["description"]
        if tool.get("strict") is True:
            one["strict"] = True
        wire.append(one)
    wire[-1]["cache_control"] = MESSAGES_MARK
    return wire


def messages_tool_choice(choice: Any) -> Json:
    """Return the tool choice on the wire."""
    if isinstance(choice, dict):
        return {"type": "tool", "name": choice.get("name")}
    return {"type": {"required": "any", "none": "none"}.get(choice, "auto")}


def messages_put_options(body: Json, request: Json, provider: Json, repairs: Json) -> None:
    """Put the options that were given, and the provider's own under their own keys; those cannot replace what is ours."""
    stops = [text for text in request["stop"] or [] if isinstance(text, str) and text.strip()]
    if stops:
        body["stop_sequences"] = stops
    if dict_of(request["response_format"]).get("type") == "json_schema":
        schema = dict_of(request["response_format"].get("schema"))
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    own = request["provider_options"]
    for name, value in own.items():
        if name in MESSAGES_UNKNOWN or (name == "service_tier" and value not in ("auto", "standard_only")):
            repairs["options_left_out"] = True
        elif name == "output_config" and isinstance(value, dict):
            body[name] = {**value, **dict_of(body.get(name))}
        elif name not in MESSAGES_RESERVED and name not in body:
            body[name] = value
    if own.get("parallel_tool_calls") is False and request["tools"] and body.get("tool_choice") != {"type": "none"}:
        body["tool_choice"] = {**body.get("tool_choice", {"type": "auto"}), "disable_parallel_tool_use": True}
    if text_of(own.get("user")) and "metadata" not in body:
        body["metadata"] = {"user_id": own["user"]}
    if provider.get("cache") == "automatic" and "cache_control" not in body:
        body["cache_control"] = MESSAGES_MARK
    messages_put_thinking(body, request, provider, repairs)
    messages_put_sampling(body, request, repairs)


def messages_put_thinking(body: Json, request: Json, provider: Json, repairs: Json) -> None:
    """Put the wish for thinking, where the protocol allows it beside the rest of the request."""
    wish = dict_of(request["reasoning"])
    budget = count_of(wish.get("max_tokens")) or MESSAGES_BUDGETS.get(text_of(wish.get("effort")), 0)
    able = fit_capabilities(request["model"], provider).get("reasoning") is not False
    if "thinking" not in body and budget and able:
        room = min(max(budget, MESSAGES_LEAST_THINKING), body["max_tokens"] - 1)
        if room >= MESSAGES_LEAST_THINKING:
            body["thinking"] = {"type": "enabled", "budget_tokens": room}
        else:
            repairs["thinking_left_out"] = True
    if dict_of(body.get("thinking")).get("type") not in ("enabled", "adaptive"):
        return
    forced = dict_of(body.get("tool_choice")).get("type") in ("any", "tool")
    if forced or messages_lacks_thinking(body["messages"]):
        # A forced tool cannot be thought about, and a turn that began without thinking goes on without it.
        body.pop("thinking")
        repairs["thinking_left_out"] = True


def messages_lacks_thinking(wire: list[Json]) -> bool:
    """Return whether the turn that goes on now called tools without thinking first."""
    for message in reversed(wire):
        blocks = message["content"]
        if message["role"] == "user":
            if not any(block["type"] == "tool_result" for block in blocks):
                return False
        elif any(block["type"] == "tool_use" for block in blocks):
            return blocks[0]["type"] not in ("thinking", "redacted_thinking")
    return False


def messages_put_sampling(body: Json, request: Json, repairs: Json) -> None:
    """Put temperature and top_p as far as the protocol takes them: not with thinking, not both, and at most 1."""
    temperature, top_p = request["temperature"], request["top_p"]
    if "thinking" in body and (temperature is not None or top_p is not None or "top_k" in body):
        repairs["sampling_left_out"] = True
        body.pop("top_k", None)
    elif "thinking" not in body and temperature is not None:
        body["temperature"] = min(1, temperature)
        if temperature > 1:
            repairs["temperature_lowered"] = True
        if top_p is not None:
            repairs["sampling_left_out"] = True
    elif "thinking" not in body and top_p is not None:
        body["top_p"] = top_p
