"""Which adapter speaks which protocol; a new one is one line in the table and its imports."""

from typing import Any

from llm.openai_chat import chat_encode, chat_error
from llm.openai_chat_answer import chat_begin, chat_decode, chat_end, chat_feed

LLM_ADAPTERS: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "encode": chat_encode, "error": chat_error, "decode": chat_decode,
        "begin": chat_begin, "feed": chat_feed, "end": chat_end,
    },
}  # fmt: skip
