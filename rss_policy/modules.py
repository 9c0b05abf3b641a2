"""The modules of a bundle as syntax trees: what each imports and defines, and the order in which they are fed."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from rss_policy.errors import BundleRefused

HOST = "host"
RAW_MODULE = "raw"
STANDARD = frozenset({"asyncio", "dataclasses", "json", "math", "re", "typing"})
"""What the interpreter's library has that is deterministic and of use here."""


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed module; `imports` are its own imports of `host` and of other modules of the bundle."""

    name: str
    text: str
    tree: ast.Module
    imports: tuple[ast.ImportFrom, ...]

    def refuse(self, node: ast.AST, sentence: str) -> BundleRefused:
        """Return the refusal with this node's place."""
        place = f"{self.name}:{line_of(node)}"
        return BundleRefused(f"{place}: {sentence}", place)


def line_of(node: ast.AST) -> int:
    """Return the line where a node begins."""
    placed = node.target if isinstance(node, ast.comprehension) else node
    return int(getattr(placed, "lineno", 1))


def parse(name: str, text: str) -> Source:
    """Parse a module.

    Raises:
        BundleRefused: it is no Python.
    """
    try:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as fault:
        place = f"{name}:{getattr(fault, 'lineno', None) or 1}"
        raise BundleRefused(f"{place}: {getattr(fault, 'msg', fault)}", place) from None
    imports = tuple(node for node in tree.body if isinstance(node, ast.ImportFrom) and is_own(node))
    return Source(name, text, tree, imports)


def is_own(node: ast.ImportFrom) -> bool:
    """Say whether an import is of `host` or of another module of the bundle, not of the interpreter's library."""
    return node.level == 0 and node.module not in STANDARD


def in_dependency_order(sources: Mapping[str, Source]) -> tuple[Source, ...]:
    """Return the modules so that each follows those it imports from; equals go by name.

    Raises:
        BundleRefused: an imported module is missing, or there is a cycle.
    """
    done: dict[str, Source] = {}
    for name in sorted(sources):
        _visit(sources, name, (), done)
    return tuple(done.values())


def _visit(sources: Mapping[str, Source], name: str, above: tuple[str, ...], done: dict[str, Source]) -> None:
    if name in done:
        return
    source = sources[name]
    for node in source.imports:
        if node.module == HOST or node.module is None:
            continue
        if node.module not in sources:
            raise source.refuse(node, f"there is no module {node.module} in this bundle")
        if node.module in (*above, name):
            raise source.refuse(node, f"the imports form a cycle: {' -> '.join((*above, name, node.module))}")
        _visit(sources, node.module, (*above, name), done)
    done[name] = source
