"""The table of routes: where each one is, who may use it, what it takes and gives.  Routing and documents come from it."""

from dataclasses import dataclass
from typing import Literal

from eventstore.catalogue import Json
from gateways.http.ports import Scope
from gateways.http.schemas import STATUSES

MAX_PAGE = 200


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a request header; `schema` is JSON Schema."""

    name: str
    schema: Json
    description: str
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation.

    `operation`: its name, under which `app.py` finds the code.  `scope`: None needs no token.  `body`, `response`: names
    in `schemas.COMPONENTS`; a response None is text, or nothing if `status` is 204.  `openai`: errors have OpenAI's
    shape, unknown query parameters pass.
    """

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    operation: str
    summary: str
    scope: Scope | None
    status: int = 200
    response: str | None = None
    body: str | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[str, ...] = ()
    streams: bool = False
    openai: bool = False


LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50}, "Rows of one page.")
AFTER_ID = Parameter("after", {"type": "string"}, "The last id of the page before.")
AFTER_NUMBER = Parameter("after", {"type": "integer", "minimum": 0, "default": 0}, "Only what comes after this number.")
KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 255},
    "A repeat with the same key and body gives the same run.",
    "header",
)
SESSION_HEADER = Parameter(
    "X-Session-Id", {"type": "string"}, "The session to continue, made where it is missing.", "header"
)
LAST_EVENT = Parameter("Last-Event-ID", {"type": "string"}, "Goes before `after`; browsers send it by themselves.", "header")

_START = (
    "overloaded",
    "storage_failed",
    "session_queue_full",
    "unknown_profile",
    "unknown_provider",
    "model_not_found",
    "input_too_large",
    "idempotency_conflict",
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions",
        "create_session",
        "Create a session.",
        "run",
        201,
        "Session",
        "CreateSession",
        body_required=False,
        errors=("session_exists", "unknown_profile", "unknown_provider", "model_not_found"),
    ),
    Route(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "List your sessions, newest first.",
        "read",
        200,
        "SessionPage",
        parameters=(
            LIMIT,
            AFTER_ID,
            Parameter("platform", {"type": "string"}, "Only sessions that came in this way."),
            Parameter("include_ephemeral", {"type": "boolean", "default": False}, "Show those of single completions too."),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}",
        "read_session",
        "Read a session.",
        "read",
        200,
        "Session",
        errors=("session_not_found",),
    ),
    Route(
        "PATCH",
        "/v1/sessions/{session_id}",
        "change_session",
        "Change a session's title or settings.",
        "run",
        200,
        "Session",
        "ChangeSession",
        errors=("session_not_found", "unknown_profile", "unknown_provider", "model_not_found"),
    ),
    Route(
        "DELETE",
        "/v1/sessions/{session_id}",
        "erase_session",
        "Erase a session and its runs, for good.",
        "run",
        204,
        errors=("session_not_found", "session_busy"),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "list_messages",
        "Read a session's transcript.",
        "read",
        200,
        "MessagePage",
        parameters=(LIMIT, AFTER_NUMBER),
        errors=("session_not_found",),
    ),
    Route(
        "POST",
        "/v1/runs",
        "create_run",
        "Start a run: in a new session, or as the next turn of one.",
        "run",
        202,
        "Admitted",
        "CreateRun",
        parameters=(KEY,),
        errors=("session_not_found", *_START),
    ),
    Route(
        "GET",
        "/v1/runs",
        "list_runs",
        "List your runs, newest first.",
        "read",
        200,
        "RunPage",
        parameters=(
            LIMIT,
            AFTER_ID,
            Parameter("session_id", {"type": "string"}, "Only runs of this session."),
            Parameter("status", {"type": "string", "enum": STATUSES}, "Only runs in this state."),
        ),
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}",
        "read_run",
        "Read a run, with usage and error.",
        "read",
        200,
        "Run",
        errors=("run_not_found",),
    ),
    Route(
        "POST",
        "/v1/runs/{run_id}/cancel",
        "cancel_run",
        "Ask a run to end.",
        "run",
        202,
        "Cancelled",
        "CancelRun",
        body_required=False,
        errors=("run_not_found",),
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/events",
        "read_events",
        "Read a run's events: a page, or a stream by `Accept`.",
        "read",
        200,
        "EventPage",
        streams=True,
        errors=("run_not_found", "invalid_cursor", "too_many_streams", "streams_full"),
        parameters=(
            AFTER_NUMBER,
            LIMIT,
            Parameter("types", {"type": "string"}, "Only these types, parted by commas; a stream shows the end always."),
            LAST_EVENT,
        ),
    ),
    Route(
        "POST",
        "/v1/chat/completions",
        "create_completion",
        "Complete a chat as OpenAI's API does.",
        "run",
        200,
        "ChatCompletion",
        "ChatCompletionRequest",
        parameters=(SESSION_HEADER, KEY),
        streams=True,
        openai=True,
        errors=("session_not_found", *_START, "context_length_exceeded", "provider_error", "waiting_full", "streams_full"),
    ),
    Route(
        "GET", "/v1/models", "list_models", "List the models that can be asked for.", "read", 200, "ModelList", openai=True
    ),
    Route(
        "GET",
        "/v1/models/{model_id:path}",
        "read_model",
        "Read one model.",
        "read",
        200,
        "Model",
        openai=True,
        errors=("model_not_found",),
    ),
    Route("GET", "/health", "health", "Tell that the process answers.", None, 200, "Health"),
    Route("GET", "/ready", "ready", "Tell whether requests are served: 200 or 503.", None, 200, "Ready"),
    Route("GET", "/metrics", "metrics", "Numbers for Prometheus.", "read"),
    Route("GET", "/openapi.json", "openapi", "This API as an OpenAPI document.", "read"),
)

BY_PLACE: dict[tuple[str, str], Route] = {(route.method, route.path): route for route in ROUTES}
