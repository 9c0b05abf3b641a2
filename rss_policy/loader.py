"""Turns the texts of a policy folder into a bundle that keeps to the dialect, or refuses it with `module:line`."""

from collections.abc import Mapping
from pathlib import Path

from rss_policy.bundle import SUFFIX, Bundle, Module, digest_of_files, pack, read_folder, unpack
from rss_policy.dialect import refuse_syntax
from rss_policy.errors import BundleRefused
from rss_policy.hostcalls import host_calls
from rss_policy.manifest import MANIFEST_PATH, MODULE_NAME, Manifest, read_manifest
from rss_policy.modules import HOST, RAW_MODULE, STANDARD, in_dependency_order, parse
from rss_policy.names import Scoped, host_uses, refuse_entry, refuse_names, scoped
from rss_policy.rewrite import feed_of

PRELUDE = Path(__file__).with_name(f"prelude{SUFFIX}").read_text(encoding="utf-8")
"""The host's vocabulary as this version has it."""


def load_bundle(path: Path) -> Bundle:
    """Load a policy folder: `policy.toml` and modules `*.rss.py`.

    Raises:
        BundleRefused: the folder breaks a rule; the place is `module:line` where one is known.
    """
    return load_files(read_folder(path))


def load_archive(data: bytes) -> Bundle:
    """Load a bundle from `Bundle.archive`, with the prelude that it was packed with.

    Raises:
        BundleRefused: these bytes are no archive, or their bundle breaks a rule.
    """
    files, prelude = unpack(data)
    return load_files(files, prelude)


def load_files(files: Mapping[str, str], prelude: str = PRELUDE) -> Bundle:
    """Load a bundle from texts by relative path; pure.

    Raises:
        BundleRefused: the bundle breaks a rule.
    """
    if MANIFEST_PATH not in files:
        raise BundleRefused(f"there is no {MANIFEST_PATH}")
    manifest = read_manifest(files[MANIFEST_PATH])
    named = _modules_of(files)
    _refuse_other_modules(manifest, named)
    host = scoped(parse(HOST, prelude))
    modules = {name: _parsed(name, files[path]) for name, path in named.items()}
    ordered = in_dependency_order({name: module.source for name, module in modules.items()})
    refuse_names([modules[source.name] for source in ordered], host)
    refuse_entry(modules, manifest.entry)
    fed = tuple(_module(modules[source.name], host) for source in ordered)
    return Bundle(manifest, prelude, fed, digest_of_files(files, prelude), pack(files, prelude))


def _parsed(name: str, text: str) -> Scoped:
    try:
        module = scoped(parse(name, text))
        refuse_syntax(module.source)
    except RecursionError:
        raise BundleRefused(f"{name}: an expression nests too deeply; take it apart", name) from None
    return module


def _module(module: Scoped, host: Scoped) -> Module:
    source = module.source
    return Module(source.name, source.text, feed_of(source, host_calls(source, host_uses(module, host))))


def _modules_of(files: Mapping[str, str]) -> dict[str, str]:
    named = {path.removesuffix(SUFFIX).replace("/", "."): path for path in files if path.endswith(SUFFIX)}
    for name, path in named.items():
        if not MODULE_NAME.fullmatch(name):
            raise BundleRefused(f"{path} is no module's name: lower-case letters, digits and _, in folders", path)
        if name in STANDARD | {HOST, RAW_MODULE}:
            raise BundleRefused(f"{path}: {name} is taken by the host; give the module another name", path)
    return named


def _refuse_other_modules(manifest: Manifest, named: Mapping[str, str]) -> None:
    if manifest.modules is None:
        return
    listed = set(manifest.modules)
    for name in sorted(listed ^ named.keys()):
        there = "is listed but not there" if name in listed else "is there but not listed"
        raise BundleRefused(f"{MANIFEST_PATH}: module {name} {there}", MANIFEST_PATH)
