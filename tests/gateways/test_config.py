"""The configuration: what wins, where a value comes from, and what is said about a wrong one."""

from pathlib import Path

import pytest

from gateways.config import Config
from gateways.config_checks import address
from gateways.config_load import Loaded, load
from gateways.config_schema import settings
from gateways.errors import ConfigInvalid

FIXED = """
[server]
address = "127.0.0.1:8787"
data_dir = "./var"
recovery = "resume"

[model]
provider = "custom"
model = "some-model"

[providers.custom]
adapter = "openai_chat"
base_url = "http://127.0.0.1:9000/v1"
api_key_env = "CUSTOM_API_KEY"

[workspace]
roots = ["."]

[approvals]
mode = "auto"

[telegram]
token_env = "TELEGRAM_BOT_TOKEN"
api_base = "https://api.telegram.org"
allowed_users = []
allowed_chats = []
"""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> Loaded:
    file = Path("deedbox.toml")
    file.write_text(text, "utf-8")
    given = {name.replace("__", "."): ("--flag", value) for name, value in flags.items()}
    return load(None, environ or {}, given)


def refused(text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        loaded(text, environ)
    return str(caught.value)


def test_without_any_source_every_value_is_the_default() -> None:
    found = load(None, {}, None)
    assert found.config == Config()
    assert {entry.source for entry in found.entries()} == {"default"}


def test_the_names_that_the_design_fixes_are_accepted() -> None:
    found = loaded(FIXED)
    assert found.config.providers["custom"].api_key_env == "CUSTOM_API_KEY"
    assert found.config.model.model == "some-model"


def test_the_file_beats_the_default_the_environment_the_file_and_a_flag_the_environment() -> None:
    text = '[server]\naddress = "127.0.0.1:1"\ndata_dir = "from-file"\nrecovery = "fail"\n'
    environ = {"DEEDBOX_SERVER__ADDRESS": "127.0.0.1:2", "DEEDBOX_SERVER__DATA_DIR": "from-variable"}
    found = loaded(text, environ, server__address="127.0.0.1:3")
    assert found.config.server.address == "127.0.0.1:3"
    assert found.config.server.data_dir == "from-variable"
    assert found.config.server.recovery == "fail"
    assert found.source("server.address") == "--flag"
    assert found.source("server.data_dir") == "DEEDBOX_SERVER__DATA_DIR"
    assert found.source("server.recovery") == "deedbox.toml"
    assert found.source("server.threads") == "default"


def test_a_named_file_is_read_instead_of_the_one_in_the_folder(tmp_path: Path) -> None:
    Path("deedbox.toml").write_text("[server]\nthreads = 3\n", "utf-8")
    other = tmp_path / "other.toml"
    other.write_text("[server]\nthreads = 4\n", "utf-8")
    assert load(other, {}, None).config.server.threads == 4


def test_variables_are_read_by_the_type_of_their_setting() -> None:
    environ = {
        "DEEDBOX_SERVER__THREADS": "5",
        "DEEDBOX_SERVER__HEARTBEAT_S": "2.5",
        "DEEDBOX_TELEGRAM__ALLOWED_USERS": "1, 2,3",
        "DEEDBOX_WORKSPACE__ROOTS": '["a", "b"]',
        "DEEDBOX_PROVIDERS__MY_OWN__ALLOW_PRIVATE": "true",
        "DEEDBOX_PROVIDERS__MY_OWN__HEADERS": '{"X-Team": "blue"}',
    }
    found = loaded("", environ).config
    assert found.server.threads == 5
    assert found.server.heartbeat_s == 2.5
    assert found.telegram.allowed_users == (1, 2, 3)
    assert found.workspace.roots == ("a", "b")
    assert found.providers["my_own"].allow_private is True
    assert found.providers["my_own"].headers == {"X-Team": "blue"}


def test_variables_that_are_not_settings_are_left_alone() -> None:
    assert loaded("", {"DEEDBOX_TOKEN": "x", "DEEDBOX_TRANSCRIPTS": "y"}).config == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[server]\nadress = "x"\n', "did you mean server.address?"),
        ('[sever]\naddress = "x"\n', "did you mean server?"),
        ('address = "127.0.0.1:1"\n', "did you mean server.address?"),
        ('[providers.x]\nbase_ulr = "x"\n', "did you mean providers.x.base_url?"),
        ("[server]\nzzz = 1\n", "server knows address, data_dir"),
        ('server = "x"\n', "write [server] above"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_one_that_was_meant(text: str, says: str) -> None:
    message = refused(text)
    assert message.startswith("deedbox.toml: ")
    assert says in message


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("DEEDBOX_SERVER__ADRESS", "did you mean server.address?"),
        ("DEEDBOX_SERVER_ADDRESS", "did you mean DEEDBOX_SERVER__ADDRESS (two underscores)?"),
        ("DEEDBOX_PROVIDERS__CUSTOM", "names a section"),
    ],
)
def test_a_misspelt_variable_is_an_error(variable: str, says: str) -> None:
    message = refused("", {variable: "x"})
    assert message.startswith(variable)
    assert says in message


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ('[server]\nthreads = "many"\n', "server.threads", "must be a whole number, got a text"),
        ("[server]\nthreads = 0\n", "server.threads", "must be a whole number >= 1"),
        ('[server]\nrecovery = "maybe"\n', "server.recovery", "must be one of resume, fail"),
        ('[providers.a]\nallow_private = true\n[providers.b]\nadapter = "soap"\n', "providers.b.adapter", "openai_chat"),
        ('[telegram]\nallowed_users = ["me"]\n', "telegram.allowed_users", "must be a whole number, got a text"),
        ("[profiles.p]\nbusy = 1\n", "profiles.p.busy", "must be one of queue, steer"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_file(text: str, name: str, says: str) -> None:
    message = refused(text)
    assert message.startswith(f"deedbox.toml: {name}: ")
    assert says in message


def test_a_variable_of_the_wrong_type_is_named() -> None:
    assert refused("", {"DEEDBOX_SERVER__THREADS": "many"}).startswith("DEEDBOX_SERVER__THREADS: server.threads: ")
    assert "is not valid JSON" in refused("", {"DEEDBOX_WORKSPACE__ROOTS": '["a"'})


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("api.example.com/v1", "write it with its scheme, such as https://api.example.com/v1"),
        ("", "write it with its scheme"),
        ("ftp://example.com", "write it with its scheme"),
        ("https://[::1/v1", "is no web address"),
        ("https://api.example.com:port/v1", "is no web address"),
        ("http://api.example.com/v1", "unencrypted to another machine: write https://"),
        ("http://8.8.8.8/v1", "write https://"),
        ("https://me:secret@api.example.com", "holds credentials"),
        ("https://api.example.com/v1?key=1", "query or fragment"),
    ],
)
def test_a_base_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    message = refused(f'[providers.p]\nbase_url = "{url}"\n')
    assert message.startswith("deedbox.toml: providers.p.base_url ")
    assert says in message
    assert "secret" not in message


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://localhost", "http://[::1]/v1", "https://x.example"])
def test_a_base_url_that_can_work_is_taken(url: str) -> None:
    assert loaded(f'[providers.p]\nbase_url = "{url}"\n').config.providers["p"].base_url == url


def test_a_machine_of_the_own_network_needs_a_word_and_a_public_one_stays_refused() -> None:
    near = '[providers.p]\nbase_url = "http://10.0.0.7:8000"\n'
    assert "add allow_private = true" in refused(near)
    assert loaded(near + "allow_private = true\n").config.providers["p"].allow_private
    assert "write https://" in refused('[providers.p]\nbase_url = "http://8.8.8.8"\nallow_private = true\n')


def test_a_secret_where_a_variables_name_belongs_is_refused_and_not_repeated() -> None:
    message = refused('[providers.p]\napi_key_env = "sk-abcdef123"\n')
    assert "must name the environment variable" in message
    assert "abcdef" not in message
    assert "would hold a secret" in refused('[providers.p.headers]\nAuthorization = "Bearer x"\n')


@pytest.mark.parametrize("text", ["8787", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":80", ""])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="write host:port"):
        address(text)


def test_addresses_of_both_families_are_read() -> None:
    assert address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert address("[::1]:8787") == ("::1", 8787)


def test_broken_files_are_explained(tmp_path: Path) -> None:
    assert "is not valid TOML" in refused("[server\n")
    with pytest.raises(ConfigInvalid, match="does not exist"):
        load(tmp_path / "nowhere.toml", {}, None)
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load(tmp_path, {}, None)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(ConfigInvalid, match="not UTF-8"):
        load(tmp_path / "latin.toml", {}, None)


def test_entries_show_every_setting_and_only_what_was_given_of_providers() -> None:
    entries = {entry.name: entry for entry in loaded(FIXED).entries()}
    assert entries["providers.custom.base_url"].source == "deedbox.toml"
    assert "providers.custom.prices" not in entries
    fixed = {name for name, _, _ in settings() if "<" not in name}
    assert fixed <= set(entries)
