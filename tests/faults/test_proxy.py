"""The proxy that fault tests put in front of a store does what they count on."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

from harness.patience import eventually
from harness.proxy import Proxy
from tests.support.promise import promise

PROMISES = ("M6",)


class _Echo(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.heard = b""
        super().__init__(("127.0.0.1", 0), _Answer)


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Echo)
        with contextlib.suppress(OSError):
            while data := self.request.recv(100):
                self.server.heard += data
                self.request.sendall(data)


@contextlib.contextmanager
def echo() -> Iterator[tuple[_Echo, Proxy]]:
    with _Echo() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with Proxy(server.server_address[1]) as proxy:
            yield server, proxy
        server.shutdown()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ends(client: socket.socket) -> bool:
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


@promise("M6")
def test_it_passes_and_cuts() -> None:
    """What passes is unchanged; after a cut the next connection is served."""
    with echo() as (_, proxy):
        with connect(proxy) as client:
            client.sendall(b"one")
            assert client.recv(100) == b"one"
            proxy.cut()
            assert ends(client)
        proxy.refuse()
        with connect(proxy) as client:
            assert ends(client)
        proxy.resume()
        with connect(proxy) as client:
            client.sendall(b"two")
            assert client.recv(100) == b"two"


@promise("M6")
def test_it_holds_both_ways() -> None:
    """What was sent while nothing passed arrives afterwards, once."""
    with echo() as (server, proxy), connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.hold()
        client.sendall(b"two")
        eventually(lambda: proxy.held_bytes == 3, "the proxy holds what was sent")
        assert server.heard == b"one"
        proxy.resume()
        assert client.recv(100) == b"two"
        assert proxy.held_bytes == 0


@promise("M6")
def test_what_a_lost_client_sent_arrives_late() -> None:
    """Its connection ends, and only then does the server hear of it."""
    with echo() as (server, proxy), connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.hold()
        client.sendall(b"late")
        eventually(lambda: proxy.held_bytes == 4, "the proxy holds what was sent")
        proxy.strand()
        assert ends(client)
        assert server.heard == b"one"
        proxy.resume()
        eventually(lambda: server.heard == b"onelate", "it arrives")


@promise("M6")
def test_replies_are_lost() -> None:
    """The server hears everything, the client nothing, and then its connection ends."""
    with echo() as (server, proxy), connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        proxy.drop_replies()
        client.sendall(b"two")
        eventually(lambda: proxy.lost_bytes == 3, "the reply is dropped")
        assert server.heard == b"onetwo"
        with connect(proxy) as other:
            other.sendall(b"three")
            eventually(lambda: proxy.lost_bytes == 8, "the other reply is dropped")
            proxy.resume()
            assert ends(client)
            assert ends(other)
