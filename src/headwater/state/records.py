"""Ledger records. A record has its writer's epoch, a counter of the writer, the writer's clocks, and commands.

A record's bytes are its format number u8, a CRC32C u32 (big endian) of what follows, and the record as MessagePack.

Checkpoints and the file of a SQLite ledger have the same format number. A build reads one format only, and refuses the
others before it changes anything.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec
from crc32c import crc32c

from headwater.errors import Halted
from headwater.state.commands.access import AccessCommand
from headwater.state.commands.base import CommonCommand
from headwater.state.commands.cluster import ClusterCommand
from headwater.state.commands.columns import ColumnsCommand
from headwater.state.commands.groups import GroupsCommand
from headwater.state.commands.holds import HoldsCommand
from headwater.state.commands.links import LinksCommand
from headwater.state.commands.rotation import RotationCommand
from headwater.state.commands.schemas import SchemasCommand
from headwater.state.commands.streams import StreamsCommand
from headwater.state.commands.tables import TablesCommand
from headwater.state.commands.transactions import TransactionsCommand

Command: TypeAlias = (
    CommonCommand
    | ClusterCommand
    | AccessCommand
    | RotationCommand
    | StreamsCommand
    | TablesCommand
    | GroupsCommand
    | TransactionsCommand
    | HoldsCommand
    | LinksCommand
    | SchemasCommand
    | ColumnsCommand
)

FORMAT = 3
"""The only format that this build reads and writes."""
_PREFIX = struct.Struct(">BI")


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One entry of a ledger."""

    epoch: int
    counter: int
    clock_ms: int
    """The wall clock."""
    steady_ms: int
    """A clock that nobody sets and that never goes back. Only differences between records of one epoch count."""
    commands: list[Command]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def _framed(body: bytes) -> bytes:
    return _PREFIX.pack(FORMAT, crc32c(body)) + body


def other_format(what: str, found: int) -> str:
    """The text for users whose data has another format."""
    return (
        f"{what} has format {found}, and this build of Headwater reads format {FORMAT} only. Nothing was changed. Use "
        "the build that wrote it. Before the first release no build converts data: to go on with this one, start with "
        "an empty data directory, ledger and bucket. To keep the records, serve the old data with the build that wrote "
        "it and copy its topics with a link or another Kafka client"
    )


def encode(record: Record) -> bytes:
    """A record's bytes in the ledger."""
    return _framed(_encoder.encode(record))


def decode(data: bytes) -> Record:
    """Decode a record. A record that is damaged or has another format raises `Halted`."""
    if len(data) < _PREFIX.size:
        raise Halted(f"a ledger record of {len(data)} bytes is damaged")
    number, crc = _PREFIX.unpack_from(data)
    if number != FORMAT:
        raise Halted(other_format("the ledger record", number))
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise Halted("a ledger record is damaged: its CRC does not match its bytes")
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Halted(f"a ledger record is of a newer build ({error}); use the build that wrote it") from error


def encode_command(command: Command) -> msgspec.Raw:
    """A command's bytes inside a record."""
    return msgspec.Raw(_encoder.encode(command))


def encode_record(epoch: int, counter: int, clock_ms: int, steady_ms: int, commands: list[msgspec.Raw]) -> bytes:
    """The bytes of a `Record` whose commands are encoded already."""
    return _framed(_encoder.encode((epoch, counter, clock_ms, steady_ms, commands)))
