"""The token file: hashed, private, atomic, seen by a running server."""

import stat
import threading
from pathlib import Path

import msgspec
import pytest

from gateways.errors import ConfigInvalid, TokenNameTaken
from gateways.http.tokens import PREFIX, TokenFile


def test_the_secret_is_long_random_and_nowhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "tokens.json"
    secret, record = TokenFile(path).create("laptop", ("run", "read"), 5)
    assert secret.startswith(PREFIX)
    assert len(secret) >= len(PREFIX) + 43
    assert secret.removeprefix(PREFIX) not in path.read_text()
    assert (record.name, record.principal, record.scopes, record.created_at) == ("laptop", "local", ("read", "run"), 5)


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    TokenFile(path).create("a", ("read",), 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_acts_as_its_principal_with_its_scopes(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, record = tokens.create("a", ("admin",), 0, "ann")
    principal = tokens.authenticate(secret)
    assert principal is not None
    assert (principal.name, principal.scopes, principal.token_id) == ("ann", frozenset({"admin"}), record.token_id)
    assert tokens.authenticate(secret + "x") is None
    assert tokens.authenticate("\ud800") is None


def test_a_change_by_another_process_is_seen_at_once(tmp_path: Path) -> None:
    server, command_line = TokenFile(tmp_path / "tokens.json"), TokenFile(tmp_path / "tokens.json")
    assert server.authenticate("dbx_x") is None
    secret, record = command_line.create("a", ("read",), 0)
    assert server.authenticate(secret) is not None
    assert command_line.revoke(record.token_id)
    assert server.authenticate(secret) is None
    assert command_line.revoke(record.token_id) is None


def test_of_several_tokens_of_a_name_none_is_revoked_but_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    _, first = TokenFile(path).create("a", ("read",), 0)
    _, second = TokenFile(path).create("b", ("read",), 0)
    path.write_text(path.read_text().replace('"b"', '"a"'))  # as an earlier version let them be made
    with pytest.raises(TokenNameTaken, match=rf"2 tokens are called 'a'.*{first.token_id}, {second.token_id}"):
        TokenFile(path).revoke("a")
    assert TokenFile(path).revoke(second.token_id) == msgspec.structs.replace(second, name="a")
    assert TokenFile(path).revoke("a") == first


def test_tokens_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    def make(number: int) -> None:
        TokenFile(tmp_path / "tokens.json").create(str(number), ("read",), 0)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.name for each in TokenFile(tmp_path / "tokens.json").list()) == [str(number) for number in range(8)]
    assert {each.name for each in tmp_path.iterdir()} == {"tokens.json", "tokens.lock"}


def test_a_broken_file_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{"tokens": 5}')
    for act in (lambda: TokenFile(path).list(), lambda: TokenFile(path).create("a", ("read",), 0)):
        with pytest.raises(ConfigInvalid, match=r"tokens\.json"):
            act()
    assert path.read_text() == '{"tokens": 5}'


def test_a_token_without_scopes_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="read, run, approve, admin"):
        TokenFile(tmp_path / "tokens.json").create("a", (), 0)
