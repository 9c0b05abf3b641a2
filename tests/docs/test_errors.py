"""`docs/errors.md` has one row for each code that the product can show, and none for others."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from actors.errors import RefusalCode
from gateways.http.errors import TABLE
from gateways.provider.errors import BrokenCode
from tests.docs.tables import DOCS, ROOT, rows

PACKAGES = ("actors", "eventstore", "gateways", "rss_policy")
RAISED = ("ApiError", "Broken", "Problem", "Refused", "failure")
"""Whose first argument is a code."""

WITHIN_SCRIPTS = ("RUN_CODE_OF_KIND", "KEPT_CODES")
"""Tables of the bundled policy that give a failed run its code."""


def codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.keyword(arg="code", value=value) | ast.Assign(targets=[ast.Name(id="code")], value=value):
                yield from constants(value)
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code))):
                yield code
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), *_]) if name in RAISED:
                yield code
            case ast.Dict(keys=keys, values=values):
                named = zip(keys, values, strict=True)
                yield from (code for key, value in named if strings(key) == ["code"] for code in constants(value))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if name in WITHIN_SCRIPTS:
                yield from strings(ast.Tuple(value.values) if isinstance(value, ast.Dict) else value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in WITHIN_SCRIPTS:
                yield from strings(value)


def strings(node: ast.expr | None) -> list[str]:
    if node is None:
        return []
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def constants(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return [*constants(body), *constants(orelse)]
        case _:
            return []


def all_codes() -> set[str]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    declared = {*get_args(RefusalCode), *get_args(BrokenCode), *TABLE}
    return declared | {code for path in files for code in codes_in(path)}


DOCUMENTED = {row[0].strip("`"): row[1:] for row in rows((DOCS / "errors.md").read_text("utf-8"))}


def test_every_code_is_documented() -> None:
    assert sorted(all_codes() - set(DOCUMENTED)) == []


def test_nothing_is_documented_that_cannot_be_shown() -> None:
    assert sorted(set(DOCUMENTED) - all_codes()) == []


def test_each_row_says_what_it_means_and_what_to_do() -> None:
    assert [code for code, cells in DOCUMENTED.items() if len(cells) != 2 or not all(cells)] == []


def test_the_page_says_of_http_codes_what_the_api_says() -> None:
    told = {code: [entry.title, entry.advice] for code, entry in TABLE.items()}
    assert {code: DOCUMENTED[code] for code in told} == told


def test_the_rows_are_sorted() -> None:
    assert list(DOCUMENTED) == sorted(DOCUMENTED)
