"""Which names of a module are global: Python's own scope rules over a syntax tree, with the nodes kept.

The standard library's `symtable` knows the same (a test compares), but not the nodes.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FIXED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(slots=True)
class _Scope:
    kind: Literal["module", "function", "class", "comprehension"]
    parent: "_Scope | None" = None
    bound: dict[str, ast.AST] = field(default_factory=dict)
    rebound: list[tuple[str, ast.AST]] = field(default_factory=list)
    declared_global: set[str] = field(default_factory=set)
    declared_outer: set[str] = field(default_factory=set)
    used: list[ast.Name] = field(default_factory=list)

    def bind(self, name: str, node: ast.AST) -> None:
        if name in self.bound:
            self.rebound.append((name, node))
        else:
            self.bound[name] = node

    def is_local(self, name: str) -> bool:
        return name in self.bound and name not in self.declared_global and name not in self.declared_outer


@dataclass(frozen=True, slots=True)
class Names:
    """What a module does with global names.

    Attributes:
        defined: each name that the module binds at its top level (also by `global`), with the first node that does.
        redefined: further bindings of the same names; by `global` only those of what was imported, or made by def or class.
        used: every use of a name that is not local to a function, comprehension or class, with its node.
    """

    defined: dict[str, ast.AST]
    redefined: tuple[tuple[str, ast.AST], ...]
    used: tuple[ast.Name, ...]


def names_of(tree: ast.Module) -> Names:
    """Resolve all names of a module."""
    module = _Scope("module")
    walker = _Walker(module)
    for statement in tree.body:
        walker.visit(statement)
    redefined = list(module.rebound)
    for scope in walker.scopes:
        for name in scope.declared_global & scope.bound.keys():
            first = module.bound.setdefault(name, scope.bound[name])
            if isinstance(first, _FIXED):
                redefined.append((name, scope.bound[name]))
    used = sorted(_global_uses(walker.scopes), key=lambda node: (node.lineno, node.col_offset))
    return Names(module.bound, tuple(redefined), tuple(used))


def _global_uses(scopes: Iterable[_Scope]) -> Iterator[ast.Name]:
    for scope in scopes:
        yield from (node for node in scope.used if _is_global(scope, node.id))


def _is_global(scope: _Scope, name: str) -> bool:
    here: _Scope | None = scope
    while here is not None and here.kind != "module":
        visible = here is scope or here.kind != "class"
        if visible and name in here.declared_global:
            return True
        if visible and here.is_local(name):
            return False
        here = here.parent
    return True


class _Walker(ast.NodeVisitor):
    """Collects what each scope binds and uses."""

    def __init__(self, module: _Scope) -> None:
        self.scopes = [module]
        self._now = module

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._all(_defaults(node.args))
        self._inside("function", node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._now.bind(node.name, node)
        self._all([*node.decorator_list, *node.bases, *node.keywords])
        self._inside("class", None, node.body)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node, [node.key, node.value])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scope = self._now
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        scope.bind(node.target.id, node.target)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._now.used.append(node)
        else:
            self._now.bind(node.id, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._now.used += [node.target] if isinstance(node.target, ast.Name) else []
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._now.declared_global |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._now.declared_outer |= set(node.names)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._bind_text(node.name, node)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._bind_text(node.name, node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._bind_text(node.name, node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._bind_text(node.rest, node)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._now.bind(alias.asname or alias.name.split(".")[0], node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._now.bind(alias.asname or alias.name, node)

    def _function(self, node: Function) -> None:
        self._now.bind(node.name, node)
        annotations = [arg.annotation for arg in _arguments(node.args)]
        self._all([*node.decorator_list, *_defaults(node.args), *annotations, node.returns])
        self._inside("function", node.args, node.body)

    def _comprehension(self, node: Comprehension, results: list[ast.expr]) -> None:
        first, *rest = node.generators
        self.visit(first.iter)
        inner = [first.target, *first.ifs, *rest, *results]
        self._inside("comprehension", None, inner)

    def _inside(
        self, kind: Literal["function", "class", "comprehension"], args: ast.arguments | None, body: Iterable[ast.AST]
    ) -> None:
        outer, self._now = self._now, _Scope(kind, self._now)
        self.scopes.append(self._now)
        for arg in _arguments(args) if args else ():
            self._now.bind(arg.arg, arg)
        self._all(body)
        self._now = outer

    def _all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _bind_text(self, name: str | None, node: ast.AST) -> None:
        if name is not None:
            self._now.bind(name, node)


def _arguments(args: ast.arguments) -> list[ast.arg]:
    listed = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return listed + [arg for arg in (args.vararg, args.kwarg) if arg is not None]


def _defaults(args: ast.arguments) -> list[ast.expr | None]:
    return [*args.defaults, *args.kw_defaults]
