"""What of a model's answer a client has, and what each event adds to it, across attempts that are retried.  Pure."""

from dataclasses import dataclass
from typing import Any

from eventstore.catalogue import Json, ModelDelta
from gateways.http.chat_result import arguments_of, client_calls, text_of

_KINDS = ("reasoning", "text", "refusal")
Piece = tuple[str, Any]


class Diverged(Exception):
    """The retried answer is not what the client has already."""


@dataclass(slots=True)
class _Track:
    """One growing text: what the client has, and what the present attempt has said."""

    shown: str = ""
    now: str = ""

    def add(self, piece: str) -> str:
        """Take in a piece and return what is new for the client."""
        if len(self.now) == len(self.shown):
            self.now = self.shown = self.shown + piece
            return piece
        self.now += piece
        if self.shown.startswith(self.now):
            return ""
        if not self.now.startswith(self.shown):
            raise Diverged
        new, self.shown = self.now[len(self.shown) :], self.now
        return new

    def finish(self, whole: str) -> str:
        """Take in the whole text and return what is new; an attempt that stops short of what was shown diverges."""
        new = self.add(whole[len(self.now) :]) if whole.startswith(self.now) else ""
        if len(self.now) < len(self.shown):
            raise Diverged
        return new


@dataclass(slots=True)
class _Call:
    """One call that the client has, at its place in the client's list."""

    id: str
    name: str
    arguments: _Track


class Tracks:
    """Follows one run; pieces are (`text`, `reasoning`, `refusal` or `tool_calls`, value)."""

    def __init__(self, client_tools: frozenset[str]) -> None:
        """Take the names of the tools whose calls the client sees."""
        self._tools = client_tools
        self._texts = {kind: _Track() for kind in _KINDS}
        self._calls: list[_Call] = []
        self._pending: dict[int, Json] = {}
        self._places: dict[int, int] = {}
        self._earlier_text = self.shown_any = False

    @property
    def shown_calls(self) -> bool:
        """Whether the client got a call to run."""
        return bool(self._calls)

    def delta(self, delta: ModelDelta) -> list[Piece]:
        """Take in a delta.

        Raises:
            Diverged: it is not what an earlier attempt showed.
        """
        pieces = [piece for kind in _KINDS for piece in self._text(kind, self._texts[kind].add(getattr(delta, kind)))]
        return pieces + [piece for call in delta.tool_calls for piece in self._call(call)]

    def discard(self) -> None:
        """The attempt is void; the client still has what it was shown."""
        for track in (*self._texts.values(), *(call.arguments for call in self._calls)):
            track.now = ""
        self._pending.clear()
        self._places.clear()

    def complete(self, message: Json) -> list[Piece]:
        """The turn has its answer: return what of it the deltas did not bring.

        Raises:
            Diverged: it is not what an earlier attempt showed.
        """
        pieces = [piece for kind in _KINDS for piece in self._text(kind, self._texts[kind].finish(text_of(message, kind)))]
        calls = client_calls(message, self._tools)
        if len(calls) < len(self._calls):
            raise Diverged
        for place, call in enumerate(calls):
            pieces += self._whole(place, call)
        self._earlier_text = self._earlier_text or bool(self._texts["text"].shown)
        self._texts = {kind: _Track() for kind in _KINDS}
        self._pending.clear()
        self._places.clear()
        return pieces

    def _text(self, kind: str, new: str) -> list[Piece]:
        if not new:
            return []
        first = self._texts[kind].shown == new
        self.shown_any = True
        # The texts of two turns are two paragraphs.
        return [(kind, "\n\n" + new if kind == "text" and first and self._earlier_text else new)]

    def _call(self, piece: Json) -> list[Piece]:
        """Take in a piece of a call: it is held until the call's name tells whose it is."""
        index = piece["index"]
        held = self._pending.setdefault(index, {"id": None, "name": None, "arguments": ""})
        held["id"], held["name"] = held["id"] or piece.get("id"), held["name"] or piece.get("name")
        held["arguments"] += piece.get("arguments") or ""
        if not held["name"] or not held["id"] or held["name"] not in self._tools:
            return []
        place = self._places.setdefault(index, len(self._places))
        arguments, held["arguments"] = held["arguments"], ""
        return self._show(place, held["id"], held["name"], arguments)

    def _show(self, place: int, call_id: str, name: str, arguments: str) -> list[Piece]:
        self.shown_any = True
        if place < len(self._calls):
            call = self._calls[place]
            if (call.id, call.name) != (call_id, name):
                raise Diverged
            new = call.arguments.add(arguments)
            return [("tool_calls", [{"index": place, "function": {"arguments": new}}])] if new else []
        self._calls.append(_Call(call_id, name, _Track(arguments, arguments)))
        function = {"name": name, "arguments": arguments}
        return [("tool_calls", [{"index": place, "id": call_id, "type": "function", "function": function}])]

    def _whole(self, place: int, call: Json) -> list[Piece]:
        whole = arguments_of(call)
        if place >= len(self._calls):
            return self._show(place, call["id"], call["name"], whole)
        shown = self._calls[place]
        if (shown.id, shown.name) != (call["id"], call["name"]):
            raise Diverged
        track = shown.arguments
        if track.now and track.now == track.shown and not whole.startswith(track.now):
            return []  # the same value, written in another way: what came as pieces is complete
        new = track.finish(whole)
        return [("tool_calls", [{"index": place, "function": {"arguments": new}}])] if new else []
