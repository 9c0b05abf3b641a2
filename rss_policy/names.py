"""Which name means what over a whole bundle: one namespace, each name defined once, nothing used that was not imported."""

import ast
import builtins
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rss_policy.dialect import BUILTINS, refusal_of_name
from rss_policy.errors import BundleRefused
from rss_policy.manifest import MANIFEST_PATH
from rss_policy.modules import HOST, STANDARD, Source
from rss_policy.scopes import Names, names_of

ENTRY = "run"


@dataclass(frozen=True, slots=True)
class Scoped:
    """A module with its names resolved."""

    source: Source
    names: Names

    @property
    def own(self) -> dict[str, ast.AST]:
        """What the module itself defines, imports left out."""
        return {name: node for name, node in self.names.defined.items() if not _is_import(node)}


def scoped(source: Source) -> Scoped:
    """Resolve a module's names."""
    return Scoped(source, names_of(source.tree))


def refuse_names(modules: Iterable[Scoped], host: Scoped) -> None:
    """Check the names of a bundle against each other and against the host's.

    Raises:
        BundleRefused: with the place of the first name that is defined twice, reserved, undefined or not imported.
    """
    owners: dict[str, str] = {}
    exports = {HOST: _public(host)}
    for module in modules:
        _refuse_reserved(module, host)
        _refuse_imports(module, exports)
        _refuse_redefined(module, owners)
        exports[module.source.name] = frozenset(module.own)
    for module in modules:
        _refuse_undefined(module, exports)


def refuse_entry(modules: Mapping[str, Scoped], entry: str) -> None:
    """Check that the entry module defines `async def run(context)`.

    Raises:
        BundleRefused: it does not.
    """
    if entry not in modules:
        raise BundleRefused(f"the entry module {entry} is not in this bundle{_did_you_mean(entry, modules)}", MANIFEST_PATH)
    source = modules[entry].source
    run = modules[entry].own.get(ENTRY)
    if not isinstance(run, ast.AsyncFunctionDef):
        raise source.refuse(run or source.tree, "the entry module must define async def run(context)")
    args = run.args
    if len(args.posonlyargs + args.args) != 1 or args.vararg or args.kwarg or args.kwonlyargs:
        raise source.refuse(run, "run takes exactly one argument, the context")


def host_uses(module: Scoped, host: Scoped) -> tuple[ast.Name, ...]:
    """Return every use of a host function that the module imports."""
    imported = _imported(module, host.source.name)
    return tuple(node for node in module.names.used if node.id in imported)


def _refuse_reserved(module: Scoped, host: Scoped) -> None:
    for name, node in module.own.items():
        if hasattr(builtins, name):
            raise module.source.refuse(node, f"{name} is a builtin's name; give it another")
        if name in host.names.defined:
            raise module.source.refuse(node, f"{name} is a name of the host's; give it another")
    for name in module.names.defined.keys() & host.names.defined.keys() - module.own.keys():
        origin = _origin(module.names.defined[name])
        if origin not in (HOST, _origin(host.names.defined[name])):
            raise module.source.refuse(module.names.defined[name], f"{name} is a name of the host's, not of {origin}")


def _refuse_redefined(module: Scoped, owners: dict[str, str]) -> None:
    for name, node in module.names.redefined:
        raise module.source.refuse(node, f"{name} is defined twice in this module")
    for name, node in module.names.defined.items():
        owner = _origin(node) if isinstance(node, ast.Import | ast.ImportFrom) else module.source.name
        first = owners.setdefault(name, owner)
        if first != owner:
            raise module.source.refuse(node, f"{name} is defined in {first} already; a bundle shares one namespace")


def _refuse_imports(module: Scoped, exports: Mapping[str, frozenset[str]]) -> None:
    for node in module.source.imports:
        offered = exports[node.module or ""]
        for alias in node.names:
            if alias.name not in offered:
                hint = _did_you_mean(alias.name, offered)
                raise module.source.refuse(node, f"{node.module} does not define {alias.name}{hint}")


def _refuse_undefined(module: Scoped, exports: Mapping[str, frozenset[str]]) -> None:
    for node in module.names.used:
        if node.id in module.names.defined:
            continue
        refusal = refusal_of_name(module.source, node)
        if refusal is not None:
            raise refusal
        if node.id not in BUILTINS:
            raise module.source.refuse(node, f"{node.id} is not defined{_where_from(node.id, exports, module)}")


def _where_from(name: str, exports: Mapping[str, frozenset[str]], module: Scoped) -> str:
    for owner, offered in exports.items():
        if name in offered:
            return f" here; write: from {owner} import {name}"
    if name in STANDARD:
        return f" here; write: import {name}"
    return _did_you_mean(name, [*module.names.defined, *BUILTINS])


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _public(host: Scoped) -> frozenset[str]:
    return frozenset(name for name in host.own if not name.startswith("_"))


def _imported(module: Scoped, owner: str) -> frozenset[str]:
    return frozenset(alias.name for node in module.source.imports if node.module == owner for alias in node.names)


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _origin(node: ast.AST) -> str:
    match node:
        case ast.ImportFrom(module=module):
            return module or ""
        case ast.Import(names=names):
            return f"import {names[0].name}"
        case _:
            return HOST
