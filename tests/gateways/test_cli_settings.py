"""`deedbox config`, `token` and `policy`: what needs no server."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateways import choice
from gateways.cli import main
from gateways.cli.serve import lacks_token
from gateways.config_load import load
from gateways.http.tokens import TokenFile
from gateways.paths import token_file


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choice.choose, "__defaults__", (lambda: None,))


def deedbox(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environ)


def test_config_shows_every_value_with_its_source() -> None:
    Path("deedbox.toml").write_text('[server]\nrecovery = "fail"\n', "utf-8")
    lines = deedbox("config", DEEDBOX_SERVER__THREADS="9").stdout.splitlines()
    assert ["server.recovery", "fail", "deedbox.toml"] in [line.split() for line in lines]
    assert ["server.threads", "9", "DEEDBOX_SERVER__THREADS"] in [line.split() for line in lines]
    rows = [json.loads(line) for line in deedbox("config", "--json").stdout.splitlines()]
    assert {"name": "server.data_dir", "value": "./var", "source": "default"} in rows


def test_config_never_shows_a_secret() -> None:
    Path("deedbox.toml").write_text(
        '[providers.custom]\nbase_url = "http://127.0.0.1:9/v1"\nproxy = "http://me:hidden@proxy"\n'
        'headers = {X-Session-Token = "hidden", X-Team = "blue"}\n',
        "utf-8",
    )
    for arguments in (("config",), ("config", "--json")):
        shown = deedbox(*arguments).stdout
        assert "hidden" not in shown
        assert "blue" in shown


def test_config_tells_the_chosen_model_and_why() -> None:
    found = deedbox("config", "--chosen", DEEPSEEK_API_KEY="sk-1", OPENAI_API_KEY="")
    assert found.stdout == "deepseek\tdeepseek-chat\tDEEPSEEK_API_KEY is in the environment\n"
    assert json.loads(deedbox("config", "--chosen", "--json", DEEPSEEK_API_KEY="sk-1").stdout)["provider"] == "deepseek"


@pytest.mark.parametrize("arguments", [("config",), ("config", "--chosen"), ("models",)])
def test_a_provider_without_an_address_is_refused_alike_by_every_command(arguments: tuple[str, ...]) -> None:
    Path("deedbox.toml").write_text('[model]\nprovider = "custom"\n', "utf-8")
    result = deedbox(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence = "deedbox.toml: providers.custom needs base_url, such as http://127.0.0.1:9000/v1\n"
    assert result.stderr == f"deedbox: {sentence}"
    assert f"model: {sentence}" in deedbox("doctor").stdout


def test_a_wrong_setting_is_one_sentence_and_exit_code_2() -> None:
    Path("deedbox.toml").write_text("[server]\nadress = 1\n", "utf-8")
    result = deedbox("config")
    assert result.exit_code == 2
    assert result.stderr == "deedbox: deedbox.toml: there is no setting server.adress; did you mean server.address?\n"
    assert deedbox("config", "--config", "nowhere.toml").exit_code == 2


def test_a_token_is_printed_once_and_works_until_it_is_revoked(tmp_path: Path) -> None:
    made = deedbox("token", "create", "phone", "--scope", "approve", "--scope", "read", "--data-dir", str(tmp_path))
    secret = made.stdout.strip()
    tokens = TokenFile(token_file(tmp_path))
    found = tokens.authenticate(secret)
    assert found is not None
    assert (found.name, sorted(found.scopes)) == ("local", ["approve", "read"])
    listed = deedbox("token", "list", "--json", "--data-dir", str(tmp_path)).stdout
    assert secret not in listed
    assert json.loads(listed)["name"] == "phone"
    revoked = deedbox("token", "revoke", "phone", "--data-dir", str(tmp_path))
    assert revoked.stdout == f"revoked {found.token_id} (phone): read, approve as local\n"
    assert tokens.authenticate(secret) is None


def test_a_name_that_a_token_has_is_refused(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path))
    deedbox("token", "create", "phone", *folder)
    again = deedbox("token", "create", "phone", *folder)
    assert (again.exit_code, again.stdout) == (3, "")
    assert "there is a token 'phone' already" in again.stderr
    deedbox("token", "revoke", "phone", *folder)
    assert deedbox("token", "create", "phone", *folder).exit_code == 0


def test_a_server_that_nobody_could_use_is_told_apart(tmp_path: Path) -> None:
    everywhere = load(
        None, {}, {"server.address": ("--address", "0.0.0.0:1"), "server.data_dir": ("--data-dir", str(tmp_path))}
    )
    near = load(None, {}, {"server.address": ("--address", "localhost:1"), "server.data_dir": ("--data-dir", str(tmp_path))})
    assert [lacks_token(each) for each in (everywhere, near)] == [True, False]
    deedbox("token", "create", "phone", "--data-dir", str(tmp_path))
    assert not lacks_token(everywhere)


def test_a_token_may_read_and_run_unless_told_otherwise(tmp_path: Path) -> None:
    made = deedbox("token", "create", "t", "--principal", "ann", "--json", "--data-dir", str(tmp_path)).stdout
    assert json.loads(made)["scopes"] == ["read", "run"]
    assert json.loads(made)["principal"] == "ann"


def test_revoking_what_is_not_there_says_so(tmp_path: Path) -> None:
    result = deedbox("token", "revoke", "nobody", "--data-dir", str(tmp_path))
    assert (result.exit_code, "there is no token 'nobody'" in result.stderr) == (3, True)
    assert "there are no tokens" in deedbox("token", "list", "--data-dir", str(tmp_path)).stderr


GOOD = "async def run(context: dict) -> dict:\n    return {'output': None, 'finish_reason': 'stop', 'error': None}\n"


def folder_with(source: str) -> Path:
    folder = Path("policy")
    folder.mkdir(exist_ok=True)
    (folder / "policy.toml").write_text('name = "x"\nversion = "1"\nentry = "main"\n', "utf-8")
    (folder / "main.rss.py").write_text(source, "utf-8")
    return folder


def test_a_good_policy_is_told_with_its_digest() -> None:
    folder = folder_with(GOOD)
    found = json.loads(deedbox("policy", "check", str(folder), "--json").stdout)
    assert (found["ok"], found["modules"], len(found["digest"])) == (True, ["main"], 64)
    assert found["digest"][:16] in deedbox("policy", "check", str(folder)).stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("async def run(context):\n    return open('x')\n", "main:2"),
        ("async def run(context: dict) -> dict:\n    return 1 + 'a'\n", "main:2"),
        ("async def run(context:\n", "main:1"),
    ],
)
def test_a_faulty_policy_is_refused_with_module_and_line(source: str, says: str) -> None:
    result = deedbox("policy", "check", str(folder_with(source)))
    assert result.exit_code == 3
    assert says in result.stderr


def test_a_folder_without_a_manifest_is_no_policy() -> None:
    assert "has no policy.toml" in deedbox("policy", "check", ".").stderr


@pytest.mark.parametrize("command", ["check", "transcripts"])
def test_a_folder_that_does_not_exist_is_told_apart_from_one_that_lacks_a_file(command: str) -> None:
    result = deedbox("policy", command, "nope")
    assert (result.exit_code, result.stderr) == (3, "deedbox: there is no folder nope\n")


def test_help_lists_every_command_and_the_version_is_told() -> None:
    shown = deedbox("--help").stdout
    assert all(name in shown for name in ("serve", "chat", "doctor"))
    assert deedbox("--version").stdout.startswith("deedbox, version ")
    assert deedbox("nonsense").exit_code == 2
