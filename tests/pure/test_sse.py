"""Framing of server-sent events: one stream gives one list of events, whatever the reads were."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.sse import LineTooLong, Parser, events_of

LINES = st.sampled_from([
    b"data: a", b"data:b", b"data", b"data:  two", b"event: ping", b"event:", b"id: 7", b"retry: 10", b": comment", b"",
    b"", b"\xef\xbb\xbfdata: bom", b"data: \xe2\x80\xa8 \xc3\xa9 \xf0\x9f\x98\x80", b"data: \xff\xfe",
    b"nonsense", b" data: x",
])  # fmt: skip
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=24).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(raw) + 1) for cut in cuts}), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges)]


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(raw: bytes, cuts: list[int]) -> None:
    parser = Parser()
    assert [event for piece in pieces(raw, cuts) for event in parser.feed(piece)] == events_of(raw)


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12))
def test_batches_cut_at_whole_events_read_like_the_whole(raw: bytes, cuts: list[int]) -> None:
    parser, taken, batches = Parser(), 0, []
    for piece in pieces(raw, cuts):
        parser.feed(piece)
        batches.append(raw[taken : parser.whole])
        taken = parser.whole
    assert taken + parser.open_bytes == len(raw)
    assert [event for batch in batches for event in events_of(batch)] == events_of(raw)


@given(STREAMS)
def test_byte_by_byte_and_all_at_once_agree_on_where_to_cut(raw: bytes) -> None:
    slow, fast = Parser(), Parser()
    for i in range(len(raw)):
        slow.feed(raw[i : i + 1])
    fast.feed(raw)
    assert fast.whole - slow.whole in (0, 1)  # the LF of a last CRLF stays with the next piece
    assert events_of(raw[: slow.whole]) == events_of(raw)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_line_end_ends_a_line_and_a_blank_line_ends_the_event(end: str) -> None:
    raw = end.join(["event: ping", "data: one", "data: two", "", "data:three", "", ""]).encode()
    assert events_of(raw) == [{"event": "ping", "data": "one\ntwo"}, {"event": "message", "data": "three"}]


def test_unicode_line_separators_end_no_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf"
    assert events_of(f"data: {text}\n\n".encode()) == [{"event": "message", "data": text}]


def test_comments_ids_and_unknown_fields_are_no_events() -> None:
    assert events_of(b": hi\n\nid: 5\nretry: 3\nother: x\n\nevent: empty\n\ndata: x\n\n") == [
        {"event": "message", "data": "x"}
    ]


def test_what_is_unfinished_at_the_end_is_dropped() -> None:
    parser = Parser()
    assert parser.feed(b"data: whole\n\ndata: half\n") == [{"event": "message", "data": "whole"}]
    assert (parser.whole, parser.open_bytes) == (13, 11)


def test_a_byte_order_mark_before_an_event_is_skipped() -> None:
    assert events_of(b"\xef\xbb\xbfdata: x\n\n") == [{"event": "message", "data": "x"}]


def test_a_character_that_is_split_over_reads_comes_out_whole() -> None:
    parser, raw = Parser(), "data: 😀\r\n\r\n".encode()
    assert [event["data"] for i in range(len(raw)) for event in parser.feed(raw[i : i + 1])] == ["😀"]


def test_broken_utf8_becomes_the_replacement_character() -> None:
    assert events_of(b"data: a\xffb\n\n") == [{"event": "message", "data": "a\ufffdb"}]


def test_an_endless_line_is_an_error_and_what_came_before_stays() -> None:
    parser = Parser(limit=64)
    with pytest.raises(LineTooLong):
        parser.feed(b"data: ok\n\ndata: " + b"x" * 100)
    assert parser.whole == 10


def test_an_event_of_endless_lines_is_an_error_too() -> None:
    parser = Parser(limit=64)
    with pytest.raises(LineTooLong):
        list(map(parser.feed, [b"data: x\n"] * 100))


def test_keep_alive_comments_may_go_on_for_ever() -> None:
    parser = Parser(limit=64)
    for _ in range(100):
        assert parser.feed(b": keep-alive\n") == []
    assert parser.open_bytes == 0


def test_the_limit_does_not_depend_on_the_reads() -> None:
    raw = b"data: " + b"x" * 70 + b"\n\n"
    for cuts in ([len(raw)], [10], [63, 64, 65], list(range(len(raw)))):
        with pytest.raises(LineTooLong):
            list(map(Parser(limit=64).feed, pieces(raw, cuts)))
