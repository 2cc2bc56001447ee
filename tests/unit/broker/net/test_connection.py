"""One connection, on a host that only counts: admission, bytes under way, reading, failures."""

import asyncio
from dataclasses import replace
from typing import cast
from unittest.mock import Mock

import pytest

from headwater.broker.broker import Broker
from headwater.broker.net.admission import Admission
from headwater.broker.net.connection import Connection
from headwater.broker.registry import APIS
from headwater.broker.request import Pending
from headwater.wire.build import build
from headwater.wire.messages import encode_request, request_type
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import run

PROMISES = ("K1", "K2")

API_VERSIONS = 18
ADDRESS = "192.0.2.7"


class CountingHost:
    """A host without listeners or other connections."""

    def __init__(self, broker: Broker, admission: Admission = Admission(True)) -> None:  # noqa: B008 - it is frozen
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.scratch = memoryview(bytearray(1 << 16))
        self.draining = False
        self.admission = admission
        self.gone: list[tuple[Connection, str | None]] = []

    def admit(self, connection: Connection, address: str) -> Admission:
        assert address == ADDRESS
        return self.admission

    def released(self, connection: Connection, address: str | None) -> None:
        self.gone.append((connection, address))


def open_connection(host: CountingHost) -> tuple[Connection, Mock]:
    transport = Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0})
    transport.get_extra_info.side_effect = lambda name: (ADDRESS, 4711) if name == "peername" else None
    connection = Connection(host, "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection, transport


def send(connection: Connection, number: int) -> None:
    body = build(request_type(API_VERSIONS, 0))
    frame = b"".join(encode_request(API_VERSIONS, 0, number, "test", body))
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))


def test_a_refused_connection_is_ended_and_has_no_address_to_release() -> None:
    async def test(one: Caller) -> None:
        host = CountingHost(one.node.broker, Admission(False))
        connection, transport = open_connection(host)
        transport.abort.assert_called_once()
        connection.connection_lost(None)
        assert host.gone == [(connection, None)]

    run(test)


def test_bytes_under_way_are_given_back_with_the_answers_or_the_connection() -> None:
    async def test(one: Caller) -> None:
        host = CountingHost(one.node.broker)
        connection, transport = open_connection(host)
        send(connection, 1)
        send(connection, 2)
        assert host.broker.budget.used > 0 and not connection.idle
        await asyncio.sleep(0)  # answers of one turn of the event loop go out together
        transport.writelines.assert_called_once()
        assert host.broker.budget.used == 0 and connection.idle
        send(connection, 3)
        connection.connection_lost(None)
        assert host.broker.budget.used == 0
        assert host.gone == [(connection, ADDRESS)]

    run(test)


def test_a_broker_that_has_too_much_to_do_does_not_read() -> None:
    async def test(one: Caller) -> None:
        host = CountingHost(one.node.broker)
        connection, transport = open_connection(host)
        budget = host.broker.budget
        for begin, end in (
            (lambda: budget.take(budget.limit + 1), lambda: budget.give(budget.limit + 1)),
            (lambda: setattr(host, "draining", True), lambda: setattr(host, "draining", False)),
        ):
            transport.reset_mock()
            begin()
            connection.consider_reading()
            connection.consider_reading()
            transport.pause_reading.assert_called_once()
            end()
            connection.consider_reading()
            transport.resume_reading.assert_called_once()

    run(test)


@promise("K2")
def test_an_answer_that_fails_ends_its_own_connection_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that answers a request works for other requests, too, and must go on."""

    async def test(one: Caller) -> None:
        pending = Pending()
        answered_later = replace(APIS[API_VERSIONS], handle=lambda broker, request: pending)
        monkeypatch.setitem(APIS, API_VERSIONS, answered_later)
        connection, transport = open_connection(CountingHost(one.node.broker))
        send(connection, 1)
        monkeypatch.setattr(one.node.broker, "stats", None)  # which the connection does not expect
        pending.answer({})
        transport.abort.assert_called_once()

    run(test)
    assert "a handler failed" in [record.message for record in caplog.records]
