"""Says in one sentence how a trial of a provider went, and what to do where it failed."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from eventstore.catalogue import Problem
from eventstore.queries import RunRow
from gateways.provider.probe import Listing, failure
from gateways.provider.settings import Endpoint
from gateways.trial import SECONDS, Trial

_SHOWN: Final = 200
_ERRORS: Final = 400
_PAY_FIRST: Final = 402
_NOT_FOUND: Final = (404, 405)
_MAY_BE_THE_MODEL: Final = (400, 404, 405, 422)


def verdict(endpoint: Endpoint, adapter: str, model: str, trial: Trial, listed: Callable[[], Listing]) -> tuple[bool, str]:
    """Return whether the provider can be used, and the sentence; `listed` asks for its models, where that tells more."""
    run, name = trial.run, endpoint.name
    if run is None or (run.error is not None and run.error.code == "deadline_exceeded"):
        return False, f"{name} did not answer within {SECONDS} s: it is overloaded, or base_url leads to something else."
    if run.error is None:
        return True, _good(name, model, run)
    return False, _failed(endpoint, adapter, model, (run.error, trial.heard), listed)


def _good(name: str, model: str, run: RunRow) -> str:
    used = f"{run.usage.input_tokens} tokens in, {run.usage.output_tokens} out"
    took = ((run.finished_at or run.created_at) - run.created_at) / 1_000_000
    return f"{name} answers with {model} ({used}, {took:.1f} s)."


def _failed(
    endpoint: Endpoint,
    adapter: str,
    model: str,
    told: tuple[Problem, Mapping[str, Any] | None],
    listed: Callable[[], Listing],
) -> str:
    problem, heard = told
    name, message = endpoint.name, _shown(problem.message)
    if heard is None:
        return f"{name} was not asked: {message}."
    if not heard["ok"]:
        return str(failure(endpoint, heard))
    status = heard["status"]
    if status < _ERRORS:
        return _no_answer(name, adapter, problem, heard)
    if problem.kind == "quota" or status == _PAY_FIRST:
        return f"{name} says that credit or quota is used up ({status}): check the account's plan and billing ({message})."
    if problem.kind == "rate":
        return f"{name} limits the rate ({status}): wait{_wait(heard)}, then try again ({message})."
    if status in _MAY_BE_THE_MODEL:
        return _not_found(endpoint, adapter, model, (status, message), listed)
    return str(failure(endpoint, heard))


def _no_answer(name: str, adapter: str, problem: Problem, heard: Mapping[str, Any]) -> str:
    """Tell of a good status without a good answer."""
    if "html" in str(heard["headers"].get("content-type", "")):
        return f"{name} answers with a web page: base_url leads to something else; it usually ends with /v1."
    message = _shown(problem.message)
    if problem.kind in ("protocol", "network", "other"):
        return f"{name} answers, but not as {adapter} does ({message}): check providers.{name}.adapter and base_url."
    return f"{name} failed in the middle of its answer ({problem.kind}): {message}."


def _not_found(endpoint: Endpoint, adapter: str, model: str, told: tuple[int, str], listed: Callable[[], Listing]) -> str:
    """Tell an unknown model, a wrong adapter and a wrong address apart by what the provider lists."""
    name, (status, message) = endpoint.name, told
    found = listed()
    if model in message or (found.models and model not in found.models):
        return (
            f"{name} does not know the model {model} ({status}): 'deedbox models --provider {name} --live' lists what it "
            f"has; set model.model or providers.{name}.default_model."
        )
    if status not in _NOT_FOUND:
        return f"{name} refuses the request ({status}): {message}."
    if found.models:
        return f"{name} lists {model} but does not speak {adapter} ({status}): check providers.{name}.adapter."
    return f"{name} has nothing at this path ({status}): check base_url (it usually ends with /v1) and adapter ({adapter})."


def _wait(heard: Mapping[str, Any]) -> str:
    seconds = str(heard["headers"].get("retry-after", ""))
    return f" {seconds} s" if seconds.isdigit() else ""


def _shown(message: str) -> str:
    """Return a provider's words as one short printable line."""
    line = " ".join("".join(each if each.isprintable() else " " for each in message).split())
    return (line[:_SHOWN] + "…" if len(line) > _SHOWN else line).rstrip(".")
