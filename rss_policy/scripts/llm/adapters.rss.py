"""Which adapter speaks which protocol; a new one is one line in the table and its imports."""

from typing import Any

from llm.anthropic_messages import messages_encode, messages_error
from llm.anthropic_messages_answer import messages_begin, messages_decode, messages_end, messages_feed
from llm.openai_chat import chat_encode, chat_error
from llm.openai_chat_answer import chat_begin, chat_decode, chat_end, chat_feed
from llm.openai_responses import responses_encode, responses_error
from llm.openai_responses_answer import responses_begin, responses_decode, responses_end, responses_feed

LLM_ADAPTERS: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "encode": chat_encode, "error": chat_error, "decode": chat_decode,
        "begin": chat_begin, "feed": chat_feed, "end": chat_end,
    },
    "openai_responses": {
        "encode": responses_encode, "error": responses_error, "decode": responses_decode,
        "begin": responses_begin, "feed": responses_feed, "end": responses_end,
    },
    "anthropic_messages": {
        "encode": messages_encode, "error": messages_error, "decode": messages_decode,
        "begin": messages_begin, "feed": messages_feed, "end": messages_end,
    },
}  # fmt: skip
