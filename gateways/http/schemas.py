"""The shapes of the API's JSON, written once: what comes in is checked against them, `/openapi.json` shows them all."""

from typing import Any

from eventstore.catalogue import CANONICAL_TAGS, Json


def text(description: str = "", **rest: Any) -> Json:
    """Return a schema of text."""
    return {"type": "string"} | ({"description": description} if description else {}) | rest


def shape(properties: Json, required: str = "", *, open_: bool = False, **rest: Any) -> Json:
    """Return a schema of an object; `required` names fields, parted by spaces; an open one may have others."""
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": open_}
    return schema | ({"required": required.split()} if required else {}) | rest


def nullable(schema: Json) -> Json:
    """Return a schema that takes null too."""
    return {"anyOf": [schema, {"type": "null"}]}


def ref(name: str) -> Json:
    """Return a reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Json, **rest: Any) -> Json:
    """Return a schema of an array."""
    return {"type": "array", "items": items} | rest


ANY_OBJECT: Json = {"type": "object", "additionalProperties": True}
NAME = text(minLength=1, maxLength=200)
IDENTIFIER = text("An id of the caller's choice.", pattern="^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")
MOMENT = text("UTC, RFC 3339.", format="date-time")
COUNT: Json = {"type": "integer", "minimum": 0}
STATUSES = ["queued", "running", "waiting", "completed", "cancelled", "failed"]
STATUS = text(enum=STATUSES)
BUSY = text("What a message does while a run is active: wait for the next turn, or reach the run.", enum=["queue", "steer"])
METADATA = ANY_OBJECT | {"maxProperties": 64, "description": "Kept with the record and given to the policy script."}
ON_DISCONNECT = text("What happens to the run when its last stream breaks.", enum=["continue", "cancel"])


def page(items: str, cursor: Json) -> Json:
    """Return the schema of one page of a list."""
    return shape(
        {"data": array(ref(items)), "has_more": {"type": "boolean"}, "next": nullable(cursor)}, "data has_more next"
    )


_RUN_CHOICES: Json = {
    "profile": NAME,
    "model": NAME,
    "provider": NAME,
    "provider_options": ANY_OBJECT,
    "limits": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    "on_disconnect": ON_DISCONNECT,
}

REQUESTS: Json = {
    "CreateSession": shape(
        {
            "session_id": IDENTIFIER,
            "title": text(maxLength=500),
            "profile": NAME,
            "model": NAME,
            "provider": NAME,
            "busy": BUSY,
            "metadata": METADATA,
        }
    ),
    "ChangeSession": shape(
        {"title": text(maxLength=500), "profile": NAME, "model": NAME, "provider": NAME, "busy": BUSY}, minProperties=1
    ),
    "CreateRun": shape(
        {
            "input": ref("Input"),
            "session_id": text("The session to continue; a new one without it.", minLength=1, maxLength=200),
            "system_prompt": text("For a new session only; later runs keep what the first one had."),
            "tools": array(ref("ClientTool"), maxItems=128),
            "title": text(maxLength=500),
            "metadata": METADATA,
            **_RUN_CHOICES,
        },
        "input",
    ),
    "CancelRun": shape({"reason": text(minLength=1, maxLength=500)}),
    "ClientTool": shape(
        {
            "name": text(pattern="^[A-Za-z0-9_-]{1,64}$"),
            "description": text(maxLength=8192),
            "parameters": ANY_OBJECT,
            "strict": {"type": "boolean"},
        },
        "name",
        description="A tool that the client runs itself; a call of it ends the run with finish reason `tool_calls`.",
    ),
    "Input": {
        "description": "Text, a list of content parts, or a list of messages of role user or tool.",
        "oneOf": [
            text(minLength=1),
            array(ref("Part"), minItems=1),
            array(ref("CanonicalMessage"), minItems=1),
        ],
    },
    "Part": shape(
        {
            "type": text(enum=["text", "image", "file"]),
            "text": text(),
            "media_type": text(),
            "data": text("Base64."),
            "url": text(),
            "name": text(),
        },
        "type",
    ),
    "ChatCompletionRequest": shape(
        {
            "model": text(),
            "messages": array(ANY_OBJECT, minItems=1),
            "stream": nullable({"type": "boolean"}),
            "tools": nullable(array(ANY_OBJECT)),
            "metadata": nullable(ANY_OBJECT),
            **_RUN_CHOICES,
        },
        "messages model",
        open_=True,
        description="OpenAI's request; docs/http.md says what each published field does. The other fields are deedbox's.",
    ),
}

_USAGE = shape(
    {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "cached_tokens": COUNT,
        "cache_write_tokens": COUNT,
        "reasoning_tokens": COUNT,
        "cost_micros": nullable({"type": "integer"}),
    },
    "input_tokens output_tokens cached_tokens cache_write_tokens reasoning_tokens cost_micros",
    description="Sums over all attempts; `cost_micros` is null where no price is known.",
)
_RUN_ERROR = shape(
    {"code": text(), "message": text(), "kind": text(), "status": {"type": "integer"}, "place": text()}, "code message kind"
)

RESPONSES: Json = {
    "CanonicalMessage": shape({"role": text(enum=["user", "assistant", "tool", "system"])}, "role", open_=True),
    "Usage": _USAGE,
    "RunError": _RUN_ERROR,
    "Origin": shape({"platform": text(), "account": text(), "chat": text(), "thread": text()}, "platform"),
    "Session": shape(
        {
            "session_id": text(),
            "title": nullable(text()),
            "preview": nullable(text()),
            "profile": text(),
            "model": nullable(text()),
            "provider": nullable(text()),
            "busy": BUSY,
            "ephemeral": {"type": "boolean"},
            "origin": ref("Origin"),
            "parent_session_id": nullable(text()),
            "active_run_id": nullable(text()),
            "run_count": COUNT,
            "usage": ref("Usage"),
            "metadata": ANY_OBJECT,
            "created_at": MOMENT,
            "updated_at": MOMENT,
        },
        "session_id title preview profile model provider busy ephemeral origin parent_session_id active_run_id run_count "
        "usage metadata created_at updated_at",
    ),
    "SessionPage": page("Session", text()),
    "Message": shape(
        {
            "ordinal": COUNT,
            "run_id": nullable(text()),
            "role": text(),
            "at": MOMENT,
            "message": ref("CanonicalMessage"),
        },
        "ordinal run_id role at message",
    ),
    "MessagePage": page("Message", COUNT),
    "Admitted": shape(
        {"run_id": text(), "session_id": text(), "message_id": text(), "status": STATUS},
        "run_id session_id message_id status",
    ),
    "Cancelled": shape({"run_id": text(), "status": STATUS}, "run_id status"),
    "Run": shape(
        {
            "run_id": text(),
            "session_id": text(),
            "parent_run_id": nullable(text()),
            "status": STATUS,
            "profile": text(),
            "model": nullable(text()),
            "provider": nullable(text()),
            "platform": text(),
            "metadata": ANY_OBJECT,
            "last_seq": COUNT,
            "created_at": MOMENT,
            "started_at": nullable(MOMENT),
            "finished_at": nullable(MOMENT),
            "finish_reason": nullable(text()),
            "output": nullable(ref("CanonicalMessage")),
            "error": nullable(ref("RunError")),
            "cancel_reason": nullable(text()),
            "usage": ref("Usage"),
        },
        "run_id session_id parent_run_id status profile model provider platform metadata last_seq created_at started_at "
        "finished_at finish_reason output error cancel_reason usage",
    ),
    "RunPage": page("Run", text()),
    "RunEvent": shape(
        {
            "type": text(enum=sorted(CANONICAL_TAGS)),
            "run_id": text(),
            "seq": {"type": "integer", "minimum": 1},
            "at": MOMENT,
            "parent_run_id": text(),
        },
        "type run_id seq at",
        open_=True,
        description="One canonical event; the further fields belong to its type, those at their default are left out.",
    ),
    "EventPage": shape(
        {
            "data": array(ref("RunEvent")),
            "has_more": {"type": "boolean"},
            "next": COUNT | {"description": "The cursor for the next page, and for a stream that goes on from here."},
            "status": STATUS,
            "last_seq": COUNT,
        },
        "data has_more next status last_seq",
    ),
    "Model": shape(
        {"id": text(), "object": text(const="model"), "created": COUNT, "owned_by": text()}, "id object created owned_by"
    ),
    "ModelList": shape({"object": text(const="list"), "data": array(ref("Model"))}, "object data"),
    "ChatCompletion": shape(
        {
            "id": text(),
            "object": text(const="chat.completion"),
            "created": COUNT,
            "model": text(),
            "choices": array(ANY_OBJECT, minItems=1, maxItems=1),
            "usage": ANY_OBJECT,
        },
        "id object created model choices usage",
    ),
    "Health": shape({"status": text(const="ok")}, "status"),
    "Ready": shape(
        {"ready": {"type": "boolean"}, "parts": {"type": "object", "additionalProperties": text()}}, "ready parts"
    ),
    "Problem": shape(
        {
            "type": text(),
            "title": text(),
            "status": {"type": "integer"},
            "code": text("Stable; docs/errors.md explains each."),
            "detail": text(),
            "param": text("The field or parameter at fault."),
        },
        "type title status code detail",
    ),
    "OpenAIError": shape(
        {
            "error": shape(
                {"message": text(), "type": text(), "param": nullable(text()), "code": nullable(text())},
                "message type param code",
            )
        },
        "error",
    ),
}

COMPONENTS: Json = REQUESTS | RESPONSES
