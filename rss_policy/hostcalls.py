"""How host functions may be used: called by name, inside a function, where the place of the call can be added."""

import ast
from collections.abc import Iterable

from rss_policy.modules import Source

AT = "_at"


def host_calls(source: Source, uses: Iterable[ast.Name]) -> tuple[ast.Call, ...]:
    """Return the calls of host functions, given every use of one.

    Raises:
        BundleRefused: a host function is used in another way than by a call that can carry its place.
    """
    calls = {id(node.func): node for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    inside = _nodes(ast.JoinedStr, source.tree)
    functions = _nodes(ast.FunctionDef, source.tree) | _nodes(ast.AsyncFunctionDef, source.tree)
    found: list[ast.Call] = []
    for use in uses:
        call = calls.get(id(use))
        if call is None:
            raise source.refuse(use, f"{use.id} is a host function: call it by its name, do not pass it on")
        if id(call) in inside:
            raise source.refuse(use, f"{use.id} cannot be called inside an f-string; call it before")
        if id(call) not in functions:
            raise source.refuse(use, f"{use.id} can only be called while run(context) runs, not while the module loads")
        _refuse_arguments(source, call, use.id)
        found.append(call)
    return tuple(found)


def _refuse_arguments(source: Source, call: ast.Call, name: str) -> None:
    if any(word.arg == AT for word in call.keywords):
        raise source.refuse(call, f"{AT} is added by the loader; leave it out")
    if any(isinstance(arg, ast.GeneratorExp) for arg in call.args):
        raise source.refuse(call, f"{name} takes no generator; make a list")


def _nodes(kind: type[ast.AST], tree: ast.AST) -> set[int]:
    """Return the identities of all nodes inside nodes of this kind; decorators and defaults of a function are not inside."""
    outer = (node for node in ast.walk(tree) if isinstance(node, kind))
    return {id(inner) for node in outer for part in _body(node) for inner in ast.walk(part)}


def _body(node: ast.AST) -> Iterable[ast.AST]:
    return node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ast.iter_child_nodes(node)
