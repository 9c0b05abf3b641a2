"""Asks an endpoint which models it has, and says in one sentence why a request failed, for people at a terminal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from actors.ports import ModelCall
from gateways.clock import SystemClock
from gateways.provider.settings import Endpoint
from gateways.provider.transport import ProviderTransport

_BY_STATUS: Final = {
    400: "refuses the request; the base URL or a fixed header may be wrong",
    401: "does not accept the secret",
    402: "says that the account has no credit; check its plan and billing",
    403: "accepts the secret but forbids this; the account or region may lack access",
    404: "does not know this path; check base_url (it usually ends with /v1)",
    407: "cannot be reached because the proxy wants a login",
    429: "says that the quota or rate limit is used up; wait, or check the plan",
}
_BY_CODE: Final = {
    "dns_error": "check the host name in base_url, and the network",
    "tls_error": "check the host name, the clock, and whether a company certificate is needed (ca_file)",
    "timeout_first_byte": "it is overloaded, or base_url leads to something else",
    "timeout_idle": "it is overloaded, or base_url leads to something else",
    "timeout_total": "it is overloaded, or base_url leads to something else",
    "refused_url": "check base_url",
}
_GOOD: Final = range(200, 300)
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """The ids of the models that an endpoint lists; `problem` is a sentence where it does not tell."""

    models: tuple[str, ...] = ()
    problem: str | None = None


def listing(endpoint: Endpoint, path: str = "/models") -> Listing:
    """Ask an endpoint for its models; blocks as long as the endpoint's timeouts allow."""
    transport = ProviderTransport(lambda _: endpoint, SystemClock())
    try:
        outcome = transport.exchange(ModelCall(endpoint.name, path, None, stream=False, method="GET")).open()
    finally:
        transport.close()
    problem = failure(endpoint, outcome)
    if problem is not None:
        return Listing(problem=problem)
    models = _names(outcome["body"])
    return Listing(problem=f"{endpoint.name} answers, but with no list of models.") if models is None else Listing(models)


def models_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the names of the models that the endpoint lists; none where it does not answer so."""
    return listing(endpoint).models


def failure(endpoint: Endpoint, outcome: Mapping[str, Any]) -> str | None:
    """Return why an exchange failed, as a sentence with what to do; None where its status is good.

    `outcome` is what `Exchange.open` returned.
    """
    if not outcome["ok"]:
        error = outcome["error"]
        advice = _BY_CODE.get(error["code"])
        return f"{endpoint.name} cannot be used: {error['message']}{f' ({advice})' if advice else ''}."
    status = outcome["status"]
    if status in _GOOD:
        return None
    if status in (401, 403) and endpoint.secret is None:
        variable = endpoint.secret_env or f"providers.{endpoint.name}.api_key_env"
        return f"{endpoint.name} wants a secret and got none ({status}): set {variable}."
    says = _BY_STATUS.get(status, "has trouble of its own; try again later" if status >= _SERVER_ERROR else "refuses")
    secret = f"; look at {endpoint.secret_env}" if status in (401, 403) and endpoint.secret_env else ""
    return f"{endpoint.name} {says} ({status}{secret})."


def _names(body: str) -> tuple[str, ...] | None:
    try:
        listed = json.loads(body)["data"]
        return tuple(str(model["id"]) for model in listed)
    except (ValueError, KeyError, TypeError):
        return None
