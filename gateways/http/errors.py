"""What the API answers when it cannot do what was asked: one table of codes, and the way of every inner error to it."""

from dataclasses import dataclass
from typing import NamedTuple

from actors.errors import Refused
from eventstore.errors import LogError, Unwritten


class Entry(NamedTuple):
    """One row of the table: HTTP status, title, and what the caller can do."""

    status: int
    title: str
    advice: str


TABLE: dict[str, Entry] = {
    # what was sent
    "invalid_json": Entry(400, "The body is not JSON", "Send one JSON object in UTF-8."),
    "invalid_field": Entry(400, "A field has a wrong value", "Correct the field that `param` names."),
    "missing_field": Entry(400, "A field is missing", "Add the field that `param` names."),
    "unknown_field": Entry(400, "A field is unknown", "Remove the field, or correct its name as suggested."),
    "unsupported_field": Entry(
        400, "A field is not supported", "Leave the field out; docs/http.md lists what each one does."
    ),
    "invalid_message": Entry(400, "A message cannot be used", "Correct the message that `param` names."),
    "too_many_messages": Entry(400, "Too many messages", "Send fewer messages, or continue a session by its id."),
    "invalid_parameter": Entry(400, "A query parameter has a wrong value", "Correct the parameter that `param` names."),
    "unknown_parameter": Entry(400, "A query parameter is unknown", "Remove it, or correct its name as suggested."),
    "invalid_cursor": Entry(400, "The cursor is not a number", "Send the `seq` of the last event that you have, or 0."),
    "invalid_idempotency_key": Entry(400, "The Idempotency-Key cannot be used", "Use 1 to 255 visible ASCII characters."),
    "invalid_command": Entry(400, "The command does not fit", "Read `detail`, and correct the request."),
    "bad_request": Entry(400, "The request cannot be read", "Read `detail`, and correct the request."),
    "unknown_profile": Entry(400, "There is no such profile", "Use a profile of the configuration, or leave it out."),
    "unknown_provider": Entry(400, "There is no such provider", "Use a provider of the configuration, or leave it out."),
    # who sent it
    "unauthorized": Entry(401, "A valid token is needed", "Send `Authorization: Bearer TOKEN`; see `deedbox token create`."),
    "missing_scope": Entry(403, "The token may not do this", "Use a token that has the scope which `detail` names."),
    "foreign_origin": Entry(403, "Web pages may not call this server", "Call it from a program, or from its own address."),
    "foreign_host": Entry(403, "The Host header is not this server's", "Use the server's address, or allow the name."),
    # where it went
    "route_not_found": Entry(404, "There is no such route", "`GET /openapi.json` lists the routes."),
    "session_not_found": Entry(404, "There is no such session", "Check the id; sessions of other principals are not shown."),
    "run_not_found": Entry(404, "There is no such run", "Check the id; runs of other principals are not shown."),
    "model_not_found": Entry(404, "There is no such model", "`GET /v1/models` lists the models."),
    "method_not_allowed": Entry(405, "The route does not take this method", "Use a method of the `Allow` header."),
    # what is there already
    "idempotency_conflict": Entry(409, "The Idempotency-Key was used before", "Use a new key for another request."),
    "session_exists": Entry(409, "The session exists", "Use another id, or leave it out."),
    "session_busy": Entry(409, "A run of the session has not ended", "Cancel the run first, or wait for its end."),
    "version_conflict": Entry(409, "Somebody else was first", "Read again, then try again."),
    "session_erased": Entry(410, "The session was erased", "Start a new session."),
    # how much it was
    "body_too_large": Entry(413, "The body is too large", "Send less, or raise `server.max_body_bytes`."),
    "input_too_large": Entry(413, "The input is too large", "Send less, or raise `limits.max_input_bytes`."),
    "context_too_large": Entry(413, "The conversation is too large", "Start a new session, or shorten this one."),
    "unsupported_media_type": Entry(415, "The body is not sent as JSON", "Send `Content-Type: application/json`."),
    "headers_too_large": Entry(431, "The headers are too large", "Send fewer or shorter headers."),
    "rate_limited": Entry(429, "Too many requests", "Wait as long as `Retry-After` says."),
    "too_many_streams": Entry(429, "Too many open streams", "Close streams that are not needed, then try again."),
    "session_queue_full": Entry(429, "Too many messages wait in this session", "Wait for a run of the session to end."),
    # what the server cannot do now
    "internal_error": Entry(500, "Something went wrong in the server", "Report the id in `detail`; the log holds more."),
    "store_error": Entry(500, "The log failed", "Check the disk, and what was recorded, before you repeat the request."),
    "corrupt_event": Entry(500, "A stored event cannot be read", "Run `deedbox doctor`."),
    "not_implemented": Entry(501, "The request uses an unsupported feature", "Send the body plainly or in chunks."),
    "overloaded": Entry(503, "The server has too much to do", "Wait as long as `Retry-After` says."),
    "shutting_down": Entry(503, "The server is shutting down", "Try again when it is back."),
    "streams_full": Entry(503, "The server has too many open streams", "Wait as long as `Retry-After` says."),
    "waiting_full": Entry(503, "Too many requests wait for an answer", "Stream, or wait as long as `Retry-After` says."),
    "unwritten": Entry(503, "Nothing was recorded", "Try again."),
    "storage_busy": Entry(503, "The log is busy", "Wait as long as `Retry-After` says."),
    "storage_failed": Entry(503, "The log failed lately", "Nothing was recorded: wait as long as `Retry-After` says."),
    "storage_unusable": Entry(503, "The log cannot be opened", "Run `deedbox doctor`."),
    "already_served": Entry(503, "Another server holds the data directory", "Stop it, or use another data directory."),
    "database_too_new": Entry(503, "The database is from a newer version", "Install that version of deedbox."),
    "storage_full": Entry(507, "The disk is full or read-only", "Make space; the server goes on by itself."),
    # how a run ended, on the OpenAI route
    "run_cancelled": Entry(409, "The run was cancelled", "Ask again."),
    "attempt_discarded": Entry(502, "The model's answer broke off and changed", "Ask again, or read the run."),
    "completion_timeout": Entry(504, "The answer took too long", "Stream, or read the run by its id."),
    "context_length_exceeded": Entry(400, "The model's context is too small", "Send less, or use another model."),
    "insufficient_quota": Entry(429, "The provider's quota is used up", "Check the provider's plan and billing."),
    "provider_rate_limited": Entry(429, "The provider limits the rate", "Wait, then try again."),
    "provider_overloaded": Entry(503, "The provider is overloaded", "Wait, then try again."),
    "provider_auth": Entry(502, "The provider refused the server's key", "Run `deedbox doctor`."),
    "provider_timeout": Entry(504, "The provider did not answer in time", "Try again."),
    "provider_error": Entry(502, "The provider failed", "Try again; the run's record says more."),
    "provider_refused": Entry(400, "The provider refused the request", "Correct the request as `detail` says."),
    "run_failed": Entry(500, "The run failed", "Read the run by its id: its error says more."),
}

CODES: dict[str, str] = {code: f"{entry.title}. {entry.advice}" for code, entry in TABLE.items()}
"""Each code that the HTTP API may answer, with one sentence that says what to do."""

_ALIASES = {"idempotency_key_taken": "idempotency_conflict"}
_PAUSE = {"overloaded": 2, "shutting_down": 5, "storage_busy": 1, "unwritten": 1, "streams_full": 5, "waiting_full": 5}


class ApiError(Exception):
    """A request that is answered with a problem; `code` is a key of `TABLE`.

    `detail`: one sentence about this case, and what to do.  `param`: the field or parameter at fault.  `retry_after`:
    whole seconds.  `final`: repeating the request as it is cannot help.
    """

    def __init__(
        self, code: str, detail: str, *, param: str | None = None, retry_after: int | None = None, final: bool = True
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.param, self.final = code, detail, param, final
        self.retry_after = _PAUSE.get(code) if retry_after is None else retry_after

    @property
    def entry(self) -> Entry:
        """The code's row of the table."""
        return TABLE[self.code]


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished HTTP answer: what an error becomes, whichever way it leaves the server."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def from_refusal(refused: Refused) -> ApiError:
    """Return what a refusal by the actors is to an HTTP client."""
    param = "model" if refused.code == "model_not_found" else None
    final = refused.retry_after is None
    return ApiError(refused.code, refused.message, param=param, retry_after=refused.retry_after, final=final)


def from_log(error: LogError, *, keyed: bool) -> ApiError:
    """Return what a failure of the log is to an HTTP client; its own words may hold paths, so the table's are used.

    Where it is not known what was recorded, a client must not repeat by itself, unless its request had a key (`keyed`).
    """
    code = _ALIASES.get(error.code, error.code)
    code = code if code in TABLE else "store_error"
    return ApiError(code, TABLE[code].advice, final=not (keyed or isinstance(error, Unwritten)))
