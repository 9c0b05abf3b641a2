"""Turns what a run was given into an LlmRequest: model, options under canonical names, system prompt, tools."""

from typing import Any

from llm.types import Json, count_of, dict_of, list_of, llm_request, text_of

OPTION_NAMES = (
    "tool_choice", "max_output_tokens", "temperature", "top_p", "stop", "reasoning", "response_format", "stream",
)  # fmt: skip
OPTION_ALIASES: dict[str, str] = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}


def agent_options(context: Json) -> Json:
    """Split `provider_options` into the canonical options, also under OpenAI's names for them, and the provider's own."""
    options: Json = {}
    rest: Json = {}
    for given, value in dict_of(context["provider_options"]).items():
        name = OPTION_ALIASES.get(given, given)
        if name == "reasoning_effort":
            options["reasoning"] = {"effort": value}
        elif name in OPTION_NAMES:
            options[name] = value
        else:
            rest[name] = value
    options["stop"] = [options["stop"]] if isinstance(options.get("stop"), str) else options.get("stop")
    options["tool_choice"] = agent_tool_choice(options.get("tool_choice"))
    options["response_format"] = agent_response_format(options.get("response_format"))
    options["stream"] = options.get("stream") is not False and agent_capability(context, "stream") is not False
    options["provider_options"] = rest
    most = agent_limit(context, "max_output_tokens", 0)
    wanted = count_of(options.get("max_output_tokens"))
    options["max_output_tokens"] = min(most, wanted) if most and wanted else (most or wanted or None)
    return options


def agent_capability(context: Json, name: str) -> Any:
    """Return what is known of a capability of the run's model: true, false, or None for unknown."""
    provider = dict_of(context["provider"])
    model = dict_of(dict_of(provider.get("models")).get(context["model"]))
    return {**dict_of(provider.get("capabilities")), **dict_of(model.get("capabilities"))}.get(name)


def agent_tool_choice(choice: Any) -> Any:
    """Return the tool choice in canonical form, from that or from OpenAI's."""
    if not isinstance(choice, dict):
        return choice
    function = dict_of(choice.get("function"))
    name = text_of(function.get("name")) or text_of(choice.get("name"))
    return {"name": name} if name else None


def agent_response_format(wanted: Any) -> Any:
    """Return the answer's format in canonical form, from that or from OpenAI's."""
    if not isinstance(wanted, dict):
        return None
    return {"type": wanted.get("type"), **{name: wanted[name] for name in ("name", "schema", "strict") if name in wanted},
            **dict_of(wanted.get("json_schema"))}  # fmt: skip


def agent_request(context: Json, options: Json, system: list[str], messages: list[Json]) -> Json:
    """Return the LlmRequest of the next turn; it holds nothing that changes by itself, such as the time."""
    texts = [text_of(context["system_prompt"]), *system]
    tools = [
        {
            "name": tool["name"],
            "description": text_of(tool.get("description")),
            "parameters": dict_of(tool.get("parameters")),
            "strict": tool.get("strict"),
        }
        for tool in list_of(context["tool_schemas"])
    ]  # fmt: skip
    return llm_request(context["model"], "\n\n".join([text for text in texts if text.strip()]), messages, tools, options)


def agent_limit(context: Json, name: str, default: int) -> int:
    """Return a limit of the run, or the default where none is set."""
    limits = dict_of(context["limits"])
    return count_of(limits[name]) if limits.get(name) is not None else default


def agent_price(context: Json, model: str | None) -> Json | None:
    """Return the price of the model that answered, else of the model that was asked, or None where none is known."""
    prices = dict_of(dict_of(context["provider"]).get("prices"))
    for name in (model, context["model"]):
        if isinstance(name, str) and isinstance(prices.get(name), dict):
            return prices[name]
    return None
