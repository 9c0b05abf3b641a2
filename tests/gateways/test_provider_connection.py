"""The wire of a connection and the line of an exchange: whose cut reaches which socket."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from actors.ports import ModelCall
from gateways.clock import SystemClock
from gateways.provider.addresses import AddressRule
from gateways.provider.connection import Line, Wire
from gateways.provider.errors import Broken
from gateways.provider.settings import Endpoint, Timeouts
from gateways.provider.transport import ProviderTransport

Pair = tuple[socket.socket, socket.socket]
ANYWHERE = AddressRule(loopback=True, private=True, public=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.settimeout(0.05)
    with ours, theirs:
        yield ours, theirs


def line() -> Line:
    return Line(ANYWHERE, 1.0, lambda: None)


def is_cut(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False


def test_a_cut_shuts_the_socket_that_the_line_is_on(pair: Pair) -> None:
    wire, mine = Wire(pair[0]), line()
    mine.attach(wire)
    mine.cut("cancelled", "stop")
    assert is_cut(pair[0])
    mine.detach()
    wire.doom()


def test_a_line_that_was_cut_before_cuts_what_it_is_put_on(pair: Pair) -> None:
    wire, mine = Wire(pair[0]), line()
    mine.cut("cancelled", "stop")
    mine.attach(wire)
    assert is_cut(pair[0])
    mine.detach()
    wire.doom()


def test_the_former_holder_of_a_connection_cannot_cut_it(pair: Pair) -> None:
    wire, former, present = Wire(pair[0]), line(), line()
    former.attach(wire)
    present.attach(wire)
    former.cut("cancelled", "stop")
    assert not is_cut(pair[0])
    former.detach()
    present.cut("cancelled", "stop")
    assert is_cut(pair[0])
    present.detach()
    wire.doom()


def test_a_closed_connection_is_really_closed_once_its_holder_leaves(pair: Pair) -> None:
    wire, mine = Wire(pair[0]), line()
    mine.attach(wire)
    wire.doom()
    pair[0].close()
    pair[1].settimeout(0.05)
    assert not is_cut(pair[1])
    mine.detach()
    assert is_cut(pair[1])


def test_the_first_reason_stays_and_wakers_are_called_at_once_if_late() -> None:
    mine, woken = line(), threading.Event()
    mine.cut("timeout_idle", "silent")
    mine.cut("cancelled", "stop")
    mine.on_cut(woken.set)
    assert woken.is_set()
    with pytest.raises(Broken, match="silent"):
        mine.check()


def test_a_provider_that_reads_slowly_is_given_more_time_than_to_connect() -> None:
    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            time.sleep(1.3)
            while not sock.recv(1 << 20).endswith(b'"}'):
                pass
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        endpoint = Endpoint("slow", url, timeouts=Timeouts(connect=0.6))
        with closing(ProviderTransport(lambda _: endpoint, SystemClock())) as transport:
            outcome = transport.exchange(ModelCall("slow", "/x", {"x": "y" * (20 << 20)}, stream=False)).open()
        thread.join()
    assert outcome["status"] == 200
