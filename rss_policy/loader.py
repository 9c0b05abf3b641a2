"""Turns the texts of a policy folder into a bundle that keeps to the dialect, or refuses it with `module:line`."""

from collections.abc import Mapping
from pathlib import Path

from rss_policy.bundle import SUFFIX, Bundle, Module, digest_of_files, pack, read_folder, unpack
from rss_policy.errors import BundleRefused
from rss_policy.manifest import MANIFEST_PATH, MODULE_NAME, read_manifest
from rss_policy.modules import Source, in_dependency_order, parse
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
    sources = {name: parse(name, files[path]) for name, path in _modules_of(files).items()}
    ordered = in_dependency_order(sources)
    vocabulary = parse("host", prelude)
    modules = tuple(Module(source.name, source.text, feed_of(source, vocabulary)) for source in ordered)
    return Bundle(manifest, prelude, modules, digest_of_files(files, prelude), pack(files, prelude))


def _modules_of(files: Mapping[str, str]) -> dict[str, str]:
    named = {path.removesuffix(SUFFIX).replace("/", "."): path for path in files if path.endswith(SUFFIX)}
    for name, path in named.items():
        if not MODULE_NAME.fullmatch(name):
            raise BundleRefused(f"{path} is no module's name: lower-case letters, digits and _, in folders", path)
    return named


__all__ = ["PRELUDE", "Source", "load_archive", "load_bundle", "load_files"]
