"""How large the database is beside what was said: inbound text and raw provider bytes, compressed, each counted once.

A real server answers a session of turns, streamed at a model's pace; what it appended is appended again until there are
enough turns, each with bytes of its own.
"""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Size, main
from benchmarks.fill import Conversation, Filler, opened, recorded
from benchmarks.stage import folder, provider

SESSION: dict[Size, int] = {"tiny": 1, "quick": 5, "full": 10}
TURNS: dict[Size, tuple[int, ...]] = {"tiny": (2,), "quick": (50, 500), "full": (50, 5_000)}
PIECES: dict[Size, int] = {"tiny": 5, "quick": 100, "full": 100}
PACE = 0.02
QUESTION_WORDS = 30
VOCABULARY = 4_000
"""Words as frequent as in a language: the n-th one 1/n as often as the first."""
TARGET = 3.0


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes of a database: its file, and what of it was said."""

    file: int
    inbound: int
    raw: int
    plain_raw: int
    events: int

    @property
    def payload(self) -> int:
        """What is counted as said."""
        return self.inbound + self.raw


def measure(size: Size) -> Sequence[Figure]:
    """Return the ratio of file and payload at each number of turns."""
    chance = random.Random(7)
    answer = _words(chance, PIECES[size])
    questions = [_words(chance, QUESTION_WORDS) for _ in range(SESSION[size])]
    figures: list[Figure] = []
    with folder() as path, provider("--no-checks", "--text", answer, "--pace", str(PACE)) as fake:
        session = recorded(fake, path, SESSION[size], questions.__getitem__)
        for turns in TURNS[size]:
            figures += _weighed(path / f"of-{turns}", session, questions, turns)
    return figures


def _weighed(path: Path, session: Conversation, questions: Sequence[str], turns: int) -> list[Figure]:
    times = -(-turns // session.turns)
    with opened(path) as store:
        Filler(store.log, session).fill(times)
    found = _weight(path / "deedbox.db", sum(map(len, questions)) * times)
    made = times * session.turns
    each = found.payload / made
    return [
        Figure(
            f"database / payload at {made:,} turns",
            found.file / found.payload,
            "times",
            TARGET,
            beside=f"{found.file / made / 1000:.1f} KB a turn; {each / 1000:.1f} KB said, {found.events / made:.0f} events",
        ),
        Figure(f"database / payload uncompressed at {made:,}", found.file / (found.inbound + found.plain_raw), "times"),
    ]


def _weight(database: Path, inbound: int) -> Weight:
    raw = "select coalesce(sum(length(b.data)), 0), coalesce(sum(b.size), 0) from seals s join blobs b on b.id = s.blob"
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        compressed, plain = db.execute(raw).fetchone()
        events = db.execute("select count(*) from events").fetchone()[0]
    return Weight(database.stat().st_size, inbound, compressed, plain, events)


def _words(chance: random.Random, count: int) -> str:
    letters = random.Random(1)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 8))) for _ in range(VOCABULARY)]
    return " ".join(chance.choices(words, weights=[1 / rank for rank in range(1, VOCABULARY + 1)], k=count))


if __name__ == "__main__":
    main(measure)
