"""What a gateway and its worker say to each other over a pair of sockets: frames of a length, a kind and a body.

The gateway sends `SETUP` once. The worker answers `READY`. Then, for one query at a time, the gateway sends `TASK` and
maybe `CANCEL`; the worker answers `COLUMNS`, any number of `ROWS` and `PROGRESS`, and one `DONE` or `FAILED`. A worker
whose socket is closed ends. A `CANCEL` that comes when the query is over has no effect, because it names the query.
"""

from __future__ import annotations

import enum
import socket
import struct
import threading

import msgspec

from headwater.errors import BadInput
from headwater.settings.objects import StoreOptions
from headwater.types import Buffer

HEAD = struct.Struct(">IB")
MAX_FRAME = 64 << 20
"""The longest body. A task with more files than fit, or a row that is larger, is refused."""
GOAL_BYTES = 1 << 20
"""Rows are sent in frames of about this size."""


class Kind(enum.IntEnum):
    """Kinds of frames."""

    SETUP = 1
    TASK = 2
    CANCEL = 3
    READY = 4
    COLUMNS = 5
    ROWS = 6
    PROGRESS = 7
    DONE = 8
    FAILED = 9


class Setup(msgspec.Struct, frozen=True):
    """What a worker works with, for as long as it lives."""

    store: str
    """The object store's URL."""
    options: StoreOptions
    spill: str
    """A directory of the worker's own. It exists."""
    memory_bytes: int
    spill_bytes: int
    hot_bytes: int
    threads: int
    niceness: int
    log_level: str
    functions: tuple[str, ...] = ()
    """Functions that are allowed beside those of the list."""
    jars: tuple[str, ...] = ()
    """More classes for Spark's Java: files and directories."""


class Why(enum.StrEnum):
    """Kinds of failures."""

    FAILED = "failed"
    REFUSED = "refused"
    TOO_MUCH = "too much"
    CANCELLED = "cancelled"
    GONE = "gone"
    CORRUPT = "corrupt"
    UNAVAILABLE = "unavailable"
    SCHEMAS = "schemas"


class Failure(msgspec.Struct, frozen=True):
    """The end of a query that did not give all of its rows."""

    why: Why
    message: str
    table: str = ""
    names: tuple[str, ...] = ()
    """With `SCHEMAS`, the view and the names of the schemas that its rows need."""


class FrameTooLong(BadInput):
    """A task or a row does not fit into a frame."""


def head_of(data: bytes) -> tuple[Kind, int]:
    """The kind and the length of the body of a frame."""
    length, kind = HEAD.unpack(data)
    if length > MAX_FRAME:
        raise FrameTooLong(f"a frame of {length} bytes is longer than {MAX_FRAME}")
    return Kind(kind), length


def framed(kind: Kind, body: Buffer = b"") -> bytes:
    """The head of a frame with this body."""
    length = memoryview(body).nbytes
    if length > MAX_FRAME:
        raise FrameTooLong(f"a frame of {length} bytes is longer than {MAX_FRAME}")
    return HEAD.pack(length, kind)


class Channel:
    """The worker's end. One thread receives; several may send."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._sending = threading.Lock()

    def __repr__(self) -> str:
        return f"<Channel {self._socket.fileno()}>"

    def send(self, kind: Kind, body: Buffer = b"") -> None:
        """Send a frame. Blocks while the gateway does not read."""
        head = framed(kind, body)
        with self._sending:
            self._socket.sendall(head)
            self._socket.sendall(body)

    def receive(self) -> tuple[Kind, bytes] | None:
        """The next frame; None if the gateway has closed its end."""
        head = self._exactly(HEAD.size)
        if head is None:
            return None
        kind, length = head_of(head)
        body = self._exactly(length)
        return None if body is None else (kind, body)

    def _exactly(self, length: int) -> bytes | None:
        data = bytearray(length)
        view, at = memoryview(data), 0
        while at < length:
            got = self._socket.recv_into(view[at:])
            if not got:
                return None
            at += got
        return bytes(data)
