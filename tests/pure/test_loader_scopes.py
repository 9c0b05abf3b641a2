"""The loader's own scope rules against Python's symbol table."""

import ast
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from rss_policy import scopes

SOURCES = {
    "closures": "x = 1\ndef f(a, *b, c=x, **d):\n    def g():\n        return a + x + e\n    e = 2\n    return g\n",
    "comprehensions": (
        "def f(r):\n    y = [x + z for x in r if (w := x)]\n    return w, {k: v for k, v in r}, {x for x in y}\n"
    ),
    "class": "class A:\n    b = 1\n    c = [b for _ in range(3)]\n    def f(self):\n        return b, A\n",
    "global": "g = 0\ndef f():\n    global g\n    g = 1\n    def h():\n        return g\n    return h\n",
    "nonlocal": "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\n",
    "lambda": "f = lambda x, y=z: lambda: x + y + w\n",
    "handlers": (
        "def f():\n    try:\n        pass\n    except ValueError as fault:\n        return fault\n    return fault2\n"
    ),
    "match": (
        "def f(x):\n    match x:\n        case {'a': a, **rest}:\n            return a, rest\n"
        "        case [b, *c] | [b, c]:\n            return b, c\n        case p.Q(d) as e:\n"
        "            return d, e\n"
    ),
    "augmented": "def f():\n    n = 0\n    n += m\n    return n\n",
    "unpacking": "(a, [b, *c]), d = e\nfor i, (j, k) in l:\n    pass\nwith m as (n, o):\n    pass\n",
    "decorators": (
        "@d1(x1)\ndef f(a: t1 = v1, *, b: t2 = v2) -> t3:\n    a: t4 = b\n    return a\n@d2\n"
        "class C(b1, metaclass=m1):\n    pass\n"
    ),
    "generator in class": "class A:\n    r = [1]\n    s = list(q for q in r)\n",
}


def global_names_by_symtable(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        at_top = table.get_type() == "module"
        if symbol.is_referenced() and (at_top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from global_names_by_symtable(child)


def own_files() -> dict[str, str]:
    folder = Path(scopes.__file__).parent
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}


@pytest.mark.parametrize("name", [*SOURCES, *own_files()])
def test_global_uses_are_those_of_the_symbol_table(name: str) -> None:
    text = SOURCES.get(name) or own_files()[name]
    found = {node.id for node in scopes.names_of(ast.parse(text)).used}
    assert found == {n for n in global_names_by_symtable(symtable.symtable(text, name, "exec")) if not n.startswith(".")}


@pytest.mark.parametrize("name", [*SOURCES, *own_files()])
def test_top_level_names_are_those_of_the_symbol_table(name: str) -> None:
    text = SOURCES.get(name) or own_files()[name]
    table = symtable.symtable(text, name, "exec")
    assigned = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    assert set(scopes.names_of(ast.parse(text)).defined) == assigned
