"""From a history to the request that one protocol sends: gate, request and encoder, as the agent uses them."""

from typing import Any

from tests.fakes.adapter import script_names

Json = dict[str, Any]
PROTOCOLS = ("openai_chat", "openai_responses", "anthropic_messages")
PROVIDER: Json = {"name": "fake", "capabilities": {}, "models": {}, "reasoning_replay": "always"}
ADD: Json = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}


def encoded(protocol: str, history: list[Any], **more: Any) -> Json:
    """Return what the adapter's encoder returns; `tools`, `system`, `provider`, `model` and options may be given."""
    names = script_names()
    checked = names["gate_check"](history)
    system = "\n\n".join([more.pop("system", "Be brief."), *checked["system"]])
    provider = more.pop("provider", PROVIDER)
    tools, model = more.pop("tools", [ADD]), more.pop("model", "m-1")
    request = names["llm_request"](model, system, checked["messages"], tools, more)
    result: Json = names["LLM_ADAPTERS"][protocol]["encode"](request, provider)
    return result


def body(protocol: str, history: list[Any], **more: Any) -> Json:
    """Return the body of a request that can be sent."""
    result = encoded(protocol, history, **more)
    assert result["ok"], result
    made: Json = result["body"]
    return made


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said(*parts: Json | str, **more: Any) -> Json:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "assistant", "content": content, "provider": "fake", "model": "m-1", **more}


def call(call_id: str, arguments: Any = None, **more: Any) -> Json:
    return {"type": "tool_call", "id": call_id, "name": "add", "arguments": arguments or {}, **more}


def result(call_id: str, content: str = "3", **more: Any) -> Json:
    return {"role": "tool", "call_id": call_id, "name": "add", "content": content, "ok": True, **more}


def thought(protocol: str, text: str = "Secret thoughts.") -> Json:
    """Return reasoning as an answer of this protocol brings it."""
    summary = [{"type": "summary_text", "text": text}]
    item = {"type": "reasoning", "id": f"rs_{text}", "summary": summary, "encrypted_content": "sealed"}
    block = {"type": "thinking", "thinking": text, "signature": f"signed {text}"}
    raws: dict[str, Json] = {
        "openai_chat": {"name": "reasoning_content", "blocks": {}},
        "openai_responses": {"responses_item": item},
        "anthropic_messages": {"messages_block": block},
    }
    return {"type": "reasoning", "text": text, "raw": raws[protocol]}
