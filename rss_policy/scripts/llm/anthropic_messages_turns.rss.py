"""The messages of an Anthropic request: canonical messages to turns of user and assistant that alternate.

Rules of the protocol that are kept here: the first turn is the user's; neighbours of one role are one turn; all results of a
turn's calls stand first in the next one; no blank text; a turn does not end with thinking; what a server tool began and did
not end goes back only at the very end, where the model goes on with it.
"""

from typing import Any

from llm.fit import fit_calls, fit_file_word, fit_own
from llm.types import Json, dict_of, text_of

MESSAGES_ID_RULE: dict[str, Any] = {"longest": 128, "plain": True, "once": True}
MESSAGES_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MESSAGES_THINKING = ("thinking", "redacted_thinking")
MESSAGES_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
MESSAGES_OPENING = "(The conversation began earlier.)"
MESSAGES_GO_ON = "(Go on.)"


def messages_turns(request: Json, provider: Json, repairs: Json) -> list[Json]:
    """Return the turns on the wire; what had to be added or left out is named in `repairs`."""
    turns: list[Json] = []
    for message in fit_calls(request, provider, MESSAGES_ID_RULE):
        role = "assistant" if message["role"] == "assistant" else "user"
        messages_join(turns, role, messages_blocks(message, fit_own(message, request, provider)))
    turns = messages_settled(turns, repairs)
    if turns and turns[0]["role"] == "assistant":
        repairs["user_turn_added"] = True
        turns = [{"role": "user", "content": [{"type": "text", "text": MESSAGES_OPENING}]}, *turns]
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] not in MESSAGES_SERVER_CALLS:
        repairs["user_turn_added"] = True
        turns.append({"role": "user", "content": [{"type": "text", "text": MESSAGES_GO_ON}]})
    if turns:
        # On the first block, not the last: more may join the first turn later.
        first: list[Json] = turns[0]["content"]
        first[0] = {**first[0], "cache_control": {"type": "ephemeral"}}
    return turns


def messages_join(turns: list[Json], role: str, blocks: list[Json]) -> None:
    """Add blocks to the last turn if it is of the same role, else as a turn; none make no turn."""
    if blocks and turns and turns[-1]["role"] == role:
        turns[-1]["content"].extend(blocks)
    elif blocks:
        turns.append({"role": role, "content": [*blocks]})


def messages_settled(turns: list[Json], repairs: Json) -> list[Json]:
    """Return the turns with the assistant's mended: server tools' calls with their results, no thinking at the end."""
    settled: list[Json] = []
    seen: Json = {}
    for number, turn in enumerate(turns):
        blocks = turn["content"]
        if turn["role"] == "assistant":
            blocks = messages_server_pairs(blocks, number == len(turns) - 1, seen)
            while blocks and blocks[-1]["type"] in MESSAGES_THINKING:
                blocks = blocks[:-1]
            if len(blocks) < len(turn["content"]):
                repairs["blocks_left_out"] = True
        messages_join(settled, turn["role"], blocks)
    return settled


def messages_server_pairs(blocks: list[Json], last: bool, seen: Json) -> list[Json]:
    """Return the blocks without server tools' calls that lack their result, the other way round, or came before.

    `seen` holds the ids of such calls: "called", or "answered".
    """
    kept: list[Json] = []
    for number, block in enumerate(blocks):
        if block["type"] in MESSAGES_SERVER_CALLS:
            call_id = text_of(block.get("id"))
            behind = blocks[number + 1 :]
            answered = any(messages_is_result(one) and one.get("tool_use_id") == call_id for one in behind)
            if call_id in seen or not (answered or (last and not behind)):
                continue
            seen[call_id] = "called"
        elif messages_is_result(block):
            call_id = text_of(block.get("tool_use_id"))
            if seen.get(call_id) != "called":
                continue
            seen[call_id] = "answered"
        kept.append(block)
    return kept


def messages_is_result(block: Json) -> bool:
    """Return whether this is a server tool's result."""
    return block["type"] != "tool_result" and block["type"].endswith("_tool_result")


def messages_blocks(message: Json, own: bool) -> list[Json]:
    """Return the blocks of one canonical message; those that another provider or model made are dropped whole."""
    if message["role"] == "tool":
        result: Json = {"type": "tool_result", "tool_use_id": message["call_id"], "content": text_of(message["content"])}
        if message.get("ok") is False:
            result["is_error"] = True
        return [result]
    if message["role"] == "user":
        return [messages_user_block(part) for part in message["content"]]
    blocks = [messages_assistant_block(part, own) for part in message["content"]]
    kept = [block for block in blocks if block is not None]
    unsigned = [block for block in kept if block["type"] == "thinking" and not text_of(block.get("signature"))]
    if unsigned:
        kept = [block for block in kept if block["type"] not in MESSAGES_THINKING]
    if own:
        return kept
    # Calls stand at the end, their results follow directly; a model's own blocks keep their order.
    calls = [block for block in kept if block["type"] == "tool_use"]
    return [block for block in kept if block["type"] != "tool_use"] + calls


def messages_assistant_block(part: Json, own: bool) -> Json | None:
    """Return one part of an answer on the wire, or None where it does not go along."""
    kind = part["type"]
    block = dict_of(dict_of(part.get("raw")).get("messages_block")) if own else {}
    if kind == "tool_call":
        return {"type": "tool_use", "id": part["id"], "name": part["name"], "input": part["arguments"], **block}
    if kind == "reasoning":
        return block or None
    if block.get("type") == "text" and block.get("text") == part["text"]:
        return block
    return {"type": "text", "text": part["text"]}


def messages_user_block(part: Json) -> Json:
    """Return one part of a user's message on the wire."""
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    kind, data, url = text_of(part.get("media_type")), text_of(part.get("data")), text_of(part.get("url"))
    if url.startswith("data:") and ";base64," in url:
        kind, _, data = url[5:].partition(";base64,")
    if part["type"] == "image":
        if data and kind in MESSAGES_IMAGE_TYPES:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        if url[:8] == "https://" or url[:7] == "http://":
            return {"type": "image", "source": {"type": "url", "url": url}}
        return {"type": "text", "text": f"[an image of type {kind or 'unknown'}: not in this conversation]"}
    if kind == "application/pdf" and data:
        source = {"type": "base64", "media_type": kind, "data": data}
        return {"type": "document", "source": source, "title": text_of(part.get("name")) or "file"}
    return {"type": "text", "text": fit_file_word(part)}
