"""Keeps policies by name: a faulty new one never replaces a working one.  Knows the bundles, not where they are used."""

import threading
from pathlib import Path
from typing import Protocol

from rss_policy.bundle import Bundle
from rss_policy.loader import load_archive, load_bundle


class Checker(Protocol):
    """Checks a bundle's types; the engine does."""

    def check_types(self, bundle: Bundle) -> None:
        """Raise TypesRefused or BundleRefused if the bundle is at fault."""


def check(folder: Path, checker: Checker) -> Bundle:
    """Load a policy folder and check its types.

    Raises:
        BundleRefused: it breaks a rule of the dialect, or does not load.
        TypesRefused: it does not type-check; the message lists `module:line:column` for each finding.
        EngineFailed: no worker came free, or it died.
    """
    bundle = load_bundle(folder)
    checker.check_types(bundle)
    return bundle


class Shelf:
    """Policies that passed their check, by name and by digest; from any thread."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._lock = threading.Lock()
        self._named: dict[str, Bundle] = {}
        self._known: dict[str, Bundle] = {}

    def put(self, name: str, folder: Path) -> Bundle:
        """Check a folder and keep it under this name; if it is refused, the one before stays.

        Raises:
            BundleRefused, TypesRefused, EngineFailed: as `check`; nothing has changed.
        """
        bundle = check(folder, self._checker)
        with self._lock:
            self._named[name] = self._known[bundle.digest] = bundle
        return bundle

    def find(self, name: str) -> Bundle | None:
        """Return the policy that works under this name, or None."""
        with self._lock:
            return self._named.get(name)

    def restore(self, archive: bytes) -> Bundle:
        """Return the bundle of an archive, as an old run needs it; it was checked when it was put.

        Raises:
            BundleRefused: these bytes are no archive of a bundle.
        """
        bundle = load_archive(archive)
        with self._lock:
            return self._known.setdefault(bundle.digest, bundle)

    def known(self, digest: str) -> Bundle | None:
        """Return a bundle that was put or restored, also one that was replaced since, or None."""
        with self._lock:
            return self._known.get(digest)
