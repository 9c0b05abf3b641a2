"""Checks request bodies and query parameters against the route table, and names what is wrong in one sentence."""

import difflib
import json
from collections.abc import Iterable
from typing import Any

import falcon
import jsonschema
from jsonschema.exceptions import ValidationError, best_match

from eventstore.catalogue import Json
from gateways.http.bodies import kind_of
from gateways.http.errors import ApiError
from gateways.http.routes import Route
from gateways.http.schemas import COMPONENTS, REQUESTS

# Input and messages have their own checks, whose sentences are better than those of a schema with alternatives.
_CHECKED = json.loads(json.dumps(COMPONENTS | {"Input": {}})) if COMPONENTS else {}
_VALIDATORS = {
    name: jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": _CHECKED}})
    for name in REQUESTS
}
MAX_DIGITS = 18
_WORDS = {"string": "text", "object": "an object", "array": "an array", "integer": "an integer", "number": "a number"}


def check_body(name: str, body: Json) -> None:
    """Check a body against the schema with this name.

    Raises:
        ApiError: `unknown_field`, `missing_field` or `invalid_field`, for the first fault.
    """
    fault = best_match(_VALIDATORS[name].iter_errors(body))
    if fault is not None:
        raise _explain(fault)


def _explain(fault: ValidationError) -> ApiError:
    where = ".".join(str(step) for step in fault.absolute_path)
    instance: Any = fault.instance
    schema: Any = fault.schema
    expected: Any = fault.validator_value
    match fault.validator:
        case "additionalProperties":
            known = list(schema["properties"])
            return unknown("unknown_field", _first(instance, known), known, where)
        case "required":
            missing = next(name for name in expected if name not in instance)
            param = f"{where}.{missing}" if where else missing
            return ApiError("missing_field", f"The field `{param}` is missing.", param=param)
    return ApiError("invalid_field", f"The field `{where}` {_rule(fault)}." if where else _whole(fault), param=where or None)


def _whole(fault: ValidationError) -> str:
    return "The body must have at least one field." if fault.validator == "minProperties" else "The body does not fit."


def _rule(fault: ValidationError) -> str:
    """Say the broken rule; never the value, which may be long or secret."""
    expected: Any = fault.validator_value
    match fault.validator:
        case "type":
            return f"must be {_WORDS.get(expected, expected)}, not {kind_of(fault.instance)}"
        case "enum":
            return f"must be one of {', '.join(expected)}"
        case "minLength":
            return f"must have at least {expected} character{'s' * (expected != 1)}"
        case "maxLength":
            return f"must have at most {expected} characters"
        case "pattern":
            return f"must match {expected}"
    return f"must keep to {fault.validator} {expected}"


def _first(instance: Json, known: Iterable[str]) -> str:
    allowed = set(known)
    return next(name for name in instance if name not in allowed)


def unknown(code: str, name: str, known: list[str], where: str = "") -> ApiError:
    """Say that a name is unknown, and which one was perhaps meant."""
    param = (f"{where}.{name}" if where else name)[:200]
    near = difflib.get_close_matches(name[:100], known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known) or 'none'}."
    return ApiError(code, f"`{param}` is unknown; {hint}", param=param)


def check_query(route: Route, req: falcon.Request) -> dict[str, Any]:
    """Return the query parameters of the route, each in its type, defaults filled in; None where there is none.

    Raises:
        ApiError: `unknown_parameter`, `invalid_parameter` or `invalid_cursor`.
    """
    declared = {each.name: each.schema for each in route.parameters if each.place == "query"}
    for name in req.params:
        if name not in declared and not route.openai:
            raise unknown("unknown_parameter", name, list(declared))
    return {name: _parameter(name, schema, req.params.get(name)) for name, schema in declared.items()}


def _parameter(name: str, schema: Json, raw: str | list[str] | None) -> Any:
    if raw is None:
        return schema.get("default")
    if isinstance(raw, list):
        raise ApiError("invalid_parameter", f"The parameter `{name}` is given more than once.", param=name)
    match schema["type"]:
        case "integer":
            return _bounded(name, schema, raw)
        case "boolean" if raw not in ("true", "false"):
            raise ApiError("invalid_parameter", f"The parameter `{name}` must be true or false.", param=name)
        case "boolean":
            return raw == "true"
    if "enum" in schema and raw not in schema["enum"]:
        raise ApiError(
            "invalid_parameter", f"The parameter `{name}` must be one of {', '.join(schema['enum'])}.", param=name
        )
    return raw


def _bounded(name: str, schema: Json, raw: str) -> int:
    if name == "after":
        return cursor(raw, "after")
    low, high = schema["minimum"], schema["maximum"]
    if not (raw.isascii() and raw.isdigit() and len(raw) <= MAX_DIGITS and low <= int(raw) <= high):
        raise ApiError("invalid_parameter", f"The parameter `{name}` must be a number from {low} to {high}.", param=name)
    return int(raw)


def cursor(raw: str, name: str) -> int:
    """Return a cursor: a number that is not negative and fits 63 bits.

    Raises:
        ApiError: `invalid_cursor`.
    """
    if not (raw.isascii() and raw.isdigit() and len(raw) <= MAX_DIGITS):
        raise ApiError("invalid_cursor", f"`{name}` must be the `seq` of an event, a number from 0 up.", param=name)
    return int(raw)
