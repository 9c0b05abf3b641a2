"""`docs/configuration.md` says what the code does: every setting, its default, and nothing that is not there."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateways.config_load import load
from gateways.config_schema import settings
from tests.docs.tables import DOCS, rows

TEXT = (DOCS / "configuration.md").read_text("utf-8")
TABLE = {row[0].strip("`"): row[1:] for row in rows(TEXT)}
SETTINGS = [pytest.param(name, default, id=name) for name, _, default in settings()]


def shown(default: Any) -> str:
    if default in (None, (), {}):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{', '.join(default) if isinstance(default, tuple) else default}`"


@pytest.mark.parametrize(("name", "default"), SETTINGS)
def test_a_setting_is_documented_with_its_default(name: str, default: Any) -> None:
    assert name in TABLE, f"add a row for {name} to docs/configuration.md"
    said = TABLE[name][0]
    if not (name.startswith(("providers.", "profiles.")) and default is None):
        assert said == shown(default)


def test_nothing_is_documented_that_is_not_a_setting() -> None:
    known = {name for name, _, _ in settings()}
    documented = {name for name in TABLE if "." in name}
    assert documented == known


def test_the_example_in_the_page_is_a_good_configuration(tmp_path: Path) -> None:
    example = TEXT.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(example)["model"]["provider"] == "custom"
    file = tmp_path / "deedbox.toml"
    file.write_text(example, "utf-8")
    assert load(file, {}, None).config.providers["custom"].base_url == "http://127.0.0.1:9000/v1"
