"""From the bytes of a request body to a JSON object that is safe to keep: sized, shallow, without broken text."""

import hashlib
import json
import re
from typing import Any, NoReturn

import falcon

from eventstore.catalogue import Json
from gateways.http.errors import ApiError

MAX_DEPTH = 64
_KEY = re.compile(r"[!-~]{1,255}\Z")
_BROKEN = re.compile("[\x00\ud800-\udfff]")


def read_object(req: falcon.Request, limit: int) -> Json:
    """Read the body as one JSON object; lone surrogates and NUL become U+FFFD, for nothing behind takes them.

    Raises:
        ApiError: `unsupported_media_type`, `body_too_large` or `invalid_json`.
    """
    check_type(req.content_type)
    raw = read_bytes(req, limit)
    if not raw.strip():
        raise ApiError("invalid_json", "The body is empty; send a JSON object.")
    value = parse(raw)
    if not isinstance(value, dict):
        raise ApiError("invalid_json", f"The body is {kind_of(value)}; send a JSON object.")
    return value


def check_type(content_type: str | None) -> None:
    """Take JSON only: a web page can send other types without being asked for permission.

    Raises:
        ApiError: `unsupported_media_type`.
    """
    if (content_type or "").partition(";")[0].strip().lower() != "application/json":
        shown = (content_type or "nothing")[:100]
        raise ApiError("unsupported_media_type", f"The Content-Type is {shown!r}; send `Content-Type: application/json`.")


def read_bytes(req: falcon.Request, limit: int) -> bytes:
    """Read the body, never more than `limit` bytes and one.

    Raises:
        ApiError: `body_too_large`.
    """
    length = req.content_length
    raw = b"" if length is not None and length > limit else req.bounded_stream.read(limit + 1)
    if len(raw) > limit or (length or 0) > limit:
        raise ApiError(
            "body_too_large", f"The body has more than {limit} bytes; send less, or raise `server.max_body_bytes`."
        )
    return raw


def parse(raw: bytes) -> Any:
    """Parse strict JSON and clean its text.

    Raises:
        ApiError: `invalid_json`.
    """
    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError as exc:
        raise ApiError("invalid_json", f"The body is not UTF-8 (byte {exc.start}).") from exc
    except json.JSONDecodeError as exc:
        raise ApiError("invalid_json", f"The body is not JSON: {exc.msg} in line {exc.lineno}, column {exc.colno}.") from exc
    except (ValueError, RecursionError) as exc:
        raise ApiError("invalid_json", "The body nests too deeply or holds a number that is too long.") from exc
    return clean(value)


def _no_constant(name: str) -> NoReturn:
    raise ApiError("invalid_json", f"The body holds {name}, which is not JSON.")


def clean(value: Any, depth: int = 0) -> Any:
    """Return the value with broken text replaced.

    Raises:
        ApiError: `invalid_json`: deeper than `MAX_DEPTH`, or a number that does not fit 64 bits.
    """
    if depth > MAX_DEPTH:
        raise ApiError("invalid_json", f"The body nests deeper than {MAX_DEPTH} levels.")
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(key): clean(inner, depth + 1) for key, inner in value.items()}
        case list():
            return [clean(inner, depth + 1) for inner in value]
        case bool() | None:
            return value
        case int() if not -(2**63) <= value < 2**63:
            raise ApiError("invalid_json", "The body holds an integer that does not fit 64 bits.")
        case float() if value in (float("inf"), float("-inf")):
            raise ApiError("invalid_json", "The body holds a number that is too large.")
    return value


def clean_text(text: str) -> str:
    """Replace NUL and surrogates; a pair of them, which JSON escapes make, was joined by the parser before."""
    return _BROKEN.sub("\ufffd", text) if _BROKEN.search(text) else text


def kind_of(value: Any) -> str:
    """Name a JSON value's type as people read it."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def idempotency_key(req: falcon.Request) -> str | None:
    """Return the request's `Idempotency-Key`, if there is one.

    Raises:
        ApiError: `invalid_idempotency_key`.
    """
    key = req.get_header("Idempotency-Key")
    if key is not None and not _KEY.match(key):
        raise ApiError("invalid_idempotency_key", "The Idempotency-Key must be 1 to 255 visible ASCII characters.")
    return key


def fingerprint(route: str, *parts: Any) -> str:
    """Hash what a request asks for: its route and canonical JSON, so that spacing and key order do not matter."""
    canonical = json.dumps([route, *parts], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
