"""The settings as a tree of names: which exist, of what type, and which one a misspelt name probably meant."""

import difflib
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from gateways.config import Config, Section

ANY_NAME = "<name>"
"""Stands for a name that the user chooses, in `providers.<name>.base_url`."""


def settings() -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, type, default) of every setting, in the order of `config.py`."""
    yield from _leaves("", Config)


def type_of(path: tuple[str, ...]) -> Any | None:
    """Return the type of the setting or section at a path, or None if there is no such setting."""
    kind: Any = Config
    for name in path:
        if _is_section(kind):
            kind = {each.name: each.type for each in msgspec.structs.fields(kind)}.get(name)
        else:
            kind = _section_under(kind)
        if kind is None:
            return None
    return kind


def is_leaf(kind: Any) -> bool:
    """Tell whether a type is a value rather than a section or a table of sections."""
    return not _is_section(kind) and _section_under(kind) is None


def meant(path: tuple[str, ...]) -> str:
    """Return the end of a sentence about an unknown name: the setting that was probably meant, or what there is."""
    parent = path[:-1]
    siblings = [name for name in _names_under(parent) if name != ANY_NAME]
    near = difflib.get_close_matches(path[-1], siblings, n=1, cutoff=0.6)
    if near:
        return f"did you mean {'.'.join((*parent, near[0]))}?"
    everywhere = {name.rpartition(".")[2]: name for name, _, _ in settings()}
    near = difflib.get_close_matches(path[-1], list(everywhere), n=1, cutoff=0.8)
    if near:
        return f"did you mean {everywhere[near[0]]}?"
    where = ".".join(parent) or "the top level"
    return f"{where} knows {', '.join(siblings)}"


def plain(kind: Any) -> Any:
    """Return the type without its bounds and without None."""
    if get_origin(kind) is Annotated:
        return plain(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return plain(next(each for each in get_args(kind) if each is not type(None)))
    return kind


def _leaves(prefix: str, section: type[Section]) -> Iterator[tuple[str, Any, Any]]:
    for field in msgspec.structs.fields(section):
        name = f"{prefix}{field.name}"
        below = _section_under(field.type)
        if _is_section(field.type):
            yield from _leaves(f"{name}.", field.type)
        elif below is not None:
            yield from _leaves(f"{name}.{ANY_NAME}.", below)
        else:
            yield name, field.type, _default(field)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _names_under(path: tuple[str, ...]) -> list[str]:
    kind = type_of(path)
    return [each.name for each in msgspec.structs.fields(kind)] if kind is not None and _is_section(kind) else [ANY_NAME]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _section_under(kind: Any) -> type[Section] | None:
    if get_origin(kind) is dict and _is_section(get_args(kind)[1]):
        found: type[Section] = get_args(kind)[1]
        return found
    return None
