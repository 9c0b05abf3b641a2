"""The HTTP gateway: native routes under `/v1`, the OpenAI-compatible route, and event streams without a thread each."""
