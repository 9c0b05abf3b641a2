"""The OpenAPI 3.1 document, made from the route table: what is not routed is not in it."""

from eventstore.catalogue import Json
from gateways import __version__
from gateways.http.errors import TABLE
from gateways.http.routes import ROUTES, Parameter, Route
from gateways.http.schemas import COMPONENTS, ref, text

NOTHING = 204
_ALWAYS = ("foreign_host", "foreign_origin", "rate_limited", "internal_error")
_WITH_BODY = ("invalid_json", "invalid_field", "unknown_field", "missing_field", "unsupported_media_type", "body_too_large")


def document() -> Json:
    """Return the whole document."""
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(route.path.replace(":path}", "}"), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "deedbox", "version": __version__, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": COMPONENTS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def errors_of(route: Route) -> tuple[str, ...]:
    """Return the codes that a route may answer, each once."""
    token = ("unauthorized", "missing_scope") if route.scope is not None else ()
    body = _WITH_BODY if route.body is not None else ()
    key = ("invalid_idempotency_key",) if any(each.name == "Idempotency-Key" for each in route.parameters) else ()
    query = () if route.openai else ("unknown_parameter", "invalid_parameter")
    return tuple(dict.fromkeys((*route.errors, *key, *body, *query, *token, *_ALWAYS)))


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *(_parameter(each) for each in route.parameters)],
        "responses": _responses(route),
    }
    if route.scope is None:
        operation["security"] = []
    if route.body is not None:
        content = {"application/json": {"schema": ref(route.body)}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    return operation


def _path_parameters(route: Route) -> list[Json]:
    names = [part.strip("{}").partition(":")[0] for part in route.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": text()} for name in names]


def _parameter(each: Parameter) -> Json:
    return {"name": each.name, "in": each.place, "description": each.description, "schema": each.schema}


def _responses(route: Route) -> Json:
    content = {} if route.status == NOTHING else {"content": _content(route)}
    responses: Json = {str(route.status): {"description": route.summary, **content}}
    if route.operation == "ready":
        responses["503"] = responses["200"] | {"description": "Not yet."}
    by_status: dict[int, list[str]] = {}
    for code in errors_of(route):
        by_status.setdefault(TABLE[code].status, []).append(code)
    schema, kind = ("OpenAIError", "application/json") if route.openai else ("Problem", "application/problem+json")
    for status, codes in sorted(by_status.items()):
        described = {"description": ", ".join(f"`{code}`" for code in codes), "content": {kind: {"schema": ref(schema)}}}
        responses.setdefault(str(status), described)
    return responses


def _content(route: Route) -> Json:
    if route.response is None:
        kind = "text/plain" if route.operation == "metrics" else "application/json"
        return {kind: {"schema": text() if kind == "text/plain" else {"type": "object"}}}
    content: Json = {"application/json": {"schema": ref(route.response)}}
    return content | ({"text/event-stream": {"schema": text()}} if route.streams else {})
