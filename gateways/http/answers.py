"""How errors look on the wire: RFC 9457 problems on native routes, OpenAI's error object on OpenAI's routes."""

from typing import Any

import msgspec

from eventstore.catalogue import Json
from gateways.http.errors import Answer, ApiError

PROBLEM_TYPE = "application/problem+json"
JSON_TYPE = "application/json"
OPENAI_PATHS = ("/v1/chat/completions", "/v1/models")

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


def speaks_openai(path: str) -> bool:
    """Tell whether a path belongs to the routes that copy OpenAI's, errors included."""
    return path.startswith(OPENAI_PATHS)


def problem(error: ApiError) -> Json:
    """Return the error as an RFC 9457 problem; `docs/errors.md` explains each code."""
    entry = error.entry
    members: Json = {
        "type": f"urn:deedbox:error:{error.code}",
        "title": entry.title,
        "status": entry.status,
        "code": error.code,
        "detail": error.detail,
    }
    return members if error.param is None else members | {"param": error.param}


def openai_error(error: ApiError) -> Json:
    """Return the error as OpenAI's API shows one."""
    kind = _TYPES.get(error.entry.status, "server_error")
    kind = "insufficient_quota" if error.code == "insufficient_quota" else kind
    return {"error": {"message": error.detail, "type": kind, "param": error.param, "code": error.code}}


def answer(error: ApiError, path: str) -> Answer:
    """Return the whole answer for a path; OpenAI's clients repeat 409, 429 and 5xx unless they are told not to."""
    headers: list[tuple[str, str]] = []
    if error.retry_after is not None:
        headers.append(("Retry-After", str(error.retry_after)))
    if error.code == "unauthorized":
        headers.append(("WWW-Authenticate", 'Bearer realm="deedbox"'))
    if speaks_openai(path):
        if error.final:
            headers.append(("X-Should-Retry", "false"))
        return Answer(error.entry.status, JSON_TYPE, tuple(headers), dump(openai_error(error)))
    return Answer(error.entry.status, PROBLEM_TYPE, tuple(headers), dump(problem(error)))


def dump(value: Any) -> bytes:
    """Encode a JSON value compactly."""
    return msgspec.json.encode(value)
