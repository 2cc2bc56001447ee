"""Raw requests to one server: any API in any version, one write at a time on each connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kio.schema.index import api_key_map

from headwater.errors import CorruptFrame
from headwater.wire.build import build
from headwater.wire.messages import decode_response, encode_request, known_versions, request_type

KEYS = {name: key for key, name in api_key_map.items()}
"""The number of each API by its name in words."""
ANSWER_SECONDS = 20.0
MAX_ANSWER_BYTES = 64 << 20
CLIENT_ID = "differential"


@dataclass(frozen=True, slots=True)
class Silence:
    """What came instead of an answer: the connection was closed, or nothing came in time."""

    why: str


class Peer:
    """One connection. Requests on it queue up, as a server does them one after the other."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._host, self._port = host, int(port)
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._next_id = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hang_up()

    async def ask(self, api: str, version: int, fields: Mapping[str, Any], *, answered: bool = True) -> Any:
        """The answer to a request, decoded, or `Silence`."""
        [answer] = await self.ask_together([(api, version, fields)], answered=answered)
        return answer

    async def ask_together(
        self, asked: Sequence[tuple[str, int, Mapping[str, Any]]], *, answered: bool = True
    ) -> list[Any]:
        """Send requests in one write. Gives an answer or `Silence` for each."""
        requests = [(KEYS[api], version, build(request_type(KEYS[api], version), **f)) for api, version, f in asked]
        answers: list[Any] = []
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reader = await self._send(requests)
                    for key, version, _ in requests:
                        answers.append(await self._receive(reader, key, version) if answered else None)
                return answers
            except TimeoutError:
                why = "no answer in time"
            except (OSError, asyncio.IncompleteReadError):
                why = "the connection was closed"
            await self._hang_up()
            return [*answers, *[Silence(why)] * (len(requests) - len(answers))]

    async def _send(self, requests: Sequence[tuple[int, int, Any]]) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        pieces: list[Any] = []
        for key, version, request in requests:
            self._next_id += 1
            pieces += encode_request(key, version, self._next_id, CLIENT_ID, request)
        writer.writelines(pieces)
        await writer.drain()
        return reader

    async def _receive(self, reader: asyncio.StreamReader, key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 < size < MAX_ANSWER_BYTES:
            raise CorruptFrame(f"an answer of {size} bytes")
        _, answer = decode_response(key, version, memoryview(await reader.readexactly(size)).toreadonly())
        return answer

    async def _hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def versions_of(address: str) -> dict[str, range]:
    """The versions of each API that a server announces and that can be encoded here."""
    async with Peer(address) as peer:
        answer = await peer.ask("api_versions", 3, {"client_software_name": "d", "client_software_version": "1"})
    found = {}
    for row in answer.api_keys:
        known = known_versions(row.api_key)
        if known and max(row.min_version, known[0]) <= min(row.max_version, known[-1]):
            found[api_key_map[row.api_key]] = range(max(row.min_version, known[0]), min(row.max_version, known[-1]) + 1)
    return found
