"""Large values leave the payload and come back; previews, references, escapes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Append, Redactor, StreamPart, Unwritten
from eventstore.catalogue import NoteTaken
from eventstore.intake import Intake
from eventstore.values import DEEPEST, LIMIT, PREVIEW, externalise, inflate, preview, references

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["x" * LIMIT, "é" * LIMIT, "line\n" * 5000])
)
KEYS = st.text() | st.sampled_from(["$blob", "$$blob", "size", "type"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12)


def name_of(content: bytes) -> str:
    return f"{hash(content) & 0xFFFFFFFF:x}-{len(content)}"


def nothing(name: str) -> bytes:
    raise KeyError(name)


def stored(value: dict[str, Any]) -> tuple[bytes, dict[str, bytes], list[str]]:
    data, big = externalise(json.dumps(value, ensure_ascii=False).encode(), name_of)
    return data, {one.id: one.content for one in big}, [one.id for one in big]


@given(st.dictionaries(KEYS, VALUES))
def test_what_goes_in_comes_back(value: dict[str, Any]) -> None:
    data, contents, names = stored(value)
    assert json.loads(inflate(data, contents.__getitem__)) == value
    assert sorted(references(data)) == sorted(names)
    assert all(len(json.dumps(field, ensure_ascii=False).encode()) <= LIMIT + 2000 for field in json.loads(data).values())


def test_small_payloads_are_not_touched() -> None:
    payload = b'{"text": "small",   "n": 1}'
    assert externalise(payload, name_of) == (payload, ())
    assert inflate(payload, nothing) is payload


def test_a_large_text_deep_inside_is_kept_once_and_leaves_a_preview() -> None:
    text = "first line\n" + "x" * LIMIT
    data, contents, names = stored({"error": None, "message": {"content": [{"type": "text", "text": text}] * 2}})
    first, second = json.loads(data)["message"]["content"]
    assert first == second == {"type": "text", "text": {"$blob": names[0], "size": len(text), "preview": "first line"}}
    assert (len(names), list(contents.values())) == (2, [b"s" + text.encode()])


def test_a_field_of_many_small_things_is_kept_whole() -> None:
    many = [{"role": "user", "content": f"message {number}"} for number in range(1000)]
    data, contents, names = stored({"messages": many, "seq": 1})
    assert json.loads(data)["seq"] == 1
    assert (json.loads(data)["messages"]["$blob"], json.loads(contents[names[0]][1:])) == (names[0], many)
    assert len(data) < 1024


def test_a_client_cannot_make_a_reference() -> None:
    forged = {"metadata": {"$blob": "0-0", "size": 1}, "other": {"$$blob": {"$blob": 1}}}
    data, _, names = stored(forged)
    assert (names, references(data)) == ([], ())
    assert json.loads(inflate(data, nothing)) == forged


@given(st.text(min_size=1))
def test_a_preview_is_a_beginning_that_is_cut_between_characters(text: str) -> None:
    long = text * (1 + 2 * PREVIEW // len(text))
    head = preview(long)
    assert long.startswith(head)
    assert len(head.encode()) <= PREVIEW


def test_a_preview_ends_with_a_line_where_it_can() -> None:
    assert preview("one\ntwo\n" + "x" * 1000) == "one\ntwo"
    assert preview("😀" * 1000) == "😀" * (PREVIEW // 4)
    assert preview("short\ntext") == "short\ntext"


@pytest.mark.parametrize(("levels", "fits"), [(200, True), (DEEPEST, False), (5_000, False)])
@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: ["[", value, '"{']], ids=["object", "array"])
def test_what_nests_so_deeply_that_readers_could_not_follow_is_refused(levels: int, fits: bool, wrap: Any) -> None:
    value: Any = "]" * 20_000
    for _ in range(levels):
        value = wrap(value)
    request = Append((StreamPart("run-1", 0, (NoteTaken(kind="a", data={"a": value}),)),), 0, "a")
    if fits:
        Intake(Redactor()).prepare(request)
    else:
        with pytest.raises(Unwritten, match=r"deep|recursion"):
            Intake(Redactor()).prepare(request)
