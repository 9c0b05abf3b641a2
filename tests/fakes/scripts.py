"""Tiny policy bundles made in memory, and a straight way to drive one script."""

from collections.abc import Mapping
from typing import Any

from rss_policy.bundle import Bundle
from rss_policy.loader import load_files

CONTEXT: dict[str, Any] = {
    "run_id": "run_00000000000000000000000001",
    "session_id": "ses_00000000000000000000000001",
    "parent_run_id": None,
    "platform": "test",
    "input": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    "messages": [],
    "system_prompt": None,
    "model": "some-model",
    "provider": None,
    "provider_options": {},
    "tool_schemas": [],
    "limits": {},
    "metadata": {},
}


def bundle_of(modules: Mapping[str, str], entry: str = "agent.main", manifest: str = "") -> Bundle:
    head = f'name = "test"\nversion = "1"\nentry = "{entry}"\n{manifest}'
    files = {"policy.toml": head} | {f"{name.replace('.', '/')}.rss.py": text for name, text in modules.items()}
    return load_files(files)


def answers(kind: str) -> Any:
    """Answer what is answered at once, always the same."""
    return {"now": 1_700_000_000_000_000, "random_id": "id_1", "new_messages": []}[kind]
