"""Two brokers that know transactional ids and nothing else, for tests of the client and of the commands."""

import asyncio
import struct
import threading
from dataclasses import dataclass, field
from typing import Any, Self

from headwater.wire.messages import decode_request, encode_response, read_start

API_VERSIONS, METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID = 18, 3, 10, 22
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
NOT_COORDINATOR, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, NOT_FOUND, CONCURRENT = 16, 47, 90, 105, 51
STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


@dataclass
class Id:
    """A transactional id at one of the brokers."""

    broker: int
    state: str
    producer: int
    epoch: int
    started_ms: int = -1
    partitions: dict[str, list[int]] = field(default_factory=dict)
    timeout_ms: int = 60_000


class TransactionBrokers:
    """Runs in a thread. Tests may change `ids`, and put errors into `failures` that are answered first."""

    def __init__(self, ids: dict[str, Id], list_version: int = 2) -> None:
        self.ids = ids
        self.failures: dict[int, list[int]] = {}
        self.requests: list[tuple[int, int, Any]] = []
        """(broker, API key, body) of every request about transactions."""
        self.ports: list[int] = []
        self.listed: dict[str, str] = {}
        """Ids that are listed with a state, but gone when they are described."""
        self._list_version = list_version
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._servers: list[asyncio.Server] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def asked(self, api_key: int) -> list[tuple[int, Any]]:
        return [(broker, body) for broker, key, body in self.requests if key == api_key]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        for broker in range(2):
            server = await asyncio.start_server(
                lambda reader, writer, broker=broker: self._serve(broker, reader, writer), "127.0.0.1", 0
            )
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    async def _serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                start = read_start(memoryview(data))
                body = decode_request(start, memoryview(data))[1]
                fields = self._answer(broker, start.api_key, body)
                writer.writelines(encode_response(start.api_key, start.version, start.correlation_id, fields))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    def _answer(self, broker: int, key: int, body: Any) -> dict[str, Any]:
        if key == API_VERSIONS:
            known = [(18, 0, 4), (3, 0, 12), (10, 0, 6), (22, 0, 5), (65, 0, 0), (66, 0, self._list_version)]
            return {"api_keys": [{"api_key": k, "min_version": low, "max_version": high} for k, low, high in known]}
        if key == METADATA:
            brokers = [{"node_id": i, "host": "127.0.0.1", "port": port} for i, port in enumerate(self.ports)]
            return {"brokers": brokers, "topics": [], "controller_id": 0}
        self.requests.append((broker, key, body))
        failures = self.failures.get(key)
        if failures:
            return self._failure(key, body, failures.pop(0))
        return {
            FIND_COORDINATOR: self._find,
            LIST_TRANSACTIONS: self._list,
            DESCRIBE_TRANSACTIONS: self._describe,
            INIT_PRODUCER_ID: self._init,
        }[key](broker, body)

    def _failure(self, key: int, body: Any, code: int) -> dict[str, Any]:
        if key == DESCRIBE_TRANSACTIONS:
            return {"transaction_states": [{"error_code": code, "transactional_id": i} for i in body.transactional_ids]}
        return {"error_code": code, "transaction_states": []} if key == LIST_TRANSACTIONS else {"error_code": code}

    def _find(self, broker: int, body: Any) -> dict[str, Any]:
        assert body.key_type == 1
        rows = []
        for name in body.coordinator_keys:
            at = self.ids[name].broker if name in self.ids else 0
            rows.append({"key": name, "node_id": at, "host": "127.0.0.1", "port": self.ports[at]})
        return {"coordinators": rows}

    def _list(self, broker: int, body: Any) -> dict[str, Any]:
        unknown = [state for state in body.state_filters if state not in STATES]
        found = {name: known.state for name, known in self.ids.items() if known.broker == broker}
        found |= self.listed
        rows = [
            {"transactional_id": name, "producer_id": 1, "transaction_state": state}
            for name, state in found.items()
            if not body.state_filters or state in body.state_filters
        ]
        return {"unknown_state_filters": unknown, "transaction_states": rows}

    def _describe(self, broker: int, body: Any) -> dict[str, Any]:
        return {"transaction_states": [self._described(broker, name) for name in body.transactional_ids]}

    def _described(self, broker: int, name: str) -> dict[str, Any]:
        known = self.ids.get(name)
        if known is None or known.broker != broker:
            return {"error_code": NOT_FOUND if known is None else NOT_COORDINATOR, "transactional_id": name}
        return {
            "transactional_id": name,
            "transaction_state": known.state,
            "transaction_timeout": known.timeout_ms,
            "transaction_start_time": known.started_ms,
            "producer_id": known.producer,
            "producer_epoch": known.epoch,
            "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in known.partitions.items()],
        }

    def _init(self, broker: int, body: Any) -> dict[str, Any]:
        known = self.ids[body.transactional_id]
        if (body.producer_id, body.producer_epoch) != (known.producer, known.epoch):
            return {"error_code": PRODUCER_FENCED}
        known.state, known.epoch, known.partitions = "Empty", known.epoch + 1, {}
        return {"producer_id": known.producer, "producer_epoch": known.epoch}
