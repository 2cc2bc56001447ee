"""Real requests with odd values in them, and ways to spoil them."""

from __future__ import annotations

import datetime
import math
import random
import struct
import time
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from crc32c import crc32c

from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.registry import APIS
from headwater.wire.messages import encode_request, request_type
from tests.support.batches import NO_PRODUCER, Rec, batch

NOW_MS = int(time.time() * 1000)
NUMBERS = (-(1 << 31), -65536, -3, -2, -1, 0, 1, 2, 3, 7, 100, 1000, 65536, 1 << 20, (1 << 31) - 1)
LONG = (-(1 << 63), -(1 << 40), *NUMBERS, 1 << 40, NOW_MS, (1 << 63) - 1)
NAMES = ("fuzz", "fuzz", "fuzz", "other", "", "..", "näme", "x" * 260, "retention.ms", "cleanup.policy", "1")
PER_KIND = 30
_WIDTHS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
_CRC_AT, _CRC_FROM = 17, 21


class Corpus:
    """Makes frames. The same seed makes the same ones, but for their timestamps."""

    def __init__(self, rng: random.Random, topic_id: uuid.UUID) -> None:
        self._rng = rng
        self._topic_id = topic_id
        self.kinds = [(api.key, version) for api in APIS.values() for version in api.versions]
        self.pool = [self.request(*kind, number) for number in range(PER_KIND) for kind in self.kinds]

    def frame(self, number: int) -> bytes:
        """A frame without its size: every API and version in turn, whole or spoiled, and some pure noise."""
        rng = self._rng
        if rng.random() < 0.05:
            return rng.randbytes(rng.choice((8, 9, 12, 40, 300)))
        body = self.pool[number % len(self.pool)]
        kind = rng.random()
        if kind < 0.3:
            return body
        if kind < 0.4:
            return self._elsewhere(body)
        return self._spoiled(body)

    def request(self, key: int, version: int, number: int) -> bytes:
        """A well-formed request."""
        body = self.entity(request_type(key, version))
        pieces = encode_request(key, version, number, self._rng.choice(("fuzz", "", "ü")), body)
        return b"".join(pieces)[4:]

    # --- values ----------------------------------------------------------------------------------------

    def entity(self, kind: type) -> Any:
        """A message or a part of one."""
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: self._value(f.name, hints[f.name]) for f in fields(kind)})

    def _value(self, name: str, kind: Any) -> Any:
        rng = self._rng
        origin = typing.get_origin(kind)
        if origin in (types.UnionType, typing.Union):
            inner = [k for k in typing.get_args(kind) if k is not types.NoneType]
            if name in ("transactional_id", "rack_id"):
                return None if rng.random() < 0.9 else "tx"
            return None if rng.random() < 0.15 else self._value(name, inner[0])
        if origin is tuple:
            count = rng.choice((0, 1, 1, 1, 2, 3))
            return tuple(self._value(name, typing.get_args(kind)[0]) for _ in range(count))
        if is_dataclass(kind):
            return self.entity(typing.cast(type, kind))
        return self._plain(name, kind)

    def _plain(self, name: str, kind: type) -> Any:
        rng = self._rng
        if kind is uuid.UUID:
            return rng.choice((self._topic_id, self._topic_id, uuid.UUID(int=rng.getrandbits(128))))
        if issubclass(kind, bool) or kind is bool:
            return rng.random() < 0.5
        if issubclass(kind, datetime.timedelta):
            return datetime.timedelta(milliseconds=rng.choice((-1, 0, 1, 50)))
        if issubclass(kind, int):
            return self._number(name, next(_WIDTHS[k.__name__] for k in kind.__mro__ if k.__name__ in _WIDTHS))
        if issubclass(kind, float):
            return rng.choice((0.0, 1.0, -1.0, 0.5, 1e300, math.inf, math.nan))
        if issubclass(kind, str):
            return rng.choice(NAMES)
        return self.batch()

    def _number(self, name: str, bits: int) -> int:
        rng = self._rng
        if name in ("partition", "index", "partition_index", "fetch_offset") and rng.random() < 0.7:
            return rng.choice((0, 0, 1))
        if name == "acks" and rng.random() < 0.8:
            return rng.choice((-1, 0, 1))
        number = rng.choice(LONG if bits == 63 else NUMBERS)
        return max(-(1 << bits), min((1 << bits) - 1, number))

    def batch(self) -> bytes:
        """A batch, often with something wrong in it that its CRC covers up."""
        rng = self._rng
        records = [Rec(rng.randbytes(rng.randrange(20)), timestamp=NOW_MS) for _ in range(rng.choice((1, 1, 2, 5)))]
        producer = rng.choice((NO_PRODUCER, NO_PRODUCER, (rng.randrange(5), 0, rng.randrange(4))))
        data = bytearray(batch(records, producer=producer, codec=rng.choice((0, 0, 1, 2, 3, 4))))
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2, 4))):
                data[rng.randrange(_CRC_FROM, len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            if rng.random() < 0.2:
                del data[rng.randrange(_CRC_FROM, len(data)) :]
            struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[_CRC_FROM:]))
        return bytes(data)

    # --- spoiling --------------------------------------------------------------------------------------

    def _elsewhere(self, body: bytes) -> bytes:
        """The body of one API under the key and version of another."""
        key, version = self._rng.choice(self.kinds)
        if self._rng.random() < 0.2:
            key, version = self._rng.choice(NUMBERS[2:12]), self._rng.choice(NUMBERS[2:12])
        return struct.pack(">hh", key & 0x7FFF, version & 0x7FFF) + body[4:]

    def _spoiled(self, body: bytes) -> bytes:
        data = bytearray(body)
        for _ in range(self._rng.choice((1, 1, 1, 2, 3, 8))):
            self._rng.choice(SPOILERS)(self._rng, data)
        return bytes(data) + bytes(max(0, 8 - len(data)))


def _at(rng: random.Random, data: bytearray) -> int:
    """Behind the key, the version and the correlation id, so that the frame stays one of its API."""
    return rng.randrange(8, len(data)) if len(data) > 8 else len(data)


def flip(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    if at < len(data):
        data[at] ^= 1 << rng.randrange(8)


def extreme(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    if at < len(data):
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))


def number(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    data[at : at + 4] = struct.pack(">i", rng.choice(NUMBERS))


def cut(rng: random.Random, data: bytearray) -> None:
    del data[_at(rng, data) :]


def remove(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    del data[at : at + rng.choice((1, 2, 4, 8))]


def insert(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8)))


def repeat(rng: random.Random, data: bytearray) -> None:
    start, end = sorted((_at(rng, data), _at(rng, data)))
    data[end:end] = data[start:end][:2000]


SPOILERS: tuple[Callable[[random.Random, bytearray], None], ...] = (flip, extreme, number, cut, remove, insert, repeat)
