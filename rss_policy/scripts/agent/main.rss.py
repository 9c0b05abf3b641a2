"""The agent's loop: ask the model, run the tools that it asks for, go on until it has an answer.

How a run ends: with the model's word for it (`stop`, `length`, `content_filter`, `refusal`); `tool_calls` where a tool is
the client's to run; `max_turns` where the model still wanted tools after the last allowed turn: then the run completes
with the text that there is, and fails with code `max_turns` where there is none.
"""

import asyncio
from typing import Any

from agent.attempt import attempt_turn
from agent.options import agent_limit, agent_options, agent_request
from host import call_tool, emit, new_messages
from llm.adapters import LLM_ADAPTERS
from llm.gate import GATE_GROUP_LIMIT, gate_check
from llm.types import Json, dict_of, list_of, message_calls, message_text, text_of

DEFAULT_MAX_TURNS = 50


async def run(context: dict[str, Any]) -> dict[str, Any]:
    """Answer the run's input; see docs/policy.md for the context and for what is returned."""
    problem = main_problem(context)
    if problem is not None:
        return main_failed(problem)
    adapter = LLM_ADAPTERS[main_adapter(context)]
    options = agent_options(context)
    history = [*list_of(context["messages"]), *list_of(context["input"])]
    noted: Json = {}
    at: Json = {"turn": 0, "attempt": 0}
    last: Json = {"role": "assistant", "content": []}
    while at["turn"] < agent_limit(context, "max_turns", DEFAULT_MAX_TURNS):
        at["turn"] += 1
        history = [*history, *new_messages()]
        checked = gate_check(history, agent_limit(context, "max_turn_result_chars", GATE_GROUP_LIMIT))
        if checked["error"] is not None:
            main_note(checked["repairs"], at["turn"], noted)
            return main_failed({**checked["error"], "kind": "client"})
        request = agent_request(context, options, checked["system"], checked["messages"])
        encoded = adapter["encode"](request, context["provider"])
        main_note([*checked["repairs"], *encoded.get("repairs", [])], at["turn"], noted)
        answer = await attempt_turn(context, adapter, request, encoded, at)
        if not answer["ok"]:
            return main_failed(answer["error"])
        last, stop_reason = answer["response"]["message"], answer["response"]["stop_reason"]
        calls = message_calls(last)
        if not calls and stop_reason != "pause":
            return {"output": last, "finish_reason": stop_reason, "error": None}
        history = [*history, last, *await main_run_tools(context, calls)]
        if main_client_tools(context, calls):
            return {"output": last, "finish_reason": "tool_calls", "error": None}
    return main_out_of_turns(context, last)


def main_problem(context: Json) -> Json | None:
    """Return why no model can be asked, or None."""
    provider = context["provider"]
    if not isinstance(provider, dict):
        message = "no model provider is configured for this run; set [model] provider, or start a local model server"
        return {"code": "no_provider", "message": message, "kind": "client"}
    if not text_of(context["model"]):
        return {"code": "no_model", "message": f"no model is chosen for provider {provider['name']}", "kind": "client"}
    if main_adapter(context) not in LLM_ADAPTERS:
        known = ", ".join(sorted(LLM_ADAPTERS))
        message = f"provider {provider['name']} wants adapter {main_adapter(context)!r}; there are {known}"
        return {"code": "unknown_adapter", "message": message, "kind": "client"}
    return None


def main_adapter(context: Json) -> str:
    """Return the adapter's name: the model's own where it has one, else its provider's."""
    provider = dict_of(context["provider"])
    model = dict_of(dict_of(provider.get("models")).get(context["model"]))
    return text_of(model.get("adapter")) or text_of(provider.get("adapter"))


def main_failed(problem: Json) -> dict[str, Any]:
    """Return the run's end with an error."""
    return {"output": None, "finish_reason": "error", "error": problem}


def main_note(repairs: list[str], turn: int, noted: Json) -> None:
    """Record the repairs of a request; one that the run has noted before is not news."""
    fresh = [name for name in repairs if name not in noted]
    if fresh:
        emit({"type": "note.repaired", "turn": turn, "repairs": fresh})
    for name in fresh:
        noted[name] = True


def main_client_tools(context: Json, calls: list[Json]) -> list[Json]:
    """Return the calls that the client runs."""
    client = [tool["name"] for tool in list_of(context["tool_schemas"]) if dict_of(tool).get("client") is True]
    return [call for call in calls if call["name"] in client]


async def main_run_tools(context: Json, calls: list[Json]) -> list[Json]:
    """Ask for all calls, run those that are the server's side by side, and return their results in the calls' order."""
    for call in calls:
        asked: Json = {"type": "tool.requested", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        if "raw_arguments" in call:
            asked["raw_arguments"] = call["raw_arguments"]
        emit(asked)
    client = main_client_tools(context, calls)
    return await asyncio.gather(*[main_run_tool(call) for call in calls if call not in client])


async def main_run_tool(call: Json) -> Json:
    """Run one call; whatever happens comes back as a result that the model can read.

    Arguments that are no JSON object go to the host as the text that they are: it refuses them, and that is on record too.
    """
    arguments = call["raw_arguments"] if "raw_arguments" in call else call["arguments"]
    result = await call_tool({"call_id": call["id"], "name": call["name"], "arguments": arguments})
    content = text_of(result.get("content")) or text_of(dict_of(result.get("error")).get("message"))
    return {
        "role": "tool", "call_id": call["id"], "name": call["name"], "content": content, "ok": result["ok"],
        "outcome": text_of(result.get("outcome")) or ("ok" if result["ok"] else "failed"),
    }  # fmt: skip


def main_out_of_turns(context: Json, last: Json) -> dict[str, Any]:
    """Return the end of a run that used up its turns: complete with the text that there is, failed without."""
    text = message_text(last, "text")
    if not text.strip():
        turns = agent_limit(context, "max_turns", DEFAULT_MAX_TURNS)
        message = f"the model still asked for tools after {turns} turns (limit max_turns)"
        return main_failed({"code": "max_turns", "message": message, "kind": "other"})
    output = {**last, "content": [part for part in last["content"] if part["type"] == "text"]}
    return {"output": output, "finish_reason": "max_turns", "error": None}
