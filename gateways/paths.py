"""What lies where in the data directory."""

from pathlib import Path


def database(data_dir: Path) -> Path:
    """Return the log's database."""
    return data_dir / "deedbox.db"


def token_file(data_dir: Path) -> Path:
    """Return the file of bearer tokens."""
    return data_dir / "tokens.json"
