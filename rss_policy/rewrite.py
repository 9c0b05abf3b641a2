"""Makes of a module what the interpreter is fed: own imports replaced in place, host calls marked with their place.

The number of lines and the line of every statement stay as they were, so that frames and type errors carry the module's
own lines.
"""

import ast
from collections.abc import Callable

from rss_policy.modules import HOST, Source

AT = "_at"

Edit = tuple[int, int, Callable[[list[bytes], int, int], None]]


def placed_names(vocabulary: Source) -> frozenset[str]:
    """Return the host functions that take `_at`."""
    functions = (node for node in vocabulary.tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if any(arg.arg == AT for arg in node.args.args))


def feed_of(source: Source, vocabulary: Source) -> str:
    """Return the text that is fed for a module."""
    placed = placed_names(vocabulary)
    imported = {alias.name for node in source.imports if node.module == HOST for alias in node.names} & placed
    edits = [_without_import(node) for node in source.imports]
    edits += [_with_place(source, call) for call in host_calls(source.tree, imported)]
    lines = [line.encode() for line in source.text.split("\n")]
    for row, column, edit in sorted(edits, key=lambda one: (one[0], one[1]), reverse=True):
        edit(lines, row, column)
    return b"\n".join(lines).decode()


def host_calls(tree: ast.AST, names: set[str] | frozenset[str]) -> list[ast.Call]:
    """Return all calls of these names."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def _with_place(source: Source, call: ast.Call) -> Edit:
    comma = ", " if (call.args or call.keywords) and not _ends_with_comma(source, call) else ""
    mark = f'{comma}{AT}="{source.name}:{call.lineno}"'.encode()

    def insert(lines: list[bytes], row: int, column: int) -> None:
        lines[row] = lines[row][:column] + mark + lines[row][column:]

    return (call.end_lineno or 1) - 1, (call.end_col_offset or 1) - 1, insert


def _ends_with_comma(source: Source, call: ast.Call) -> bool:
    last = max(
        (*call.args, *(word.value for word in call.keywords)), key=lambda node: (node.end_lineno, node.end_col_offset)
    )
    lines = [line.encode() for line in source.text.split("\n")[(last.end_lineno or 1) - 1 : call.end_lineno]]
    lines[-1] = lines[-1][: (call.end_col_offset or 1) - 1]
    lines[0] = lines[0][last.end_col_offset or 0 :]
    return any(b"," in line.split(b"#")[0] for line in lines)


def _without_import(node: ast.ImportFrom) -> Edit:
    last, end = (node.end_lineno or node.lineno) - 1, node.end_col_offset or 0

    def blank(lines: list[bytes], row: int, column: int) -> None:
        tail = lines[last][end:]
        lines[row + 1 : last + 1] = [b""] * (last - row)
        lines[row] = lines[row][:column] + b"pass" + (tail if tail.strip() else b"")

    return node.lineno - 1, node.col_offset, blank
