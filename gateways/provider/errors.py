"""What goes wrong between deedbox and a provider.

InvalidEndpoint   the configuration is wrong; raised when an endpoint is made
Broken            the exchange failed; becomes an outcome `{"ok": false, "error": {"code", "message"}}`
"""

from typing import Any, Literal

BrokenCode = Literal[
    "network_error",
    "dns_error",
    "tls_error",
    "timeout_first_byte",
    "timeout_idle",
    "timeout_total",
    "refused_url",
    "missing_secret",
    "unknown_provider",
    "invalid_request",
    "request_too_large",
    "response_too_large",
    "line_too_long",
    "cancelled",
]


class InvalidEndpoint(ValueError):
    """The settings of an endpoint cannot be used; the message names the setting and what to write instead."""

    code = "invalid_endpoint"


class Broken(Exception):
    """An exchange failed; the message is a sentence without secrets and without URLs.

    Not an OSError on purpose: the HTTP library wraps those and would hide the code.
    """

    def __init__(self, code: BrokenCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def as_error(self) -> dict[str, Any]:
        """Return it as the `error` of an outcome."""
        return {"code": self.code, "message": self.message}
