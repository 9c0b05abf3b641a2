"""Refusals: the command does not fit; nothing was recorded.  The reason is a value that every gateway can show."""

from typing import Literal

RefusalCode = Literal[
    "session_not_found",
    "run_not_found",
    "session_exists",
    "session_queue_full",
    "session_erased",
    "session_busy",
    "overloaded",
    "storage_failed",
    "shutting_down",
    "idempotency_conflict",
    "input_too_large",
    "context_too_large",
    "unknown_profile",
    "unknown_provider",
    "model_not_found",
    "invalid_command",
]


class Refused(Exception):
    """The command does not fit the state; nothing was recorded.  `retry_after`: seconds."""

    def __init__(self, code: RefusalCode, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after = code, message, retry_after
