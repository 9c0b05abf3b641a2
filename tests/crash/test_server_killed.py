"""The real server, killed with SIGKILL before and after every commit of a conversation, loses and doubles nothing."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actors.ports import Profile
from actors.replaying import Report, replay_run
from eventstore.catalogue import Canonical, Event, RunCompleted, ScriptAdvanced, ToolCompleted, ToolRequested
from eventstore.redaction import Redactor
from eventstore.sqlite.store import Store, open_store
from rss_policy.bundle import Bundle
from rss_policy.engine import MontyEngine
from rss_policy.loader import load_archive
from tests.contract.tables import dump
from tests.crash.killed_server import Conversation, Zygote, conversation

AT_ONCE, SHARES = 4, 4
TRIES = 6


class StoredBundles:
    """Policies as the log keeps them, and nothing else: a replay needs no configuration."""

    def find(self, name: str) -> Profile | None:
        del name
        return None

    def names(self) -> list[str]:
        return []

    def provider_names(self) -> list[str]:
        return []

    def closed_models(self, provider: str) -> list[str] | None:
        return None

    def provider(self, name: str) -> Mapping[str, Any] | None:
        del name
        return None

    def bundle(self, digest: str, stored: Any) -> Bundle:
        data = stored(f"policy:{digest}")
        assert data is not None, "the policy is not in the log"
        return load_archive(data)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    made = MontyEngine(4)
    yield made
    made.close()


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> int:
    """How many commits the conversation surely has; two that come together are sometimes one transaction."""
    return min(whole(tmp_path_factory.mktemp("whole") / str(number), zygote) for number in range(2))


def whole(folder: Path, zygote: Zygote) -> int:
    """Have the conversation while nobody is killed, and count its commits."""
    with conversation(folder, zygote, 0, "never") as talk:
        run_id, steered = talk.hold()
        assert not talk.died_as_told
    store = open_store(folder / "var", Redactor(()), holder="the test")
    try:
        assert [row.run_id for row in store.queries.runs(None, limit=10)] == [run_id]
        assert steered == run_id, "the second message was taken in by the run, and needs none of its own"
    finally:
        store.close()
    return int((folder / "count").read_text())


def talk_and_die(folder: Path, zygote: Zygote, die_at: int, moment: str) -> Conversation:
    """Have the conversation; how many commits there are depends a little on timing, so a miss is tried again."""
    for attempt in range(TRIES):
        with conversation(folder / f"{moment}-{die_at}-{attempt}", zygote, die_at, moment) as talk:
            talk.hold()
        if talk.died_as_told:
            return talk
    raise AssertionError(f"the server was never killed {moment} commit {die_at}")


def check_what_the_client_saw(talk: Conversation) -> None:
    assert talk.seen.seqs == list(range(1, len(talk.seen.seqs) + 1)), talk.seen.seqs
    assert [event["type"] for event in talk.seen.events if event["type"].startswith("run.")] == [
        "run.started",
        "run.completed",
    ]
    shown = ""
    for event in talk.seen.events:
        match event["type"]:
            case "model.started" | "model.discarded":
                shown = ""
            case "model.delta":
                shown += event.get("text", "")
            case "model.completed":
                told = [part["text"] for part in event["message"]["content"] if part["type"] == "text"]
                assert shown == "".join(told), "what was streamed is what was said"


def check_the_log(store: Store, engine: MontyEngine) -> None:
    assert store.log.check() is None
    before = dump(store.log)
    store.log.rebuild()
    assert dump(store.log) == before, "the projections are what the log says"
    rows = store.queries.runs(None, limit=10)
    assert {row.status for row in rows} == {"completed"}
    texts = [
        message.message["content"][0]["text"]
        for message in store.queries.messages(rows[0].session_id, limit=100)
        if message.role == "user"
    ]
    assert sorted(texts) == ["And be brief.", "What is there?"], "each message once, whatever was repeated"
    for row in rows:
        check_the_run([envelope.event for envelope in store.log.read(f"run-{row.run_id}")])
        report = replay_run(store.log, store.queries, engine, StoredBundles(), row.run_id)
        assert report == Report(row.run_id, report.steps, report.acts, equal=True)


def check_the_run(events: list[Event]) -> None:
    canonical = [event for event in events if isinstance(event, Canonical)]
    assert [event.seq for event in canonical] == list(range(1, len(canonical) + 1))
    assert isinstance(canonical[-1], RunCompleted)
    assert sum(isinstance(event, RunCompleted) for event in events) == 1
    calls = [event.call_id for event in events if isinstance(event, ToolRequested)]
    results = [event.call_id for event in events if isinstance(event, ToolCompleted)]
    assert calls == results, "every call has exactly one result"
    steps = [event.step for event in events if isinstance(event, ScriptAdvanced)]
    assert steps == sorted(set(steps)), "no step was taken twice"


def test_the_conversation_has_enough_commits_to_be_worth_killing(commits: int) -> None:
    assert commits > 20


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_killed_at_any_commit_goes_on_as_if_nothing_had_been(
    tmp_path: Path, zygote: Zygote, engine: MontyEngine, commits: int, moment: str, share: int
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        mine = range(1 + share, commits + 1, SHARES)
        talks = list(clients.map(lambda n: talk_and_die(tmp_path, zygote, n, moment), mine))

    for talk in talks:
        check_what_the_client_saw(talk)
        store = open_store(talk.folder / "var", Redactor(()), holder="the test")
        try:
            check_the_log(store, engine)
        finally:
            store.close()
