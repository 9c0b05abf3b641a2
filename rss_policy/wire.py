"""What may cross between host and script: JSON text, bounded in depth, without lone surrogates, NaN or infinity."""

import hashlib
import json
import math
from typing import Any

MAX_DEPTH = 200
"""Deepest nesting that the interpreter's JSON reads (pinned by a contract test)."""


class Unfit(ValueError):
    """A text from the script, or a value for it, is no JSON that may cross."""


def to_script(value: Any) -> str:
    """Return the JSON text of a value for the script.

    Lone surrogates become U+FFFD and numbers that JSON lacks become null: what the world sent must not fail a run.

    Raises:
        Unfit: the value nests deeper than `MAX_DEPTH`, or is no JSON value.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        if _deeper_than(value, MAX_DEPTH):
            raise Unfit(f"the value nests deeper than {MAX_DEPTH}") from None
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as fault:
        raise Unfit(f"the value is no JSON: {fault}") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise Unfit(f"the value nests deeper than {MAX_DEPTH}")
    return well_formed(text)


def from_script(text: object) -> Any:
    """Return the value of a JSON text that the script made.

    Raises:
        Unfit: it is no text, or no JSON that may cross.
    """
    if not isinstance(text, str):
        raise Unfit(f"a {type(text).__name__} cannot cross; only JSON text can")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as fault:
        raise Unfit(f"not JSON: {fault}") from None


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and each lone surrogate replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def digest_of(payload: Any) -> tuple[str, int]:
    """Return SHA-256 (hex) and size in bytes of a payload's canonical JSON: keys sorted, no spaces, UTF-8."""
    canonical = json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    data = canonical.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest(), len(data)


def _refuse_constant(name: str) -> None:
    raise Unfit(f"{name} is no JSON")


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [child for held in level for child in _children(held)]
        if not level:
            return False
    return True


def _children(held: Any) -> list[Any]:
    inner = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
    return [child for child in inner if isinstance(child, dict | list | tuple)]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
