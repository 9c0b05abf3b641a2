"""A transcript as a model may read it: each tool call is followed by its result, and no result stands alone.

A crash, a cancel or a client that walks away can leave calls without results; most providers refuse such a history for
ever.  What is missing is filled in here, in the projection; the log stays as it is.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

from actors.run_state import tool_calls_of
from eventstore.catalogue import Json

NO_RESULT = "No result of this call is known."


def paired(messages: Iterable[Json], following: Iterable[Json] = ()) -> list[Json]:
    """Return the messages with every call's result right after it.

    Results that stand alone are left out, missing ones filled in; a call whose result is among `following` (the input of
    the run) stays open.  Ids that a provider used again are matched in order.
    """
    known = list(messages)
    results: dict[str, deque[tuple[int, Json]]] = defaultdict(deque)
    for place, message in enumerate(known):
        if message.get("role") == "tool":
            results[str(message.get("call_id"))].append((place, message))
    answered = {str(message.get("call_id")) for message in following if message.get("role") == "tool"}
    whole: list[Json] = []
    for place, message in enumerate(known):
        if message.get("role") == "tool":
            continue
        whole.append(message)
        if message.get("role") == "assistant":
            whole.extend(_results(message, place, results, answered))
    return whole


def _results(
    message: Mapping[str, Any], place: int, results: Mapping[str, deque[tuple[int, Json]]], answered: set[str]
) -> Iterable[Json]:
    for call_id, name in tool_calls_of(message).items():
        waiting = results.get(call_id)
        while waiting and waiting[0][0] < place:
            waiting.popleft()
        if waiting:
            yield waiting.popleft()[1]
        elif call_id not in answered:
            yield {
                "role": "tool",
                "call_id": call_id,
                "name": name,
                "content": NO_RESULT,
                "ok": False,
                "outcome": "unknown",
            }
