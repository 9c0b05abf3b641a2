"""One turn of the model: attempts until an answer is whole, each on record, with its failures told and retried."""

import json

from agent.options import agent_limit, agent_price
from host import emit, join, now, random_id, read, sleep, start, stop
from llm.retry import retry_class, retry_delay, retry_problem, retry_transport_error
from llm.types import Json, count_of, dict_of, list_of, llm_priced, message_calls, message_text, text_of

DEFAULT_MAX_RETRIES = 20


async def attempt_turn(context: Json, adapter: Json, request: Json, encoded: Json, at: Json) -> Json:
    """Get the model's next message by an encoded request; `at` counts {"turn", "attempt"}, attempts over the whole run.

    Returns {"ok": True, "response"} or {"ok": False, "error": problem}.  Between attempts it sleeps as long as the class of
    the failure and the provider want.
    """
    if not encoded["ok"]:
        return {"ok": False, "error": retry_problem(encoded["error"])}
    tries: Json = {}
    most = agent_limit(context, "max_retries", DEFAULT_MAX_RETRIES)
    while True:
        at["attempt"] += 1
        told = {"turn": at["turn"], "attempt": at["attempt"]}
        emit({"type": "model.started", **told, "model": request["model"], "provider": context["provider"]["name"]})
        answer = await attempt_once(adapter, encoded, request["stream"], at["attempt"])
        if answer["ok"]:
            return attempt_complete(context, request, answer["response"], told)
        error = answer["error"]
        delay = retry_delay(error, tries, most, now(), random_id())
        tries[retry_class(error)] = count_of(tries.get(retry_class(error))) + 1
        problem = retry_problem(error)
        usage = llm_priced(answer.get("usage"), agent_price(context, None))
        reason = "interrupted" if error["code"] == "interrupted" else error["kind"]
        emit({"type": "model.discarded", **told, "reason": reason, "error": problem, "usage": usage, "retry_in_ms": delay})
        if delay is None:
            return {"ok": False, "error": problem}
        if delay > 0:
            await sleep(delay)


def attempt_complete(context: Json, request: Json, response: Json, told: Json) -> Json:
    """Record a whole answer, marked with who gave it: its blocks go back only to the same provider and model."""
    message = {**response["message"], "provider": context["provider"]["name"], "model": request["model"]}
    usage = llm_priced(response["usage"], agent_price(context, response["model"]))
    emit({
        "type": "model.completed", **told, "message": message, "usage": usage,
        "stop_reason": response["stop_reason"], "model": response["model"] or request["model"],
    })  # fmt: skip
    return {"ok": True, "response": {**response, "message": message}}


async def attempt_once(adapter: Json, encoded: Json, stream: bool, attempt: int) -> Json:
    """Send the request once and read its answer, deltas told as they come; as an adapter's end."""
    handle = start({
        "kind": "request", "method": "POST", "path": encoded["path"], "headers": encoded["headers"], "body": encoded["body"],
        "stream": stream,
    })  # fmt: skip
    head = await join(handle)
    if not head["ok"]:
        return {"ok": False, "error": retry_transport_error(head.get("error")), "usage": None}
    if head["status"] >= 400:
        error = adapter["error"](head["status"], dict_of(head.get("headers")), text_of(head.get("body")))
        return {"ok": False, "error": error, "usage": None}
    if head.get("stream"):
        return await attempt_read(adapter, handle, attempt)
    answer = adapter["decode"](text_of(head.get("body")))
    if answer["ok"]:
        attempt_tell(attempt, attempt_events(answer["response"]["message"]))
    return answer


async def attempt_read(adapter: Json, handle: int, attempt: int) -> Json:
    """Read a stream to its end, or until nothing more of it counts, and stop it then.

    One event tells all that a batch brought, so that deltas arrive as the batches do.
    """
    state = adapter["begin"]()
    while True:
        batch = await read(handle)
        events: list[Json] = []
        for event in list_of(batch.get("events")):
            events.extend(adapter["feed"](state, event))
        attempt_tell(attempt, events)
        if not batch["ok"]:
            # The answer may be whole already, and only the connection's end be missing.
            ended = adapter["end"](state)
            if ended["ok"] or ended["error"]["code"] != "stream_cut":
                return ended
            return {**ended, "error": retry_transport_error(batch.get("error"))}
        over = state["ended"] or state["error"] is not None
        if over and not batch["done"]:
            stop(handle)
        if over or batch["done"]:
            return adapter["end"](state)


def attempt_tell(attempt: int, events: list[Json]) -> None:
    """Emit one `model.delta` for a batch, if it brought anything that a person sees."""
    texts: dict[str, list[str]] = {"text": [], "reasoning": [], "refusal": []}
    calls: list[Json] = []
    for event in events:
        if event["type"] in texts:
            texts[event["type"]].append(event["text"])
        elif event["type"] == "tool_call":
            attempt_join(calls, event)
    delta: Json = {kind: "".join(pieces) for kind, pieces in texts.items() if pieces}
    if calls:
        delta["tool_calls"] = calls
    if delta:
        emit({"type": "model.delta", "attempt": attempt, **delta})


def attempt_join(calls: list[Json], event: Json) -> None:
    """Add a piece of a call to the batch's pieces; pieces of one call become one."""
    for call in calls:
        if call["index"] == event["index"]:
            call["arguments"] += event["arguments"]
            call["id"], call["name"] = call["id"] or event["id"], call["name"] or event["name"]
            return
    calls.append({name: event[name] for name in ("index", "id", "name", "arguments")})


def attempt_events(message: Json) -> list[Json]:
    """Return what a whole answer would have told as a stream, for those who watch."""
    texts: list[Json] = [{"type": kind, "text": message_text(message, kind)} for kind in ("reasoning", "text", "refusal")]
    calls: list[Json] = [
        {"type": "tool_call", "index": number, "id": call["id"], "name": call["name"],
         "arguments": call.get("raw_arguments", json.dumps(call["arguments"], ensure_ascii=False))}
        for number, call in enumerate(message_calls(message))
    ]  # fmt: skip
    return [event for event in texts if event["text"]] + calls
