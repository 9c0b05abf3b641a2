"""Commands as JSON, for fixtures: every field has a name, and one of several kinds says which in its `type`."""

import dataclasses
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec


def decode(kind: Any, value: Any) -> Any:
    """Return the value of this type that JSON names in full; a missing, unknown or wrong field is a ValidationError."""
    if dataclasses.is_dataclass(kind):
        return _object(kind, value)
    if get_origin(kind) in (Union, UnionType):
        return _one_of(get_args(kind), value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(decode(get_args(kind)[0], each) for each in value)
    if get_origin(kind) is Mapping and isinstance(value, dict):
        keys, values = get_args(kind)
        return {msgspec.convert(key, keys, strict=keys is not int): decode(values, each) for key, each in value.items()}
    return msgspec.convert(value, kind, strict=True)


def encode(kind: Any, value: Any) -> Any:
    """Return the JSON of which `decode` makes the value."""
    if get_origin(kind) in (Union, UnionType) and len(_objects(get_args(kind))) > 1 and value is not None:
        return {"type": type(value).__name__, **encode(type(value), value)}
    if dataclasses.is_dataclass(value):
        hints = get_type_hints(type(value))
        return {name: encode(hints[name], getattr(value, name)) for name in hints}
    if isinstance(value, tuple):
        return [encode(get_args(kind)[0], each) for each in value]
    if get_origin(kind) is Mapping:
        return {str(key): encode(get_args(kind)[1], each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return msgspec.json.decode(msgspec.json.encode(value))


def _object(kind: Any, value: Any) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise msgspec.ValidationError(f"{kind.__name__} needs {', '.join(hints)} and nothing else: {value}")
    return kind(**{name: decode(hints[name], value[name]) for name in hints})


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    objects = _objects(kinds)
    if value is None and type(None) in kinds:
        return None
    if len(objects) == 1:
        return decode(next(iter(objects.values())), value)
    if not objects:
        return msgspec.convert(value, Union[kinds], strict=True)  # noqa: UP007 - the members are known at run time only
    if not isinstance(value, dict) or value.get("type") not in objects:
        raise msgspec.ValidationError(f"`type` must be one of {', '.join(objects)}: {value}")
    return decode(objects[value["type"]], {name: each for name, each in value.items() if name != "type"})


def _objects(kinds: tuple[Any, ...]) -> dict[str, Any]:
    return {kind.__name__: kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
