"""A run as OpenAI's stream of chunks: role, deltas, finish reason, usage where it was asked for, `[DONE]`.

Text that was sent cannot be taken back.  So where the model's attempt is discarded after some of it was shown, the retried
answer goes on silently as long as it repeats what the client has; at the first difference the stream ends with the error
`attempt_discarded`.  So a client never reads a mixture of two answers.
"""

from typing import Any

from eventstore.catalogue import (
    Json,
    ModelCompleted,
    ModelDelta,
    ModelDiscarded,
    RunCancelled,
    RunCompleted,
    RunFailed,
)
from eventstore.log import Envelope
from gateways.http import chat_result
from gateways.http.answers import answer, dump, openai_error
from gateways.http.chat_tracks import Diverged, Tracks
from gateways.http.errors import Answer, ApiError

PATH = "/v1/chat/completions"
_NAMES = {"text": "content", "reasoning": "reasoning_content", "refusal": "refusal"}


class ChatRenderer:
    """Renders one run for one client; `broken` once the stream ended before its run."""

    patient = True

    def __init__(self, run_id: str, created: int, model: str, client_tools: frozenset[str], *, include_usage: bool) -> None:
        """Take what every chunk repeats (`created` in seconds), and what the client can run and wants to know."""
        self._run_id = run_id
        self._head: Json = {
            "id": chat_result.completion_id(run_id),
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._tracks = Tracks(client_tools)
        self.broken = False

    @property
    def over(self) -> bool:
        """Whether the stream broke before its run ended."""
        return self.broken

    def begin(self, cursor: int) -> bytes:
        """Return the chunk that names the role."""
        return self._delta({"role": "assistant", "content": ""})

    def refusal(self, envelope: Envelope) -> Answer | None:
        """Return the HTTP error of a run that ended badly before anything was shown."""
        error = self._error(envelope)
        return None if error is None else answer(error, PATH)

    def render(self, envelope: Envelope) -> bytes:
        """Return the event's chunks."""
        error = self._error(envelope)
        if error is not None:
            return self._failed(error)
        try:
            return self._chunks(envelope)
        except Diverged:
            self.broken = True
            detail = (
                f"The model's answer broke off after part of it was sent, and the next try differs. Ask again, or read the "
                f"run at /v1/runs/{self._run_id}."
            )
            return self._failed(ApiError("attempt_discarded", detail))

    def farewell(self) -> bytes:
        """End with an error: without one, a client would take what it has for the whole answer."""
        return self._failed(
            ApiError("shutting_down", f"The server is shutting down; the run is {self._run_id}.", final=False)
        )

    def _chunks(self, envelope: Envelope) -> bytes:
        match envelope.event:
            case ModelDelta() as delta:
                return self._deltas(self._tracks.delta(delta))
            case ModelDiscarded():
                self._tracks.discard()
            case ModelCompleted(message=message):
                return self._deltas(self._tracks.complete(message))
            case RunCompleted() as completed:
                return self._finish(completed)
        return b""

    def _error(self, envelope: Envelope) -> ApiError | None:
        match envelope.event:
            case RunFailed(error=problem):
                return chat_result.failure(problem, self._run_id)
            case RunCancelled(reason=reason):
                return chat_result.cancelled(reason, self._run_id)
        return None

    def _finish(self, completed: RunCompleted) -> bytes:
        rest = b"" if self._tracks.shown_any else self._deltas(self._tracks.complete(completed.output))
        reason = chat_result.finish_reason(completed.finish_reason, calls=self._tracks.shown_calls)
        last = self._chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}])
        usage = b""
        if self._include_usage:
            usage = _frame({**self._head, "choices": [], "usage": chat_result.usage_object(completed.usage)})
        return rest + last + usage + b"data: [DONE]\n\n"

    def _deltas(self, pieces: list[tuple[str, Any]]) -> bytes:
        return b"".join(self._delta({_NAMES.get(name, name): value}) for name, value in pieces)

    def _delta(self, delta: Json) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def _chunk(self, choices: list[Json]) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        return _frame({**self._head, "choices": choices, **usage})

    def _failed(self, error: ApiError) -> bytes:
        return _frame(openai_error(error))


def _frame(value: Json) -> bytes:
    return b"data: " + dump(value) + b"\n\n"
