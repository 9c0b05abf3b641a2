"""Where connections may lead: kinds of addresses, and names looked up without blocking for longer than agreed."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from gateways.provider.errors import Broken

AddressKind = Literal["loopback", "private", "public", "forbidden"]

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
# A lookup cannot be interrupted; a resolver that hangs must not eat threads without end.
_lookups: Final = threading.BoundedSemaphore(128)


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Which kinds of addresses a connection may go to; link-local (cloud metadata) and the like never."""

    loopback: bool
    private: bool
    public: bool

    def allows(self, address: str) -> bool:
        """Tell whether a connection to this IP address is allowed."""
        match kind_of(address):
            case "loopback":
                return self.loopback
            case "private":
                return self.private
            case "public":
                return self.public
            case "forbidden":
                return False


def kind_of(address: str) -> AddressKind:
    """Sort an IP address; one inside another (IPv4-mapped, 6to4, NAT64) counts as what it leads to."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return kind_of(str(inner))
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "forbidden"
    return "public" if ip.is_global else "private"


def addresses_of(host: str, seconds: float, on_cut: Callable[[Callable[[], None]], None]) -> list[str]:
    """Return the IP addresses of a host, waiting `seconds` at most; `on_cut` takes what ends the wait early.

    Raises:
        Broken: `dns_error`, the name has no address or nobody answers.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return ["127.0.0.1", "::1"]
    try:
        return [str(ipaddress.ip_address(host.strip("[]")))]
    except ValueError:
        return _Lookup(host).wait(seconds, on_cut)


class _Lookup:
    """One name on its way through the system's resolver, on a thread of its own."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._done = threading.Event()
        self._found: list[str] = []
        self._problem = "nobody answered in time"

    def wait(self, seconds: float, on_cut: Callable[[Callable[[], None]], None]) -> list[str]:
        if not _lookups.acquire(blocking=False):
            raise Broken("dns_error", f"cannot look up {self._host}: too many lookups are waiting")
        threading.Thread(target=self._look_up, name="dns", daemon=True).start()
        on_cut(self._done.set)
        self._done.wait(seconds)
        if not self._found:
            raise Broken("dns_error", f"cannot look up {self._host}: {self._problem}")
        return self._found

    def _look_up(self) -> None:
        try:
            answers = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            self._found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError) as error:
            self._problem = getattr(error, "strerror", None) or "the name is not valid"
        finally:
            _lookups.release()
            self._done.set()
