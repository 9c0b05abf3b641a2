"""A loaded bundle: its manifest, its modules as they are fed to the interpreter, its digest and its archive."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rss_policy.errors import BundleRefused
from rss_policy.manifest import MANIFEST_PATH, Manifest

SUFFIX = ".rss.py"
MAX_ARCHIVE = 16_000_000


@dataclass(frozen=True, slots=True)
class Module:
    """One module: `name` as scripts import it, `source` as written, `feed` as the interpreter gets it, line for line."""

    name: str
    source: str
    feed: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that keeps to the dialect.

    `modules` are in dependency order; `prelude` is the host's script source that the bundle was loaded with, and belongs
    to its digest, so that an old run keeps the prelude that it started with.
    """

    manifest: Manifest
    prelude: str
    modules: tuple[Module, ...]
    digest: str
    archive: bytes = field(repr=False)


def digest_of_files(files: Mapping[str, str], prelude: str) -> str:
    """Return the SHA-256 (hex) over manifest, sources and prelude, whatever the order of the files."""
    return hashlib.sha256(_canonical(files, prelude)).hexdigest()


def pack(files: Mapping[str, str], prelude: str) -> bytes:
    """Return the archive: the same bytes for the same texts (with one version of zlib)."""
    return zlib.compress(_canonical(files, prelude), 9)


def unpack(archive: bytes) -> tuple[dict[str, str], str]:
    """Return files and prelude of an archive.

    Raises:
        BundleRefused: these bytes are no archive.
    """
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(archive, MAX_ARCHIVE)
        if opened.unconsumed_tail or not opened.eof:
            raise BundleRefused(f"the archive is cut short or holds more than {MAX_ARCHIVE} bytes")
        held = json.loads(text)
        return dict(held["files"]), str(held["prelude"])
    except (zlib.error, ValueError, KeyError, TypeError) as fault:
        raise BundleRefused(f"this is not a policy archive: {fault}") from None


def read_folder(folder: Path) -> dict[str, str]:
    """Read the manifest and all modules of a folder, by relative path.

    Raises:
        BundleRefused: there is no such folder or no manifest in it, or a file cannot be read as UTF-8.
    """
    if not folder.is_dir():
        raise BundleRefused(f"there is no folder {folder}")
    if not (folder / MANIFEST_PATH).is_file():
        raise BundleRefused(f"{folder} has no {MANIFEST_PATH}")
    paths = [folder / MANIFEST_PATH, *sorted(folder.rglob(f"*{SUFFIX}"))]
    return {path.relative_to(folder).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise BundleRefused(f"{path} cannot be read: {fault}") from None


def _canonical(files: Mapping[str, str], prelude: str) -> bytes:
    return json.dumps({"files": dict(files), "prelude": prelude}, sort_keys=True, separators=(",", ":")).encode()
