"""From OpenAI's chat request to what the actors take in: session or history, input, client tools, options.  Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from actors.service import Inbound
from eventstore.catalogue import Json
from gateways.http.bodies import kind_of
from gateways.http.chat_fields import check_fields, passed_on
from gateways.http.chat_messages import canonical_messages
from gateways.http.checks import unknown
from gateways.http.errors import ApiError
from gateways.http.ports import ModelOffer

MAX_NAME, MAX_TOOLS = 200, 128
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked request; `model` is the name that the client asked for, and that it reads in the answer."""

    inbound: Inbound
    model: str
    stream: bool
    include_usage: bool

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the tools that the client runs."""
        return frozenset(tool["name"] for tool in self.inbound.client_tools)


def chat_request(
    body: Json, owner: str, header_session: str | None, offers: Sequence[ModelOffer], limit: int
) -> ChatRequest:
    """Check a request and return what to admit.

    With a session, only what follows the last assistant message is new; without one, the request's messages are the whole
    history of a session of its own, which is never continued.

    Raises:
        ApiError: the first thing that cannot be done as asked, by name.
    """
    given = check_fields(body)
    metadata = dict(given.get("metadata", {}))
    session_id = _session_id(header_session, metadata.pop("session_id", None))
    system, history, messages = _split(canonical_messages(given["messages"], limit), alone=session_id is None)
    stream, include_usage = _streaming(given)
    offer = _offer(given["model"], offers)
    inbound = Inbound(
        owner=owner,
        input=tuple(messages),
        session_id=session_id,
        create_if_missing=session_id is not None,
        history=tuple(history),
        ephemeral=session_id is None,
        profile=given.get("profile", offer.profile),
        model=offer.model,
        provider=given.get("provider", offer.provider),
        provider_options=(passed_on(given) | given.get("provider_options", {})) or None,
        client_tools=_tools(given.get("tools", [])),
        system_prompt=_system_prompt(system),
        limits=given.get("limits"),
        metadata=metadata or None,
        user_id=given.get("user"),
        on_disconnect=_on_disconnect(given, session_id),
    )
    return ChatRequest(inbound, given["model"], stream, include_usage)


def _on_disconnect(given: Json, session_id: str | None) -> Literal["continue", "cancel"]:
    chosen: Literal["continue", "cancel"] = given.get("on_disconnect", "cancel" if session_id is None else "continue")
    return chosen


def _session_id(header: str | None, named: Any) -> str | None:
    session_id = header or named
    if session_id is None:
        return None
    if not isinstance(session_id, str) or not _SESSION_ID.match(session_id):
        rule = "1 to 128 letters, digits, dots, colons, dashes or underscores, a letter or digit first"
        raise ApiError("invalid_field", f"The session id must be {rule}.", param="metadata.session_id")
    return session_id


def _split(messages: list[Json], *, alone: bool) -> tuple[list[Json], list[Json], list[Json]]:
    """Part the messages into system messages, history and what is new; `alone` without a session.

    In a session, the history is on record already; new is what follows the last answer.  Alone, only the system messages
    at the start are the prompt: those further on keep their place in the history.
    """
    if messages[-1]["role"] not in ("user", "tool"):
        raise _last(messages, "must be of role user or tool")
    if alone:
        first, new = _after(messages, ("assistant", "system")), _after(messages, ("user", "assistant", "tool"), leading=True)
        system, history, fresh = messages[:new], messages[new:first], messages[first:]
        _check_calls(history, fresh, first)
    else:
        first = _after(messages, ("assistant",))
        system = [each for each in messages if each["role"] == "system"]
        history, fresh = [], [each for each in messages[first:] if each["role"] != "system"]
    fresh = [each for each in fresh if each["content"] or each["role"] == "tool"]
    if not fresh:
        raise _last(messages, "is empty")
    return system, [each for each in history if each["content"] or each["role"] == "tool"], fresh


def _after(messages: list[Json], roles: tuple[str, ...], *, leading: bool = False) -> int:
    """Return the place after the last message of these roles, or, `leading`, the place of the first one."""
    places = [index for index, each in enumerate(messages) if each["role"] in roles]
    if leading:
        return places[0] if places else len(messages)
    return places[-1] + 1 if places else 0


def _check_calls(history: list[Json], fresh: list[Json], first: int) -> None:
    """A tool result answers a call that the request shows; there is no other place where it could be."""
    calls = {part["id"] for each in history if each["role"] == "assistant" for part in each["content"] if "id" in part}
    for index, each in enumerate(fresh):
        if each["role"] == "tool" and each["call_id"] not in calls:
            detail = f"No assistant message before has the tool call {each['call_id'][:100]!r}."
            raise ApiError("invalid_message", detail, param=f"messages.{first + index}.tool_call_id")


def _last(messages: list[Json], rule: str) -> ApiError:
    return ApiError("invalid_message", f"The last message {rule}.", param=f"messages.{len(messages) - 1}")


def _system_prompt(system: list[Json]) -> str | None:
    texts = ["".join(part["text"] for part in each["content"]) for each in system]
    return "\n\n".join(text for text in texts if text.strip()) or None


def _streaming(given: Json) -> tuple[bool, bool]:
    options = given.get("stream_options", {})
    for name, value in options.items():
        if name not in ("include_usage", "include_obfuscation"):
            raise unknown("unknown_field", name, ["include_usage", "include_obfuscation"], "stream_options")
        if value is not None and not isinstance(value, bool):
            raise ApiError("invalid_field", f"`stream_options.{name}` must be a boolean.", param=f"stream_options.{name}")
    if options.get("include_obfuscation"):
        detail = "`stream_options.include_obfuscation` is not supported."
        raise ApiError("unsupported_field", detail, param="stream_options.include_obfuscation")
    if options and not given.get("stream"):
        raise ApiError("invalid_field", "`stream_options` needs `stream: true`.", param="stream_options")
    return given.get("stream", False), bool(options.get("include_usage"))


def _offer(model: str, offers: Sequence[ModelOffer]) -> ModelOffer:
    """Return what the name stands for: an offered one, else a model of the profile's provider."""
    if not model or len(model) > MAX_NAME:
        raise ApiError("invalid_field", "`model` must have 1 to 200 characters.", param="model")
    known = next((offer for offer in offers if offer.id == model), None)
    return known or ModelOffer(model, model=model)


def _tools(tools: list[Any]) -> tuple[Json, ...]:
    schemas = [_tool(each, f"tools.{index}") for index, each in enumerate(tools)]
    names = {schema["name"] for schema in schemas}
    if len(names) != len(schemas) or len(schemas) > MAX_TOOLS:
        raise ApiError("invalid_field", "`tools` must be at most 128, each with a name of its own.", param="tools")
    return tuple(sorted(schemas, key=lambda schema: str(schema["name"])))


def _tool(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise ApiError("invalid_field", f"`{where}` must be an object, not {kind_of(value)}.", param=where)
    if value.get("type") != "function" or not isinstance(value.get("function"), dict):
        raise ApiError("unsupported_field", f"`{where}` must be of type function.", param=f"{where}.type")
    function = {name: inner for name, inner in value["function"].items() if inner is not None}
    for name in function:
        if name not in ("name", "description", "parameters", "strict"):
            raise unknown("unknown_field", name, ["name", "description", "parameters", "strict"], f"{where}.function")
    name, description = function.get("name"), function.get("description", "")
    parameters = function.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not _TOOL_NAME.match(name):
        detail = f"`{where}.function.name` must be 1 to 64 letters, digits, dashes or underscores."
        raise ApiError("invalid_field", detail, param=f"{where}.function.name")
    if not isinstance(description, str) or not isinstance(parameters, dict):
        detail = f"`{where}.function` must have a text `description` and an object `parameters`."
        raise ApiError("invalid_field", detail, param=f"{where}.function")
    strict = {"strict": True} if function.get("strict") is True else {}
    return {"name": name, "description": description, "parameters": parameters, **strict}
