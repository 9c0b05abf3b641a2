"""Fits a checked request to its model: what the model cannot take is refused or left out, and call ids are made to fit.

The three adapters share it.  What the model is known to lack is a typed error where the newest user message needs it; in
older messages it is replaced by a word, or a session that once saw an image could never go on with a model that takes none.
"""

import re

from llm.types import Json, dict_of, message_calls, provider_error, text_of

FIT_KINDS = (("image", "images"), ("file", "files"))


def fit_request(request: Json, provider: Json, name_limit: int) -> Json:
    """Return {"request", "repairs", "error"}: the request that this model can take, or the typed error; repairs by name.

    `name_limit` is the longest tool name of the protocol.
    """
    able = fit_capabilities(request["model"], provider)
    error = fit_refusal(request, able, name_limit)
    repairs: Json = {}
    if error is not None:
        return {"request": request, "repairs": repairs, "error": error}
    for kind, name in FIT_KINDS:
        if able.get(name) is False and fit_has(request["messages"], kind):
            repairs[f"{name}_left_out"] = True
            request = {**request, "messages": [fit_without(message, kind) for message in request["messages"]]}
    return {"request": request, "repairs": repairs, "error": None}


def fit_capabilities(model: str, provider: Json) -> Json:
    """Return what the model can do, the provider's word first, the model's own over it; what nobody says is unknown."""
    own = dict_of(dict_of(dict_of(provider.get("models")).get(model)).get("capabilities"))
    return {**dict_of(provider.get("capabilities")), **own}


def fit_refusal(request: Json, able: Json, name_limit: int) -> Json | None:
    """Return a typed error where the request needs what the model is known to lack."""
    asked = [message for message in request["messages"] if message["role"] == "user"][-1:]
    for kind, name in FIT_KINDS:
        if able.get(name) is False and fit_has(asked, kind):
            return provider_error("client", f"unsupported_{name}", f"{request['model']} does not take {name}", {})
    if request["tools"] and able.get("tools") is False:
        return provider_error("client", "unsupported_tools", f"{request['model']} does not take tools", {})
    seen: Json = {}
    for tool in request["tools"]:
        name = tool["name"]
        if not fit_name_ok(name, name_limit):
            return provider_error("client", "invalid_tool_name", f"{name!r} is no tool name of this protocol", {})
        if name in seen:
            return provider_error("client", "invalid_tool_name", f"there are two tools named {name!r}", {})
        seen[name] = True
    return None


def fit_name_ok(name: str, limit: int) -> bool:
    """Return whether this is a function name as the protocols want it: 1 to `limit` of a-z A-Z 0-9 _ and -."""
    return 0 < len(name) <= limit and re.search("[^A-Za-z0-9_-]", name) is None


def fit_has(messages: list[Json], kind: str) -> bool:
    """Return whether a user message holds a part of this type."""
    return any(part["type"] == kind for message in messages if message["role"] == "user" for part in message["content"])


def fit_without(message: Json, kind: str) -> Json:
    """Return the message with a word in the place of each part of this type."""
    if not fit_has([message], kind):
        return message
    word = {"type": "text", "text": f"[{kind} left out: this model does not take it]"}
    return {**message, "content": [word if part["type"] == kind else part for part in message["content"]]}


def fit_file_word(part: Json) -> str:
    """Return what stands in the place of a file that cannot go along."""
    return f"[file {text_of(part.get('name')) or 'without a name'}: not in this conversation]"


def fit_own(message: Json, request: Json, provider: Json) -> bool:
    """Return whether this provider and model made the message whole, so that its blocks may go back."""
    same = message.get("provider") == provider.get("name") and message.get("model") == request["model"]
    return same and message.get("aborted") is not True


def fit_calls(request: Json, provider: Json, rule: Json) -> list[Json]:
    """Return the messages with call ids that the protocol takes; each result stands directly behind its call.

    rule  {"longest": characters of an id, "plain": only a-z A-Z 0-9 _ and -, "once": ids are unique in the whole request,
          not only in their message}

    An id that its own provider gave stays, unless it is there twice or the protocol has no room for it.  What becomes of
    an id depends on what is before it only, so that it stays the same when the history grows.
    """
    fitted: list[Json] = []
    taken: Json = {}
    answers: list[str] = []
    for given in request["messages"]:
        message = given
        if given["role"] == "assistant" and message_calls(given):
            taken = taken if rule["once"] else {}
            own = fit_own(given, request, provider)
            parts = [fit_call(part, own, rule, taken) for part in given["content"]]
            message = {**given, "content": parts}
            answers = [part["id"] for part in parts if part["type"] == "tool_call"]
        elif given["role"] == "tool" and answers:
            message = {**given, "call_id": answers[0]}
            answers = answers[1:]
        fitted.append(message)
    return fitted


def fit_call(part: Json, own: bool, rule: Json, taken: Json) -> Json:
    """Return the part; a call with an id that fits and that nobody has yet."""
    if part["type"] != "tool_call":
        return part
    given = text_of(part["id"])
    fitting = given if own and not rule["once"] else given[: rule["longest"]]
    if rule["plain"]:
        fitting = re.sub("[^A-Za-z0-9_-]", "_", fitting)
    fitting = fitting or "call"
    count = taken.get(fitting, 0) + 1
    unique = fitting if count == 1 else fit_numbered(fitting, count, rule)
    while unique in taken:
        count += 1
        unique = fit_numbered(fitting, count, rule)
    taken[fitting] = count
    taken[unique] = taken.get(unique, 1)
    return part if unique == given else {**part, "id": unique}


def fit_numbered(name: str, count: int, rule: Json) -> str:
    """Return an id with a number behind it, no longer than the protocol has room for."""
    tail = f"_{count}"
    return name[: rule["longest"] - len(tail)] + tail
