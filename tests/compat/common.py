"""What the client tests share: the records, what a client must be able to do, and the checks.

A client test is an adapter (`Writer`, `Reader` or both) and the contracts of `contract.py` run over it.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Protocol

from harness.patience import Patience
from harness.tools import TOOLS, Missing

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
PARTITION = 1
"""Where the tests write: neither the first nor the last, so that a mixed-up index shows."""
DEADLINE_S = 30.0
"""How long a client may take for one call before the test fails."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer got it."""

    partition: int
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class Written:
    """A topic whose partition `PARTITION` holds exactly these records from offset 0."""

    topic: str
    records: Sequence[Record]


class Writer(Protocol):
    """Creates topics and produces, with the client's default settings but for codec and linger."""

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        """Produces the records as one batch and returns the offsets the server gave them."""
        ...

    def as_written(self, record: Record) -> Record:
        """The record as this client's API can express it."""
        ...


class Reader(Protocol):
    """Consumes partitions assigned by hand: no group, no commit."""

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        """`count` records of the partitions in `starts`, each from its offset."""
        ...

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset whose record is not older than the timestamp; None or the end if there is none."""
        ...


def unavailable(what: str, hint: str) -> NoReturn:
    raise Missing(f"{what} is missing: {hint}")


def tool(path: str) -> Path:
    """A file that scripts/setup-tools makes, by its path below `.tools`."""
    found = TOOLS / path
    if not found.exists():
        unavailable(f".tools/{path}", "run scripts/setup-tools")
    return found


def new_topic(purpose: str) -> str:
    return f"compat.{purpose}-{uuid.uuid4().hex[:12]}"


# Recent, so that no retention takes them; a session's start, so that all tests agree.
_START_MS = int(time.time() * 1000) - 3_600_000

_EDGES: tuple[tuple[bytes | None, bytes | None, Headers], ...] = (
    (b"key", b"value", ()),
    (None, b"null key", ()),
    (b"null value", None, ()),
    (None, None, ()),
    (b"", b"empty key", ()),
    (b"empty value", b"", ()),
    (b"", b"", ()),
    (bytes(range(256)), bytes(reversed(range(256))), ()),
    ("ключ".encode(), "значение ✓".encode(), ()),
    (b"one header", b"v", (("name", b"value"),)),
    (b"order and duplicates", b"v", (("b", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"1"))),
    (b"header values", b"v", (("empty", b""), ("binary", b"\xff\xfe\x80"), ("näme", "wërt".encode()))),
    (b"null header", None, (("null", None),)),
    (b"larger", b"0123456789abcdef" * 256, ()),
)


def _sample(count: int) -> tuple[Record, ...]:
    plain = [(b"key-%d" % i, b"value-%d " % i * 8, (("i", b"%d" % i),)) for i in range(len(_EDGES), count)]
    times = [_START_MS + 10 * i for i in range(count)]
    times[20] = times[18] - 5
    times[30] = times[29]
    return tuple(Record(at, *fields) for at, fields in zip(times, [*_EDGES, *plain], strict=True))


SAMPLE = _sample(50)
"""Every kind of record, then plain ones. Below 16 KB together, so that any client sends one batch.

Timestamps are 10 ms apart, but for one that goes back and one that repeats.
"""


def first_not_older(records: Sequence[Record], timestamp: int) -> int:
    """The offset that a lookup by timestamp must give for records written from offset 0."""
    return next(offset for offset, record in enumerate(records) if record.timestamp >= timestamp)


def check(received: Sequence[Received], records: Sequence[Record], first: int = 0, partition: int = PARTITION) -> None:
    """Exactly these records, in order, at the offsets from `first` on."""
    for got, (offset, record) in zip(received, enumerate(records, first), strict=False):
        assert got == Received(partition, offset, record)
    assert len(received) == len(records)


class Deadline:
    """Says when a polling loop has taken too long."""

    def __init__(self, what: str, seconds: float = DEADLINE_S) -> None:
        self._what = what
        self._patience = Patience(seconds)

    def check(self) -> None:
        if self._patience.ended:
            raise TimeoutError(f"gave up: {self._what}")


def key_or_value(record: Record) -> Record:
    """The record for clients that refuse one without both key and value: an empty value instead."""
    return replace(record, value=b"") if record.key is None and record.value is None else record
