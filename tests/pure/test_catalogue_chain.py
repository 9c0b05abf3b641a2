"""The chain notices whatever is changed, and accepts what was removed on purpose."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise

import pytest

from eventstore.chain import GENESIS, Fault, Header, Link, canonical, check, digest, following


def chain(*events: tuple[str, bytes]) -> list[Link]:
    links: list[Link] = []
    previous = GENESIS
    for position, (tag, data) in enumerate(events, 1):
        header = Header(position, "run-1", position, position, tag, 1, 1_900_000_000_000_000, "run-1", None, "é")
        salt = bytes([position]) * 16
        data_sha256 = digest(salt, data)
        previous = following(previous, header, data_sha256)
        links.append(Link(header, data, salt, data_sha256, previous))
    return links


THREE = chain(("model.delta", b'{"text":"a"}'), ("model.delta", b'{"text":"b"}'), ("log.erased", b'{"positions":[2]}'))


def erased(link: Link) -> Link:
    return replace(link, data=None, salt=None)


def test_a_chain_that_was_left_alone_holds() -> None:
    assert check(THREE) is None
    assert check([]) is None
    assert check(THREE[1:], THREE[0].hash, 1) is None


def test_a_verifier_needs_nothing_but_the_standard_library() -> None:
    previous = bytes(32)
    for link in THREE:
        h = link.header
        fields = [h.position, h.stream, h.version, h.seq, h.type, h.schema, h.at, h.actor, h.causation, h.correlation]
        data_sha256 = sha256((link.salt or b"") + (link.data or b"")).digest()
        previous = sha256(previous + json.dumps(fields, separators=(",", ":")).encode("ascii") + data_sha256).digest()
        assert previous == link.hash


CHANGES: dict[str, Callable[[Link], Link]] = {
    "data": lambda link: replace(link, data=b'{"text":"c"}'),
    "salt": lambda link: replace(link, salt=bytes(16)),
    "no salt": lambda link: replace(link, salt=None),
    "data hash": lambda link: replace(link, data_sha256=bytes(32)),
    "hash": lambda link: replace(link, hash=bytes(32)),
    "data and its hash": lambda link: replace(link, data=b"{}", data_sha256=digest(link.salt or b"", b"{}")),
    "stream": lambda link: replace(link, header=replace(link.header, stream="run-2")),
    "version": lambda link: replace(link, header=replace(link.header, version=9)),
    "seq": lambda link: replace(link, header=replace(link.header, seq=None)),
    "type": lambda link: replace(link, header=replace(link.header, type="note.taken")),
    "schema": lambda link: replace(link, header=replace(link.header, schema=2)),
    "time": lambda link: replace(link, header=replace(link.header, at=1)),
    "actor": lambda link: replace(link, header=replace(link.header, actor="somebody")),
    "causation": lambda link: replace(link, header=replace(link.header, causation="x")),
    "correlation": lambda link: replace(link, header=replace(link.header, correlation=None)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_whatever_is_changed_is_found_where_it_was_changed(change: str, index: int) -> None:
    links = [*THREE]
    links[index] = CHANGES[change](links[index])
    fault = check(links)
    assert fault is not None
    assert fault.position == index + 1


@pytest.mark.parametrize("index", [0, 1])
def test_an_event_that_is_missing_is_found(index: int) -> None:
    fault = check([*THREE[:index], *THREE[index + 1 :]])
    assert fault == Fault(index + 1, f"the event is missing; the next one is {index + 2}")


def test_events_that_changed_places_are_found() -> None:
    fault = check([THREE[1], THREE[0], THREE[2]])
    assert fault is not None
    assert fault.position == 1


def test_data_may_be_missing_where_a_later_event_says_so() -> None:
    assert check([THREE[0], erased(THREE[1]), THREE[2]]) is None


def test_data_may_not_be_missing_elsewhere() -> None:
    fault = check([erased(THREE[0]), erased(THREE[1]), THREE[2]])
    assert fault == Fault(1, "the data is missing, and no event says that it was removed")


def test_what_says_that_data_was_removed_may_not_be_removed() -> None:
    fault = check([THREE[0], erased(THREE[1]), erased(THREE[2])])
    assert fault == Fault(3, "an event that says what was removed has no data itself")


def test_an_erasure_does_not_excuse_what_is_lost_after_it() -> None:
    links = chain(("log.folded", b'{"positions":[2]}'), ("model.delta", b"{}"))
    fault = check([links[0], erased(links[1])])
    assert fault is not None
    assert fault.position == 2


def test_different_headers_have_different_encodings() -> None:
    headers = [change(THREE[0]).header for change in CHANGES.values()]
    distinct = {header: canonical(header) for header in headers}
    assert len(set(distinct.values())) == len(distinct)
    assert all(one != other for one, other in pairwise(distinct.values()))


def test_equal_texts_have_different_hashes_by_their_salts() -> None:
    assert digest(b"1" * 16, b"yes") != digest(b"2" * 16, b"yes")
