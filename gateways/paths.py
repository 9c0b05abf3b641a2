"""What the gateways keep in the data directory beside the log."""

from pathlib import Path


def token_file(data_dir: Path) -> Path:
    """Return the file of bearer tokens."""
    return data_dir / "tokens.json"
