"""Whether anybody is left at a broker's addresses: only refused connections say no."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from headwater.broker.rotation.presence import nobody_serves
from headwater.state.cluster.domain import Process
from headwater.state.commands.cluster import Listener
from tests.support.promise import promise

PROMISES = ("M2",)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on who never accepts, as a process that hangs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def asked(*listeners: tuple[str, int]) -> bool:
    named = tuple(Listener(f"L{i}", host, port) for i, (host, port) in enumerate(listeners))
    return asyncio.run(nobody_serves(Process(1, "p", 1, "z", named, 1, "b")))


@promise("M2")
def test_ports_that_are_closed(closed: int) -> None:
    """The machine is there, the process is not."""
    assert asked(("127.0.0.1", closed))
    assert asked(("127.0.0.1", closed), ("localhost", closed))


@promise("M2")
def test_a_process_that_hangs_is_there(taken: int, closed: int) -> None:
    """Only its silence says that it is of no use."""
    assert not asked(("127.0.0.1", taken))
    assert not asked(("127.0.0.1", closed), ("127.0.0.1", taken))


@promise("M2")
def test_what_is_not_certain() -> None:
    """Addresses that cannot be reached, and members without addresses, such as compactors."""
    assert not asked(("255.255.255.255", 9092))
    assert not asked()
