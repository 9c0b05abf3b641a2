from pathlib import Path

from eventstore.catalogue import TAGS
from eventstore.describe import document

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_is_what_the_catalogue_says() -> None:
    assert PAGE.read_text() == document(), "run: python -m eventstore.describe > docs/events.md"


def test_every_event_has_a_section() -> None:
    text = document()
    assert [tag for tag in TAGS if f"### `{tag}`" not in text] == []
