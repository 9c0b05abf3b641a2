"""What each field of OpenAI's chat request does here: mapped, passed on to the provider, or refused by name."""

from typing import Any, Literal, NamedTuple

from eventstore.catalogue import Json
from gateways.http.bodies import kind_of
from gateways.http.checks import unknown
from gateways.http.errors import ApiError

Does = Literal["mapped", "passed", "refused"]
PASS: Does = "passed"  # noqa: S105 - no password
MAP: Does = "mapped"
REFUSE: Does = "refused"


class Field(NamedTuple):
    """One row: what happens, what is said about it, and for a refused field the values that mean "not used"."""

    does: Does
    note: str
    harmless: tuple[Any, ...] = ()


FIELDS: dict[str, Field] = {
    "messages": Field(MAP, "History and input, in canonical form."),
    "model": Field(MAP, "A name of `/v1/models`, or any model of the profile's provider."),
    "stream": Field(MAP, "Chunks as they come."),
    "stream_options": Field(MAP, "`include_usage` adds the usage chunk; `include_obfuscation` must be false."),
    "metadata": Field(MAP, "`session_id` names the session; the rest is kept with the run."),
    "tools": Field(MAP, "Functions that the client runs itself."),
    "user": Field(MAP, "Kept with the message as the user's id."),
    "frequency_penalty": Field(PASS, "To the provider."),
    "logit_bias": Field(PASS, "To the provider."),
    "max_completion_tokens": Field(PASS, "The limit of each model answer."),
    "max_tokens": Field(PASS, "The limit of each model answer."),
    "parallel_tool_calls": Field(PASS, "To the provider."),
    "prediction": Field(PASS, "To the provider."),
    "presence_penalty": Field(PASS, "To the provider."),
    "prompt_cache_key": Field(PASS, "To the provider."),
    "prompt_cache_options": Field(PASS, "To the provider."),
    "prompt_cache_retention": Field(PASS, "To the provider."),
    "reasoning_effort": Field(PASS, "To the provider."),
    "response_format": Field(PASS, "To the provider."),
    "safety_identifier": Field(PASS, "To the provider."),
    "seed": Field(PASS, "To the provider."),
    "service_tier": Field(PASS, "To the provider."),
    "stop": Field(PASS, "To the provider."),
    "store": Field(PASS, "To the provider; here every run is on record."),
    "temperature": Field(PASS, "To the provider."),
    "tool_choice": Field(PASS, "To the provider."),
    "top_p": Field(PASS, "To the provider."),
    "verbosity": Field(PASS, "To the provider."),
    "audio": Field(REFUSE, "There is no audio output."),
    "function_call": Field(REFUSE, "Use `tool_choice`.", ("none", "auto")),
    "functions": Field(REFUSE, "Use `tools`.", ([],)),
    "logprobs": Field(REFUSE, "Events do not hold them.", (False,)),
    "modalities": Field(REFUSE, "Only text.", (["text"],)),
    "moderation": Field(REFUSE, "There is no moderation step."),
    "n": Field(REFUSE, "One choice a request.", (1,)),
    "top_logprobs": Field(REFUSE, "Events do not hold them.", (0,)),
    "web_search_options": Field(REFUSE, "Give the agent a tool instead."),
}

OWN_FIELDS: dict[str, str] = {
    "profile": "The profile of the configuration.",
    "provider": "The provider's name.",
    "provider_options": "What the provider takes beyond OpenAI's fields.",
    "limits": "Limits of this run.",
    "on_disconnect": "`cancel` or `continue`; without a session `cancel`, with one `continue`.",
}

_TYPES: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "stream": bool,
    "stream_options": dict,
    "metadata": dict,
    "tools": list,
    "user": str,
    "profile": str,
    "provider": str,
    "provider_options": dict,
    "limits": dict,
    "frequency_penalty": (int, float),
    "presence_penalty": (int, float),
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": int,
    "max_completion_tokens": int,
    "seed": int,
    "logit_bias": dict,
    "parallel_tool_calls": bool,
    "response_format": dict,
    "store": bool,
}


def check_fields(body: Json) -> Json:
    """Return the request without fields that are null; each that is left is known and of its type.

    Raises:
        ApiError: `unknown_field`, `unsupported_field`, `missing_field` or `invalid_field`.
    """
    given = {name: value for name, value in body.items() if value is not None}
    for name, value in given.items():
        _check(name, value)
    for name in ("messages", "model"):
        if name not in given:
            raise ApiError("missing_field", f"The field `{name}` is missing.", param=name)
    return given


def passed_on(given: Json) -> Json:
    """Return what goes to the provider, under the names that the client used."""
    return {name: value for name, value in given.items() if name in FIELDS and FIELDS[name].does == PASS}


def _check(name: str, value: Any) -> None:
    if name not in FIELDS and name not in OWN_FIELDS:
        fault = unknown("unknown_field", name, [*FIELDS, *OWN_FIELDS])
        near = fault.detail if "did you mean" in fault.detail else f"`{fault.param}` is unknown."
        hint = "What only your provider takes goes into `provider_options`."
        raise ApiError("unknown_field", f"{near} {hint}", param=fault.param)
    field = FIELDS.get(name)
    if field is not None and field.does == REFUSE and value not in field.harmless:
        raise ApiError("unsupported_field", f"`{name}` is not supported. {field.note}", param=name)
    wanted = _TYPES.get(name)
    if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
        raise ApiError("invalid_field", f"`{name}` must not be {kind_of(value)}.", param=name)
    if name == "on_disconnect" and value not in ("cancel", "continue"):
        raise ApiError("invalid_field", "`on_disconnect` must be cancel or continue.", param=name)
