"""An independent judge of provider requests: the written rules of three protocols, as strict as the vendors are.

It shares no code with the policy scripts.  The fields and values are those of the vendors' OpenAPI documents; the rules that
no schema can say (which result answers which call, what may stand at the end) are those of their guides and error messages.
"""

from collections.abc import Callable
from typing import Any

from tests.fakes.grammar import chat, messages, responses

RULES: dict[str, Callable[[Any], list[str]]] = {
    "openai_chat": chat.faults,
    "openai_responses": responses.faults,
    "anthropic_messages": messages.faults,
}


def faults(protocol: str, body: Any) -> list[str]:
    """Return what the vendor would refuse in this request body, empty if nothing."""
    try:
        return RULES[protocol](body)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as wrong:
        return [f"the shape is quite wrong: {wrong!r}"]
