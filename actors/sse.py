"""Server-sent events out of raw bytes: pure framing, the same live and in a replay, whatever the reads were.

The grammar is the WHATWG HTML standard, section 9.2.6: lines end with LF, CRLF or CR and with nothing else, a blank line
ends an event, an event without data is none, what is unfinished at the end is dropped.  One rule is wider: a byte order
mark is skipped before any event, not only before the first, so that a stream may be cut between events and each piece
read by itself.
"""

from typing import Final

EVENT_LIMIT: Final = 8 << 20

_LF, _CR, _COLON = 0x0A, 0x0D, 0x3A
_BOM = b"\xef\xbb\xbf"


class LineTooLong(ValueError):
    """An event (all its lines together) is larger than the limit."""

    code = "line_too_long"


class Parser:
    """Frames one stream; feed it what the reads gave, in order.  Not thread-safe; of no use after it raised."""

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        """Start at the beginning of a stream; `limit` is the most bytes that one event may have."""
        self._limit = limit
        self._rest = bytearray()
        self._open_from = self._line_start = self._searched = 0
        self._after_cr = False
        self._data: list[str] = []
        self._event = ""
        self._whole = 0

    @property
    def whole(self) -> int:
        """Bytes from the stream's start to the last place where it may be cut: no event is open there."""
        return self._whole

    @property
    def open_bytes(self) -> int:
        """Bytes that were fed after `whole`: an event that has not ended yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[dict[str, str]]:
        """Take the next bytes and return the events that they end: `{"event", "data"}`, "message" where it had no name.

        Raises:
            LineTooLong: an event passed the limit; `whole` tells where the good part ends.
        """
        self._rest += data
        events: list[dict[str, str]] = []
        try:
            while (end := self._line_end()) >= 0:
                if (event := self._take_line(end)) is not None:
                    events.append(event)
        finally:
            self._forget_whole()
        self._check(len(self._rest))
        return events

    def _line_end(self) -> int:
        """Return where the next line's end character stands, or -1; the LF of a CRLF may come with a later read."""
        rest = self._rest
        if self._after_cr and self._line_start < len(rest):
            self._after_cr = False
            self._skip_lf()
        start = max(self._searched, self._line_start)
        lf = rest.find(_LF, start)
        cr = rest.find(_CR, start, lf if lf >= 0 else len(rest))
        end = cr if cr >= 0 else lf
        self._searched = len(rest) if end < 0 else end + 1
        return end

    def _skip_lf(self) -> None:
        if self._rest[self._line_start] == _LF:
            self._line_start += 1
            if not self._is_open():
                self._open_from = self._line_start

    def _take_line(self, end: int) -> dict[str, str] | None:
        self._check(end + 1 - self._open_from)
        line = bytes(self._rest[self._line_start : end])
        self._after_cr = self._rest[end] == _CR
        self._line_start = end + 1
        event = self._interpret(line)
        if not self._is_open():
            self._open_from = self._line_start
        return event

    def _interpret(self, line: bytes) -> dict[str, str] | None:
        if not self._is_open():
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if line[0] == _COLON:
            return None
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._event = text
        return None

    def _dispatch(self) -> dict[str, str] | None:
        data, event = self._data, self._event or "message"
        self._data, self._event = [], ""
        return {"event": event, "data": "\n".join(data)} if data else None

    def _is_open(self) -> bool:
        return bool(self._data) or bool(self._event)

    def _forget_whole(self) -> None:
        cut = self._open_from
        del self._rest[:cut]
        self._whole += cut
        self._line_start -= cut
        self._searched = max(self._searched - cut, 0)
        self._open_from = 0

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise LineTooLong(f"an event of the stream is larger than {self._limit} bytes")


def events_of(raw: bytes) -> list[dict[str, str]]:
    """Return the events of a stream, or of a piece of one that was cut at `Parser.whole`: `[{"event", "data"}, ...]`."""
    return Parser(limit=len(raw) + 1).feed(raw)
