"""What kind of failure it was, and whether and when to try again.

The class comes from a structured code, then from the status, and from words only where neither tells.  The numbers of
tries and the backoffs are those of the URI Agent's table; `Retry-After` wins over them, and nothing waits over a minute.
"""

from typing import Any

from llm.types import Json, count_of, dict_of, first_text, json_value, list_of, provider_error, text_of

RETRY_CAP_MS = 60_000
RETRY_TABLE: dict[str, tuple[int, int, int]] = {  # kind: retries, first delay, longest delay (ms)
    "rate": (20, 1_000, 30_000),
    "overload": (5, 1_000, 15_000),
    "server": (5, 1_000, 15_000),
    "timeout": (4, 1_000, 10_000),
    "network": (5, 500, 8_000),
    "protocol": (3, 500, 8_000),
    "interrupted": (5, 0, 0),
}
KIND_OF_CODE: dict[str, str] = {
    "context_length_exceeded": "overflow",
    "context_window_exceeded": "overflow",
    "model_context_window_exceeded": "overflow",
    "string_above_max_length": "overflow",
    "request_too_large": "overflow",
    "exceed_context_size_error": "overflow",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "billing_error": "quota",
    "insufficient_balance": "quota",
    "credit_balance_exceeded": "quota",
    "usage_limit_reached": "quota",
    "rate_limit_exceeded": "rate",
    "rate_limit_error": "rate",
    "rate_limited": "rate",
    "too_many_requests": "rate",
    "resource_exhausted": "rate",
    "requests": "rate",
    "tokens": "rate",
    "overloaded_error": "overload",
    "overloaded": "overload",
    "engine_overloaded": "overload",
    "service_unavailable": "overload",
    "service_unavailable_error": "overload",
    "slow_down": "overload",
    "unavailable": "overload",
    "insufficient_system_resource": "overload",
    "server_error": "server",
    "api_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "internal": "server",
    "timeout": "timeout",
    "timeout_error": "timeout",
    "request_timeout": "timeout",
    "deadline_exceeded": "timeout",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "invalid_authentication": "auth",
    "permission_error": "auth",
    "permission_denied": "auth",
    "unauthenticated": "auth",
    "unauthorized": "auth",
    "account_deactivated": "auth",
    "model_not_found": "client",
    "not_found_error": "client",
    "unsupported_value": "client",
    "unsupported_parameter": "client",
    "content_policy_violation": "client",
}
KIND_OF_STATUS: dict[int, str] = {
    401: "auth", 402: "quota", 403: "auth", 408: "timeout", 409: "server", 413: "overflow", 425: "server", 429: "rate",
    503: "overload", 504: "timeout", 522: "timeout", 524: "timeout", 529: "overload",
}  # fmt: skip
KIND_OF_WORDS: list[tuple[str, tuple[str, ...]]] = [
    ("overflow", ("context length", "context window", "maximum context", "context size", "prompt is too long",
                  "reduce the length", "input is too long", "too many input tokens", "maximum number of tokens",
                  "input token count")),
    ("overload", ("overloaded", "at capacity", "temporarily unavailable", "no available")),
    ("rate", ("rate limit", "too many requests", "rate_limit")),
    ("quota", ("insufficient quota", "insufficient balance", "insufficient credit", "your current quota", "billing")),
    ("auth", ("api key", "unauthorized", "authentication", "permission denied")),
    ("timeout", ("timed out", "timeout", "deadline exceeded")),
    ("server", ("internal server error", "internal error", "server error", "bad gateway")),
    ("network", ("connection reset", "connection error", "connection closed")),
]  # fmt: skip
KIND_OF_TRANSPORT: dict[str, str] = {
    "network_error": "network",
    "dns_error": "network",
    "tls_error": "network",
    "timeout_first_byte": "timeout",
    "timeout_idle": "timeout",
    "timeout_total": "timeout",
    "refused_url": "client",
    "invalid_request": "client",
    "unknown_provider": "client",
    "request_too_large": "overflow",
    "missing_secret": "auth",
    "response_too_large": "protocol",
    "line_too_long": "protocol",
    "interrupted": "network",
}
RUN_CODE_OF_KIND: dict[str, str] = {
    "rate": "provider_rate_limited",
    "overload": "provider_overloaded",
    "server": "provider_server_error",
    "timeout": "provider_timeout",
    "network": "provider_network_error",
    "overflow": "context_overflow",
    "auth": "provider_auth",
    "quota": "provider_quota",
    "client": "provider_refused",
    "protocol": "provider_protocol",
    "other": "provider_error",
}
KEPT_CODES = (
    "missing_secret", "refused_url", "unknown_provider", "interrupted", "cancelled", "stopped", "invalid_request",
    "unsupported_images", "unsupported_files", "unsupported_tools", "invalid_tool_name",
    "unsupported_response_format",
)  # fmt: skip
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def retry_kind(status: int | None, codes: list[str], message: str) -> str:
    """Return the class of a failure that a provider told: structured codes, then the status, then words.

    "Payment required" is about money whatever code stands beside it: a general one would have it tried again.
    """
    if status == 402:
        return "quota"
    for code in codes:
        if code.lower() in KIND_OF_CODE:
            return KIND_OF_CODE[code.lower()]
    if status is not None and status in KIND_OF_STATUS:
        return KIND_OF_STATUS[status]
    if status is not None and status >= 500:
        return "server"
    low = message.lower()
    for kind, words in KIND_OF_WORDS:
        # A plain 4xx is the request's own fault; only its size is told by words alone.
        if any(word in low for word in words) and (status is None or kind == "overflow"):
            return kind
    if status is None:
        return "client" if "invalid_request_error" in codes else "other"
    return "client" if status >= 400 else "other"


def retry_transport_error(error: Any) -> Json:
    """Return the ProviderError for what the host says of a request or a read that brought no answer."""
    error = dict_of(error)
    code = text_of(error.get("code"))
    message = first_text(error.get("message"), code, "no answer")
    return provider_error(KIND_OF_TRANSPORT.get(code, "other"), code, message, {})


def retry_http_error(status: int | None, headers: Json, body: Any) -> Json:
    """Return the ProviderError for an error as OpenAI's, Anthropic's, Google's and their imitators' answers tell it.

    `body` is the answer's text, or its JSON value where the error came inside a stream; a number as code counts as status.
    """
    value = json_value(body) if isinstance(body, str) else body
    if isinstance(value, list) and value:
        value = value[0]
    outer = dict_of(value)
    inner = retry_inner(outer)
    message = first_text(
        inner.get("message"), inner.get("msg"), inner.get("detail"), outer.get("message"), outer.get("detail"),
        outer.get("error"), retry_plain(body, status),
    )  # fmt: skip
    number = inner.get("code")
    if (status is None or status < 400) and isinstance(number, int) and 400 <= number < 600:
        status = number
    elif status is not None and status < 400:
        status = None
    codes = [text_of(inner.get(key)) for key in ("code", "type", "status")] + [text_of(outer.get("code"))]
    told = [code for code in codes if code]
    more = {"status": status, "raw": value if value is not None else text_of(body)[:2_000]}
    more["request_id"] = first_text(headers.get("x-request-id"), headers.get("request-id"), outer.get("request_id")) or None
    more["retry_after_ms"], more["retry_at"] = retry_wait(headers, inner)
    return provider_error(retry_kind(status, told, message), told[0] if told else "", message, more)


def retry_inner(outer: Json) -> Json:
    """Return the object that tells the error, wherever this vendor puts it."""
    for key in ("error", "errors", "detail"):
        value = outer.get(key)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return value
    return outer


def retry_plain(body: Any, status: int | None) -> str:
    """Return a sentence for an error that is no JSON, such as a proxy's HTML page."""
    text = " ".join(text_of(body).split())
    told = "an HTML page" if text[:1] == "<" else text[:200]
    return f"HTTP status {status}: {told or 'no body'}" if status is not None else (told or "an error without a message")


def retry_wait(headers: Json, inner: Json) -> tuple[int | None, int | None]:
    """Return the wait in ms, or the moment in microseconds, that a provider asks for, in a header or in the body."""
    millis = retry_number(headers.get("retry-after-ms"))
    if millis is not None:
        return int(millis), None
    told = text_of(headers.get("retry-after")).strip()
    seconds = retry_number(told)
    if seconds is not None:
        return int(seconds * 1000), None
    if told:
        return None, retry_date(told)
    for detail in list_of(inner.get("details")):
        delay = text_of(dict_of(detail).get("retryDelay"))
        seconds = retry_number(delay[:-1]) if delay[-1:] == "s" else None
        if seconds is not None:
            return int(seconds * 1000), None
    return None, None


def retry_number(value: Any) -> float | None:
    """Return a non-negative finite number that a header holds, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e9 else None


def retry_date(text: str) -> int | None:
    """Return microseconds UTC of an HTTP date such as `Wed, 21 Oct 2015 07:28:00 GMT`, or None (RFC 9110, 5.6.7)."""
    words = text.replace(",", " ").replace("-", " ").split()
    try:
        day, month, year = int(words[1]), MONTHS.index(words[2].lower()[:3]) + 1, int(words[3])
        hour, minute, second = [int(piece) for piece in words[4].split(":")]
    except (IndexError, ValueError):
        return None
    # Days since 1970 by the civil calendar; a year starts in March here, so that the leap day is its last.
    shifted = year - 1 if month <= 2 else year
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719_468
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000


def retry_draw(text: str) -> int:
    """Return a number from 0 to 999 drawn from a random id, so that a replay draws the same."""
    number = 0
    for letter in text:
        number = (number * 31 + ord(letter)) % 1_000_003
    return number * 7_919 % 1_000_003 % 1000  # Spread, because ids often differ in their last letters only.


def retry_class(error: Json) -> str:
    """Return the row of the retry table for an error."""
    return "interrupted" if error["code"] == "interrupted" else error["kind"]


def retry_delay(error: Json, tries: Json, max_retries: int, now_us: int, random_text: str) -> int | None:
    """Return how many ms to wait before the next attempt, or None where there shall be none.

    `tries` counts the retries so far by class.  A crash of the server costs no delay and does not use up `max_retries`.
    """
    name = retry_class(error)
    if name not in RETRY_TABLE:
        return None
    most, first, longest = RETRY_TABLE[name]
    done = count_of(tries.get(name))
    others = sum(count for key, count in tries.items() if key != "interrupted")
    if done >= most or (name != "interrupted" and others >= max_retries):
        return None
    asked = error["retry_after_ms"]
    if asked is None and error["retry_at"] is not None:
        asked = max(0, (error["retry_at"] - now_us) // 1000)
    if asked is not None:
        return min(RETRY_CAP_MS, asked)
    delay = min(longest, first * 2 ** min(done, 10))
    return delay + delay * retry_draw(random_text) // 4000


def retry_problem(error: Json) -> Json:
    """Return the failure as events and the run's end carry it: a stable code, one sentence, the class."""
    code = error["code"] if error["code"] in KEPT_CODES else RUN_CODE_OF_KIND[error["kind"]]
    problem: Json = {"code": code, "message": error["message"], "kind": error["kind"]}
    if error["status"] is not None:
        problem["status"] = error["status"]
    return problem
