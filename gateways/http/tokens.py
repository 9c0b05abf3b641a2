"""Bearer tokens in a file of the data directory: only their hashes, readable by the owner alone, replaced atomically."""

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gateways.errors import ConfigInvalid, TokenNameTaken
from gateways.http.ports import SCOPES, Principal, Scope

PREFIX = "dbx_"


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token without its secret; `created_at` is UTC in microseconds, `sha256` the secret's hash in hex."""

    token_id: str
    name: str
    principal: str
    scopes: tuple[Scope, ...]
    created_at: int
    sha256: str


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int = 1
    tokens: tuple[TokenRecord, ...] = ()


class TokenFile:
    """The tokens of one server; safe from any thread and, by a lock file, beside a command line that changes them.

    A running server sees a change at the next request: it looks at the file's identity, size and time of change.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; it need not exist."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: tuple[TokenRecord, ...] = ()

    def create(
        self, name: str, scopes: tuple[Scope, ...], now: int, principal: str | None = None
    ) -> tuple[str, TokenRecord]:
        """Make a token and return (secret, record); the secret is shown once and stored nowhere.

        Args:
            name: what a person calls the token.
            scopes: what it may do, at least one of `read run approve admin`.
            now: UTC in microseconds.
            principal: the owner that it acts as; `local`, who needs no token on loopback, unless told otherwise.

        Raises:
            ConfigInvalid: no scope, an unknown scope, or the file cannot be read or written.
            TokenNameTaken: there is a token of this name.
        """
        if not scopes or any(scope not in SCOPES for scope in scopes):
            raise ConfigInvalid(f"a token needs at least one of the scopes {', '.join(SCOPES)}")
        secret = PREFIX + secrets.token_urlsafe(32)
        record = TokenRecord(
            token_id="tok_" + secrets.token_hex(6),
            name=name,
            principal=principal or "local",
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            created_at=now,
            sha256=_hash(secret),
        )
        self._change(lambda records: (*_without_name(records, name), record))
        return secret, record

    def list(self) -> tuple[TokenRecord, ...]:
        """Return all tokens, oldest first.

        Raises:
            ConfigInvalid: the file cannot be read.
        """
        return self._read().tokens

    def revoke(self, token: str) -> TokenRecord | None:
        """Remove a token by its id, else by its name; return its record, or None if there was none.

        Raises:
            ConfigInvalid: the file cannot be read or written.
            TokenNameTaken: several tokens have this name, and none was revoked.
        """
        removed: list[TokenRecord] = []

        def without(records: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
            removed[:] = _named(records, token)
            return tuple(each for each in records if each not in removed)

        self._change(without)
        return removed[0] if removed else None

    def authenticate(self, secret: str) -> Principal | None:
        """Return whose token this is; every record is compared, in constant time, whatever matches.

        Raises:
            ConfigInvalid: the file cannot be read; nobody gets in by a broken file.
        """
        wanted = _hash(secret)
        found: TokenRecord | None = None
        for record in self._current():
            if hmac.compare_digest(record.sha256, wanted):
                found = record
        return None if found is None else Principal(found.principal, frozenset(found.scopes), found.token_id)

    def _current(self) -> tuple[TokenRecord, ...]:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._known, self._seen = self._read().tokens, stamp
            return self._known

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> _Contents:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Contents)
        except FileNotFoundError:
            return _Contents()
        except (OSError, msgspec.DecodeError) as exc:
            raise ConfigInvalid(f"the token file {self._path} cannot be read ({exc}): repair or remove it") from exc

    def _change(self, change: Callable[[tuple[TokenRecord, ...]], tuple[TokenRecord, ...]]) -> tuple[TokenRecord, ...]:
        try:
            with self._exclusive():
                records = change(self._read().tokens)
                self._write(msgspec.json.format(msgspec.json.encode(_Contents(tokens=records))))
        except OSError as exc:
            raise ConfigInvalid(f"the token file {self._path} cannot be written: {exc.strerror}") from exc
        return records

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path.with_suffix(".lock")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, data: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _without_name(records: tuple[TokenRecord, ...], name: str) -> tuple[TokenRecord, ...]:
    taken = next((each for each in records if each.name == name), None)
    if taken is not None:
        raise TokenNameTaken(
            f"there is a token {name!r} already ({taken.token_id}): choose another name, or revoke it first"
        )
    return records


def _named(records: tuple[TokenRecord, ...], token: str) -> list[TokenRecord]:
    by_id = [each for each in records if each.token_id == token]
    found = by_id or [each for each in records if each.name == token]
    if len(found) > 1:
        ids = ", ".join(each.token_id for each in found)
        raise TokenNameTaken(f"{len(found)} tokens are called {token!r}: revoke one by its id, {ids}")
    return found


def _hash(secret: str) -> str:
    """Hash a secret; it has 256 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
