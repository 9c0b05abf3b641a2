"""What can go wrong at the edge, by who can repair it; every class has a stable `code` and the command's exit code.

* GatewayError          the world outside the log failed
  - ConfigInvalid       a setting is unknown, ill-typed or cannot work; exit 2
  - NoServer            the command line found no running server; exit 5
  - ServerSaid          the running server answered with a problem; exit 3, or 4 where a token is missing or too weak
  - NoSuchToken         no token has this id or name; exit 3
  - TokenNameTaken      a token has this name already, or several have; exit 3
  - AddressInUse        the server cannot listen on its address; exit 6
"""

import errno
from typing import ClassVar


class GatewayError(Exception):
    """Root of what this package raises to people; the message is one sentence that says what to do."""

    code: ClassVar[str] = "gateway_error"
    exit_code: int = 1


class ConfigInvalid(GatewayError):
    """A setting is unknown, has the wrong type or cannot work; the message names setting, source and what to do."""

    code = "config_invalid"
    exit_code = 2


class NoServer(GatewayError):
    """No deedbox server answers at the address."""

    code = "no_server"
    exit_code = 5


class NoSuchToken(GatewayError):
    """No token has this id or name."""

    code = "token_not_found"
    exit_code = 3


class TokenNameTaken(GatewayError):
    """A token has this name already, or several have it."""

    code = "token_name_taken"
    exit_code = 3


class AddressInUse(GatewayError):
    """The server cannot listen on its address: another program does, or it may not."""

    code = "address_in_use"
    exit_code = 6


class ServerSaid(GatewayError):
    """The server answered with a problem; `problem` is its code, `status` the HTTP status."""

    code = "server_said"

    def __init__(self, status: int, problem: str, message: str) -> None:
        super().__init__(message)
        self.status, self.problem = status, problem
        self.exit_code = 4 if status in (401, 403) else 3


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """Return the sentence that says why nobody can listen on an address, and what to do about it."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            advice = "set server.address to a port from 1024 on, for lower ones are the system's"
        case errno.EADDRNOTAVAIL:
            advice = "set server.address to an address of this machine"
        case errno.EADDRINUSE:
            advice = "stop what listens there, or set server.address"
        case _:
            advice = "set server.address"
    return f"{host}:{port} cannot be listened on ({error.strerror}): {advice}"


def placed(error: Exception) -> str:
    """Return an error's sentence with the `module:line` that it carries, once."""
    place, text = getattr(error, "place", None), str(error)
    return f"{place}: {text}" if place and not text.startswith(place) else text
