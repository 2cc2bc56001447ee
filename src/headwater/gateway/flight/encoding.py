"""Arrow data as Flight carries it: a message of the schema, then messages of rows, small enough for every driver."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.errors import BadInput
from headwater.query.asking import Value

if TYPE_CHECKING:
    import pyarrow as pa

MAX_MESSAGE_BYTES = 2 << 20
"""Bytes of rows in one message, unless one row has more. Go's drivers take messages of up to 16 MB."""
_HEADER, _BODY = b"\x12", b"\xc2\x3e"
"""The tags of the fields 2 and 1000 of `FlightData`."""
_DICTIONARY, _ROWS = 2, 3
"""Kinds of messages."""
_CONTINUES = b"\xff\xff\xff\xff"


def schema_bytes(schema: pa.Schema) -> bytes:
    """A schema as the messages of Flight SQL have it."""
    data: bytes = schema.serialize().to_pybytes()
    return data


def plain(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns are not encoded by dictionaries, which drivers read badly."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def schema_frame(schema: pa.Schema) -> bytes:
    """The first message of a stream."""
    return _frame(schema.serialize())


def frames(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[bytes]:
    """The rows of a batch as messages. `schema` is that of the stream."""
    if batch.schema != schema:
        batch = batch.cast(schema)
    step = max(1, batch.num_rows * MAX_MESSAGE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield _frame(batch.slice(start, step).serialize())


def _frame(encapsulated: pa.Buffer) -> bytes:
    """A message of Arrow's stream format as `FlightData`. It is put together by hand, so that rows are copied once."""
    import pyarrow as pa

    message = pa.ipc.read_message(encapsulated)
    head, body = message.metadata, message.body
    parts = [_HEADER, _varint(head.size), head]
    if body is not None and body.size:
        parts += [_BODY, _varint(body.size), body]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def values_of(messages: Iterable[tuple[bytes, bytes]]) -> tuple[Value, ...]:
    """The parameters of a statement, from the heads and bodies of a client's messages: one row, a column for each."""
    import pyarrow as pa

    stream = bytearray()
    for head, body in messages:
        _check_plain(head)
        padding = -len(head) % 8
        stream += _CONTINUES + struct.pack("<i", len(head) + padding) + head + bytes(padding) + body
    try:
        with pa.ipc.open_stream(bytes(stream)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise BadInput(f"the parameters are not Arrow's stream format: {str(error)[:200]}") from None
    if table.num_rows != 1:
        raise BadInput(f"a statement takes one set of parameters at a time, not {table.num_rows}: run it once for each")
    return tuple(_value(column[0]) for column in table.columns)


def _check_plain(head: bytes) -> None:
    """Raise `BadInput` for rows that are compressed. A few kilobytes of them may open to gigabytes, and no driver
    compresses parameters.

    The head is a flatbuffer: a table `Message` with its kind (slot 1) and the table of that kind (slot 2), which has
    the compression in slot 3 if it is of rows.
    """
    try:
        [root] = struct.unpack_from("<I", head)
        kind, table = _slot(head, root, 1), _slot(head, root, 2)
        if kind is None or table is None or head[kind] not in (_DICTIONARY, _ROWS):
            return
        rows = table + struct.unpack_from("<I", head, table)[0]
        if head[kind] == _DICTIONARY or _slot(head, rows, 3) is not None:
            raise BadInput("parameters must be neither compressed nor encoded by a dictionary")
    except (struct.error, IndexError):
        raise BadInput("the parameters are not Arrow's stream format") from None


def _slot(head: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer's table is; None if the table does not have it."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    [size] = struct.unpack_from("<H", head, vtable)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", head, vtable + at)[0] if at + 2 <= size else 0
    return table + offset if offset else None


def _value(scalar: pa.Scalar) -> Value:
    """What an engine gets for a parameter. Times, dates and decimals become text, which engines convert."""
    import pyarrow as pa

    if pa.types.is_union(scalar.type):
        return _value(scalar.value)
    if pa.types.is_nested(scalar.type):
        raise BadInput(f"a parameter cannot be of the type {scalar.type}")
    if pa.types.is_temporal(scalar.type) or pa.types.is_decimal(scalar.type):
        return str(scalar) if scalar.is_valid else None
    value: Value = scalar.as_py()
    return value
