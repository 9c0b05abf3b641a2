"""Asks an endpoint one harmless question and says in one sentence how it went, for people at a terminal."""

import json
from typing import Any, Final

from actors.ports import ModelCall
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint
from gateways.provider.transport import ProviderTransport

_BY_STATUS: Final = {
    400: "refuses the question; the base URL or a fixed header may be wrong",
    401: "does not accept the secret",
    402: "says that the account has no credit",
    403: "accepts the secret but forbids this; the account or region may lack access",
    404: "does not know this path; check base_url (it usually ends with /v1)",
    407: "cannot be reached because the proxy wants a login",
    429: "says that the quota or rate limit is used up",
}
_BY_CODE: Final = {
    "dns_error": "check the host name in base_url, and the network",
    "tls_error": "check the host name, the clock, and whether a company certificate is needed (ca_file)",
    "timeout_first_byte": "it is overloaded, or base_url leads to something else",
}
_SERVER_ERROR: Final = 500


def probe(endpoint: Endpoint, path: str = "/models") -> str:
    """Return a sentence such as `openai answers (12 models)` or `openai does not accept the secret (401): …`."""
    outcome = _ask(endpoint, path)
    if not outcome["ok"]:
        error = outcome["error"]
        advice = _BY_CODE.get(error["code"])
        return f"{endpoint.name} cannot be used: {error['message']}{f' ({advice})' if advice else ''}."
    status = outcome["status"]
    if status in range(200, 300):
        names = _names(outcome["body"])
        return f"{endpoint.name} answers ({len(names)} models)." if names else f"{endpoint.name} answers."
    says = _BY_STATUS.get(status, "has trouble of its own" if status >= _SERVER_ERROR else "refuses")
    secret = f"; look at {endpoint.secret_env}" if status in (401, 403) and endpoint.secret_env else ""
    return f"{endpoint.name} {says} ({status}{secret})."


def models_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the names of the models that the endpoint lists; none where it does not answer so."""
    outcome = _ask(endpoint, "/models")
    return _names(outcome["body"]) if outcome["ok"] and outcome["status"] in range(200, 300) else ()


def _ask(endpoint: Endpoint, path: str) -> dict[str, Any]:
    transport = ProviderTransport(lambda _: endpoint, SystemClock())
    try:
        return transport.exchange(ModelCall(endpoint.name, path, None, stream=False, method="GET")).open()
    finally:
        transport.close()


def _names(body: str) -> tuple[str, ...]:
    try:
        listed = json.loads(body)["data"]
        return tuple(str(model["id"]) for model in listed)
    except (ValueError, KeyError, TypeError):
        return ()
