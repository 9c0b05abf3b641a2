"""Reads the tables of the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows, heads and rules left out."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("|") and not line.startswith("|--") and not following.startswith("|--"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def first_cells(name: str) -> list[str]:
    """Return the first cell of each row of a page, without the marks of code."""
    return [row[0].strip("`*") for row in rows((DOCS / name).read_text("utf-8"))]
