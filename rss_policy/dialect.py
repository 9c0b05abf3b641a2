"""What a module may not contain: what the interpreter lacks, what would break replay, and what would escape the record."""

import ast
from collections.abc import Callable, Iterator

from rss_policy.errors import BundleRefused
from rss_policy.modules import STANDARD, Source, line_of

# fmt: off
BUILTINS = frozenset((
    "ArithmeticError", "AssertionError", "AttributeError", "Ellipsis", "Exception", "ImportError", "IndexError",
    "KeyError", "LookupError", "MemoryError", "NameError", "NotImplemented", "NotImplementedError", "OSError",
    "OverflowError", "RecursionError", "RuntimeError", "StopIteration", "TimeoutError", "TypeError",
    "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError", "abs", "all", "any", "bin",
    "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float", "format", "frozenset",
    "getattr", "hasattr", "hex", "int", "isinstance", "len", "list", "map", "max", "min", "next", "object",
    "oct", "ord", "pow", "range", "repr", "reversed", "round", "set", "setattr", "slice", "sorted", "str", "sum",
    "tuple", "type", "zip",
))
# fmt: on
"""Builtins that scripts may use: the interpreter has them (a contract test asks it) and they are deterministic."""

REFUSED_NAMES = {
    "eval": "code that is made at run time escapes every check",
    "exec": "code that is made at run time escapes every check",
    "id": "it differs from run to run, so a replay would differ",
    "hash": "it differs from run to run, so a replay would differ",
    "BaseException": "it would catch what ends the script; catch Exception",
    "SystemExit": "it would end the script past its handlers; return from run(context)",
    "KeyboardInterrupt": "it would catch what ends the script; catch Exception",
    "open": "a script has no files; call a tool",
    "print": "what is printed is not on record; emit a note.* event",
    "locals": "it shows names that are not the script's",
    "globals": "it shows names that are not the script's",
    "iter": "what it gives is printed with its address, which differs after parking; loop, or count an index",
    "input": "nobody sits there; ask by an approval or end the turn",
    "property": "the interpreter has no method decorators; write a function",
    "staticmethod": "the interpreter has no method decorators; write a function",
    "classmethod": "the interpreter has no method decorators; write a function",
    "super": "the interpreter has no class inheritance",
}
ASYNCIO_NAMES = frozenset({"gather"})
METHOD_DECORATORS = frozenset({"property", "classmethod", "staticmethod"})


def refuse_syntax(source: Source) -> None:
    """Check every node of a module.

    Raises:
        BundleRefused: with the place of the first thing that the dialect does not have.
    """
    found = [(node, sentence) for node in ast.walk(source.tree) for sentence in _faults(node)]
    found += [(node, "imports stand at the top of a module only") for node in _imports_below_top(source.tree)]
    for node, sentence in sorted(found, key=lambda one: line_of(one[0]))[:1]:
        raise source.refuse(node, sentence)


def _faults(node: ast.AST) -> Iterator[str]:
    if type(node) in _LACKING:
        yield _LACKING[type(node)]
    elif type(node) in _CHECKS:
        yield from _CHECKS[type(node)](node)


def refusal_of_name(source: Source, node: ast.Name) -> BundleRefused | None:
    """Return the refusal of a builtin that scripts may not use, or None."""
    reason = REFUSED_NAMES.get(node.id)
    return source.refuse(node, f"{node.id} is not in the dialect: {reason}") if reason else None


def _imports_below_top(tree: ast.Module) -> Iterator[ast.AST]:
    top = set(map(id, tree.body))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top)


def _import(node: ast.Import) -> Iterator[str]:
    for alias in node.names:
        if alias.name not in STANDARD:
            yield f"{alias.name} cannot be imported; there are {', '.join(sorted(STANDARD))}, host and the bundle's own"
        if alias.asname is not None:
            yield _no_alias(alias)


def _import_from(node: ast.ImportFrom) -> Iterator[str]:
    if node.level:
        yield "there are no relative imports; name the module from the bundle's folder"
    for alias in node.names:
        if alias.name == "*":
            yield "import names one by one, not *"
        if alias.asname is not None:
            yield _no_alias(alias)
        if node.module == "asyncio" and alias.name not in ASYNCIO_NAMES:
            yield _no_asyncio(alias.name)


def _no_alias(alias: ast.alias) -> str:
    return (
        f"'{alias.name} as {alias.asname}' is not in the dialect: a bundle shares one namespace, so a name has one meaning"
    )


def _no_asyncio(name: str) -> str:
    return f"asyncio.{name} is not in the dialect; there is asyncio.gather, and host has sleep, start, join and any_of"


def _attribute(node: ast.Attribute) -> Iterator[str]:
    if node.attr.startswith("__"):
        yield f"{node.attr} is not in the dialect: the interpreter has no such attribute"
    if isinstance(node.value, ast.Name) and node.value.id == "asyncio" and node.attr not in ASYNCIO_NAMES:
        yield _no_asyncio(node.attr)


def _class(node: ast.ClassDef) -> Iterator[str]:
    if node.bases or node.keywords:
        yield "the interpreter has no class inheritance; write a dataclass or a function"
    named = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    if not any(map(_is_dataclass, node.decorator_list)) and "__repr__" not in named:
        yield "it is printed with its address, which differs after parking; make it a dataclass, or define __repr__"


def _is_dataclass(node: ast.expr) -> bool:
    made = node.func if isinstance(node, ast.Call) else node
    return (isinstance(made, ast.Name) and made.id == "dataclass") or (
        isinstance(made, ast.Attribute) and made.attr == "dataclass"
    )


def _handler(node: ast.ExceptHandler) -> Iterator[str]:
    if node.type is None:
        yield "a bare except would catch what ends the script; catch Exception"


def _try(node: ast.Try) -> Iterator[str]:
    for statement in node.finalbody:
        if _leaves(statement, loops=True):
            yield "return, break or continue in finally would swallow an error; move it after the try"


def _leaves(node: ast.AST, *, loops: bool) -> bool:
    if isinstance(node, ast.Return) or (loops and isinstance(node, ast.Break | ast.Continue)):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    outside_loop = loops and not isinstance(node, ast.For | ast.While)
    return any(_leaves(child, loops=outside_loop) for child in ast.iter_child_nodes(node))


def _comprehension(node: ast.comprehension) -> Iterator[str]:
    if node.is_async:
        yield "the interpreter has no async comprehensions; await in a loop, or gather"


def _dataclass_options(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id == "dataclass":
        yield from ("the interpreter's dataclass has no slots" for word in node.keywords if word.arg == "slots")


_CHECKS: dict[type[ast.AST], Callable[..., Iterator[str]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Attribute: _attribute,
    ast.ClassDef: _class,
    ast.ExceptHandler: _handler,
    ast.Try: _try,
    ast.comprehension: _comprehension,
    ast.Call: _dataclass_options,
}
_LACKING: dict[type[ast.AST], str] = {
    ast.Yield: "the interpreter has no yield; return a list",
    ast.YieldFrom: "the interpreter has no yield; return a list",
    ast.AsyncFor: "the interpreter has no async for; await in a while loop",
    ast.AsyncWith: "the interpreter has no async with",
    ast.Delete: "the interpreter has no del; use pop, or assign None",
    ast.TryStar: "the interpreter has no exception groups",
}
