"""Makes of a module what the interpreter is fed: own imports replaced in place, host calls marked with their place.

The number of lines and the line of every statement stay as they were, so that frames and type errors carry the module's
own lines.
"""

import ast
from collections.abc import Callable, Iterable

from rss_policy.hostcalls import AT
from rss_policy.modules import Source

Edit = tuple[int, int, Callable[[list[bytes], int, int], None]]
"""Row and column (in bytes) where an edit begins, and the edit; edits are made from the end of the text to its start."""


def feed_of(source: Source, calls: Iterable[ast.Call]) -> str:
    """Return the text that is fed for a module, given its host calls.

    Raises:
        BundleRefused: something other than a comment stands on the line of an import, after it.
    """
    lines = [line.encode() for line in source.text.split("\n")]
    edits = [_without_import(source, node) for node in source.imports]
    edits += [_with_place(source, call, lines) for call in calls]
    for row, column, edit in sorted(edits, key=lambda one: (one[0], one[1]), reverse=True):
        edit(lines, row, column)
    return b"\n".join(lines).decode()


def _with_place(source: Source, call: ast.Call, lines: list[bytes]) -> Edit:
    comma = ", " if (call.args or call.keywords) and not _ends_with_comma(lines, call) else ""
    mark = f'{comma}{AT}="{source.name}:{call.lineno}"'.encode()

    def insert(lines: list[bytes], row: int, column: int) -> None:
        lines[row] = lines[row][:column] + mark + lines[row][column:]

    return (call.end_lineno or 1) - 1, (call.end_col_offset or 1) - 1, insert


def _ends_with_comma(lines: list[bytes], call: ast.Call) -> bool:
    parts = (*call.args, *(word.value for word in call.keywords))
    row, column = max((node.end_lineno or 0, node.end_col_offset or 0) for node in parts)
    tail = lines[row - 1 : call.end_lineno]
    tail[-1] = tail[-1][: (call.end_col_offset or 1) - 1]
    tail[0] = tail[0][column:]
    return any(b"," in line.split(b"#")[0] for line in tail)


def _without_import(source: Source, node: ast.ImportFrom) -> Edit:
    last, end = (node.end_lineno or node.lineno) - 1, node.end_col_offset or 0

    def blank(lines: list[bytes], row: int, column: int) -> None:
        tail = lines[last][end:]
        if (tail.strip() and not tail.lstrip().startswith(b"#")) or lines[row][:column].strip():
            raise source.refuse(node, "an import stands on a line of its own")
        lines[row + 1 : last + 1] = [b""] * (last - row)
        lines[row] = b"pass" + (tail if tail.strip() else b"")

    return node.lineno - 1, node.col_offset, blank
