"""The grammar gate: makes of any history one that no provider refuses, by named repairs, and never raises.

What holds afterwards, for every protocol: roles are user, assistant and tool; no message and no text part is blank; each
tool call of an assistant is answered exactly once, in order, directly behind it; arguments are objects; nothing of a broken
off answer but its text remains.  The gate looks only backwards within a turn, so what it made of a message stays as it is
when the history grows.
"""

from typing import Any

from llm.types import Json, dict_of, json_object, list_of, text_of

GATE_MISSING = "No result of this call was recorded; whether it had an effect is unknown."
GATE_INVALID = "The arguments were not a JSON object, so the tool was not run. They were: "
GATE_GROUP_LIMIT = 400_000


def gate_check(history: list[Any], group_limit: int = GATE_GROUP_LIMIT) -> Json:
    """Check and repair a history of canonical messages before it is sent.

    Returns {"system", "messages", "repairs", "error"}: `system` are the texts of system messages, which every protocol wants
    in front; `repairs` the names of the rules that had to be used, sorted, each once; `error` is None or {"code", "message"}
    where nothing is left to send.  `group_limit` bounds the characters of all results of one assistant message together.
    """
    repairs: Json = {}
    system: list[str] = []
    clean: list[Json] = []
    for given in history:
        message = gate_message(given, repairs)
        if message is not None and message["role"] == "system":
            system.append("\n".join([part["text"] for part in message["content"]]))
            if clean:
                repairs["system_hoisted"] = True
        elif message is not None:
            clean.append(message)
    messages = gate_paired(clean, repairs, group_limit)
    error = None if messages else {"code": "invalid_request", "message": "there is no message to answer"}
    return {"system": system, "messages": messages, "repairs": sorted(repairs), "error": error}


def gate_message(given: Any, repairs: Json) -> Json | None:
    """Return one message in canonical form, or None where nothing of it can be sent."""
    message = dict_of(given)
    role = message.get("role")
    if role == "tool":
        return gate_tool_message(message, repairs)
    if role not in ("system", "user", "assistant"):
        repairs["role_unknown"] = True
        return None
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content)
    aborted = message.get("aborted") is True
    kept = [part for part in [gate_part(part, role, aborted, repairs) for part in parts] if part is not None]
    if not kept or (role == "assistant" and not [part for part in kept if gate_is_content(part)]):
        repairs["blank_message"] = True
        return None
    return {**message, "role": role, "content": kept}


def gate_is_content(part: Json) -> bool:
    """Return whether a part says or does something; of reasoning only what a server tool did."""
    return part["type"] != "reasoning" or dict_of(part.get("raw")).get("opaque") is True


def gate_tool_message(message: Json, repairs: Json) -> Json:
    """Return a tool result with a call id and a text; a blank result is said in words, some providers refuse it."""
    content = message.get("content")
    if not isinstance(content, str):
        content = "\n".join([text_of(dict_of(part).get("text")) for part in list_of(content)])
    if not content.strip():
        content = "(no output)"
        repairs["blank_result"] = True
    return {**message, "call_id": text_of(message.get("call_id")), "content": content}


def gate_part(given: Any, role: str, aborted: bool, repairs: Json) -> Json | None:
    """Return one part, or None where it cannot be sent in this role."""
    part = dict_of(given)
    kind = part.get("type")
    if kind in ("text", "refusal") and (kind == "text" or role == "assistant"):
        if text_of(part.get("text")).strip():
            return part
        repairs["blank_text"] = True
        return None
    if role == "user" and kind in ("image", "file"):
        return part
    if role == "assistant" and kind in ("reasoning", "tool_call"):
        if aborted:
            repairs["aborted_trimmed"] = True
            return None
        return gate_call(part, repairs) if kind == "tool_call" else {**part, "text": text_of(part.get("text"))}
    repairs["part_unknown"] = True
    return None


def gate_call(part: Json, repairs: Json) -> Json:
    """Return a tool call with a name and an object as arguments."""
    call = part
    arguments = part.get("arguments")
    if not isinstance(arguments, dict):
        repairs["arguments_invalid"] = True
        parsed = json_object(arguments) if isinstance(arguments, str) else None
        call = {**call, "arguments": {} if parsed is None else parsed}
        if parsed is None and "raw_arguments" not in call:
            call["raw_arguments"] = text_of(arguments)
    name = text_of(part.get("name"))
    valid = "".join([letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name])[:64]
    if valid != name or not valid:
        repairs["call_name_invalid"] = True
        call = {**call, "name": valid or "unnamed"}
    return call


def gate_paired(messages: list[Json], repairs: Json, group_limit: int) -> list[Json]:
    """Return the messages with each call's result directly behind it, in the order of the calls."""
    results = gate_results(messages, repairs)
    paired: list[Json] = []
    for number, given in enumerate(messages):
        if given["role"] == "tool":
            continue
        message = gate_with_ids(given, repairs) if given["role"] == "assistant" else given
        paired.append(message)
        group = [gate_result(call, results.get(f"{number}:{at}"), repairs) for at, call in enumerate(gate_calls_of(message))]
        paired.extend(gate_trimmed(group, group_limit, repairs))
    return paired


def gate_calls_of(message: Json) -> list[Json]:
    """Return the calls of a message of any role."""
    return [part for part in message["content"] if part["type"] == "tool_call"] if message["role"] == "assistant" else []


def gate_with_ids(message: Json, repairs: Json) -> Json:
    """Return the message with an id on every call."""
    parts: list[Json] = []
    for number, part in enumerate(message["content"]):
        missing = part["type"] == "tool_call" and not text_of(part.get("id"))
        if missing:
            repairs["call_id_missing"] = True
        parts.append({**part, "id": f"call_{number}"} if missing else part)
    return {**message, "content": parts}


def gate_results(messages: list[Json], repairs: Json) -> Json:
    """Match results to calls: by id, the newest unanswered call before the result; return them by "message:position"."""
    open_calls: list[tuple[str, str, int]] = []
    matched: Json = {}
    last = -1
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            key = gate_take(open_calls, message["call_id"])
            if key:
                matched[key] = message
                if [one for one in messages[last + 1 : number] if one["role"] != "tool"] or not key.startswith(f"{last}:"):
                    repairs["result_moved"] = True
            else:
                repairs["result_without_call"] = True
            continue
        calls = gate_calls_of(message)
        open_calls.extend([(text_of(call.get("id")), f"{number}:{at}", number) for at, call in enumerate(calls)])
        last = number if calls else last
    return matched


def gate_take(open_calls: list[tuple[str, str, int]], call_id: str) -> str:
    """Take the call that a result answers out of the open ones: of the newest message with that id, its first."""
    newest = -1
    for held, _, number in open_calls:
        if held == call_id and call_id:
            newest = max(newest, number)
    for at, (held, key, number) in enumerate(open_calls):
        if held == call_id and number == newest:
            open_calls.pop(at)
            return key
    return ""


def gate_result(call: Json, found: Json | None, repairs: Json) -> Json:
    """Return the result of a call, made up where none was recorded."""
    if found is not None:
        return {**found, "call_id": call["id"], "name": call["name"]}
    repairs["result_missing"] = True
    content = GATE_INVALID + text_of(call["raw_arguments"])[:2_000] if "raw_arguments" in call else GATE_MISSING
    outcome = "failed" if "raw_arguments" in call else "unknown"
    return {"role": "tool", "call_id": call["id"], "name": call["name"], "content": content, "ok": False, "outcome": outcome}


def gate_trimmed(group: list[Json], limit: int, repairs: Json) -> list[Json]:
    """Return the results of one message, the long ones cut in their middle if together they are over the limit."""
    if sum([len(result["content"]) for result in group]) <= limit:
        return group
    repairs["results_trimmed"] = True
    share = max(200, limit // len(group))
    return [{**result, "content": gate_cut(result["content"], share)} for result in group]


def gate_cut(text: str, limit: int) -> str:
    """Return a text of at most about `limit` characters, with its head, its tail and a word on what is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"
