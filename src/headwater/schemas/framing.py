"""Which schema a record has, found for many records at once.

Serializers tell the schema of a key or a value in one of two ways. A prefix of five bytes in front of the payload: a
zero and the schema's id. Or the header `__key_schema_id` or `__value_schema_id`: a one and the sixteen bytes of the
schema's GUID (or a zero and an id), and the payload has no prefix. A header goes before a prefix, and the last header
of a name counts. For Protobuf the indexes of the message inside its file follow the id or the GUID.

Headers whose names are not UTF-8 are not looked at: no serializer writes them. pyarrow and numpy are imported at the
first call.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array = npt.NDArray[Any]

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
MAGIC_ID, MAGIC_GUID = 0, 1
PREFIX_BYTES, GUID_BYTES = 5, 16
MAX_INDEXES = 64
"""Longest way to a message inside its file. A longer one is a flaw."""
_END = (1 << 31) - 1
_NO_ID = -1


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """How records name their schema: by id or by GUID. Neither: they do not name one."""

    id: int = _NO_ID
    guid: str = ""

    @property
    def key(self) -> str:
        """The id or the GUID as text; empty if there is neither."""
        return self.guid or (str(self.id) if self.id != _NO_ID else "")

    def __str__(self) -> str:
        if self.guid:
            return f"GUID {self.guid}"
        return f"id {self.id}" if self.key else "no id"


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows with the same schema."""

    schema: SchemaRef
    rows: Array
    """Their numbers, rising."""
    source: pa.BinaryArray = field(repr=False)
    """The whole column."""
    prefix: int = 0
    """The bytes of the prefix."""
    front: bytes = b""
    """What the header has behind the schema: the indexes of a Protobuf message."""

    @property
    def payloads(self) -> pa.BinaryArray:
        """The bytes behind the prefix, in the order of `rows`. For Protobuf the indexes of the message come first."""
        return _cut(self.whole, self.prefix)

    @property
    def whole(self) -> pa.BinaryArray:
        """The same with the prefix, which has `prefix` bytes."""
        taken = _taken(self.source, self.rows)
        return _with_front(self.front, taken) if self.front else taken


@dataclass(frozen=True, slots=True)
class Frames:
    """The rows of a column by schema. Rows without a payload are in none."""

    frames: list[Frame] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    """What is wrong with rows whose header cannot be read."""


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """Rows of a Protobuf schema with the same message."""

    indexes: tuple[int, ...]
    rows: Array
    """Places in the payloads that were given."""
    whole: pa.BinaryArray
    """The payloads, with so many bytes in front of each."""
    front: int

    @property
    def payloads(self) -> pa.BinaryArray:
        """The bytes behind the indexes."""
        return _cut(self.whole, self.front)


def unframed(payloads: pa.BinaryArray) -> Frames:
    """All rows that have a payload, as one frame without a schema."""
    if not len(payloads) or payloads.null_count == len(payloads):
        return Frames()
    rows = _valid_rows(payloads)
    return Frames([Frame(SchemaRef(), rows, payloads)])


def frames_of(payloads: pa.BinaryArray, headers: pa.ListArray, name: str) -> Frames:
    """The rows of a column of keys or values by the schemas that they name, by the header `name` or by a prefix."""
    import numpy as np

    rows = _valid_rows(payloads)
    if not len(rows):
        return Frames()
    found = Frames()
    if headers.null_count < len(headers) and len(headers.values):
        named = _by_header(payloads, headers, name, found)
        rows = rows[~np.isin(rows, named)] if len(named) else rows
    _by_prefix(payloads, rows, found)
    return found


def message_frames(payloads: pa.BinaryArray, front: int = 0) -> tuple[list[MessageFrame], dict[int, str]]:
    """Payloads of a Protobuf schema by the message that their indexes name, and what is wrong.

    The indexes come after `front` bytes. Nearly all have the one byte that means the first message of the file.
    """
    import numpy as np

    lengths, first = _lengths(payloads), _bytes_at(payloads, front)
    plain = np.flatnonzero((lengths > front) & (first == 0))
    frames = []
    if len(plain):
        frames.append(MessageFrame((0,), plain, _taken(payloads, plain), front + 1))
    if len(plain) == len(payloads):
        return frames, {}
    errors: dict[int, str] = {}
    others: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for row in np.flatnonzero((lengths <= front) | (first != 0)).tolist():
        try:
            others.setdefault(read_indexes((payloads[row].as_py() or b"")[front:]), []).append(row)
        except ValueError as error:
            errors[row] = str(error)
    for (indexes, size), numbers in others.items():
        rows = np.array(numbers, dtype=np.int64)
        frames.append(MessageFrame(indexes, rows, _taken(payloads, rows), front + size))
    return frames, errors


def frame_of(payload: bytes, header: bytes | None) -> tuple[SchemaRef, bytes]:
    """The schema that one record names, by the content of its header or by a prefix, and the bytes behind the prefix.

    For Protobuf the indexes of the message come first. A header that names no schema raises `ValueError`.
    """
    if header is not None:
        schema, front = _read_header(header)
        if schema is None:
            raise ValueError("the header names no schema")
        return schema, front + payload
    if len(payload) >= PREFIX_BYTES and payload[0] == MAGIC_ID:
        return SchemaRef(int.from_bytes(payload[1:PREFIX_BYTES], "big")), payload[PREFIX_BYTES:]
    return SchemaRef(), payload


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of a message at the start of some bytes, and how many bytes they take. A flaw raises `ValueError`."""
    count, at = _varint(data, 0)
    if not 0 <= count <= MAX_INDEXES:
        raise ValueError(f"{count} indexes of a message, at most {MAX_INDEXES} are taken")
    if not count:
        return (0,), at
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        if index < 0:
            raise ValueError(f"{index} as the index of a message")
        indexes.append(index)
    return tuple(indexes), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number at a place, and the place behind it."""
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("the indexes of a message are cut off")


def _by_prefix(payloads: pa.BinaryArray, rows: Array, found: Frames) -> None:
    """Add frames for rows by their prefixes. Rows without one go into a frame without a schema."""
    import numpy as np

    if not len(rows):
        return
    ids, same = _ids(payloads)
    if len(rows) < len(ids):
        ids = ids[rows]
        same = bool((ids == ids[0]).all())
    if same:
        number = int(ids[0])
        found.frames.append(Frame(SchemaRef(number), rows, payloads, 0 if number == _NO_ID else PREFIX_BYTES))
        return
    order = np.argsort(ids, kind="stable")
    borders = np.flatnonzero(np.diff(ids[order])) + 1
    for group in np.split(order, borders):
        number = int(ids[group[0]])
        found.frames.append(Frame(SchemaRef(number), rows[group], payloads, 0 if number == _NO_ID else PREFIX_BYTES))


def _by_header(payloads: pa.BinaryArray, headers: pa.ListArray, name: str, found: Frames) -> Array:
    """Add frames for rows by their headers; returns the numbers of all rows that have such a header."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    begin, end = headers.offsets[0].as_py(), headers.offsets[len(headers)].as_py()
    pairs = headers.values.slice(begin, end - begin)
    places: Array = np.flatnonzero(compute.fill_null(compute.equal(pairs.field("key"), name), False).to_numpy(False))
    if not len(places):
        return places
    owners: Array = np.searchsorted(headers.offsets.to_numpy(), places + begin, side="right") - 1
    last = np.flatnonzero(np.append(owners[1:] != owners[:-1], True))
    places, owners = places[last], owners[last]
    present = payloads.is_valid().to_numpy(False)[owners]
    places, owners = places[present], owners[present]
    told = pairs.field("value").take(pa.array(places)).dictionary_encode()
    which = compute.fill_null(told.indices, -1).to_numpy(False)
    order = np.argsort(which, kind="stable")
    contents = told.dictionary.to_pylist()
    for places in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
        number = int(which[places[0]]) if len(places) else -1
        schema, indexes = _read_header(contents[number] if number >= 0 else b"")
        if schema is None:
            found.errors.update(dict.fromkeys(owners[places].tolist(), f"the header {name} names no schema"))
        else:
            found.frames.append(Frame(schema, owners[places], payloads, 0, indexes))
    return owners


def _read_header(content: bytes) -> tuple[SchemaRef | None, bytes]:
    """The schema that a header names, and what follows in it: the indexes of a Protobuf message."""
    if len(content) > GUID_BYTES and content[0] == MAGIC_GUID:
        return SchemaRef(guid=str(uuid.UUID(bytes=content[1 : GUID_BYTES + 1]))), content[GUID_BYTES + 1 :]
    if len(content) >= PREFIX_BYTES and content[0] == MAGIC_ID:
        return SchemaRef(int.from_bytes(content[1:PREFIX_BYTES], "big")), content[PREFIX_BYTES:]
    return None, b""


def _with_front(front: bytes, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Payloads with some bytes in front of each."""
    import pyarrow as pa
    from pyarrow import compute

    return compute.binary_join_element_wise(pa.scalar(front, pa.binary()), payloads, pa.scalar(b"", pa.binary()))


def _ids(payloads: pa.BinaryArray) -> tuple[Array, bool]:
    """The id in the prefix of each row, or -1 if it has none; and whether all are the same."""
    import numpy as np

    from headwater.schemas.decoding.kernels.framing import read_ids

    ids = np.empty(len(payloads), dtype=np.int64)
    return ids, bool(read_ids(_data(payloads), _borders(payloads), ids))


def _bytes_at(payloads: pa.BinaryArray, place: int) -> Array:
    """One byte of each row. Rows that are too short have a zero."""
    import numpy as np

    found = np.zeros(len(payloads), dtype=np.uint8)
    long = np.flatnonzero(_lengths(payloads) > place)
    if len(long):
        found[long] = _data(payloads)[_starts(payloads)[long] + place]
    return found


def _starts(payloads: pa.BinaryArray) -> Array:
    return _borders(payloads)[:-1]


def _lengths(payloads: pa.BinaryArray) -> Array:
    """The length of each row. That of a null row means nothing."""
    import numpy as np

    return np.diff(_borders(payloads))


def _borders(payloads: pa.BinaryArray) -> Array:
    """Where rows begin and end in the data."""
    import numpy as np

    width = np.dtype(np.int32).itemsize
    return _readonly(np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, payloads.offset * width))


def _data(payloads: pa.BinaryArray) -> Array:
    import numpy as np

    held = payloads.buffers()[2]
    return _readonly(np.frombuffer(held, dtype=np.uint8) if held is not None else np.empty(0, dtype=np.uint8))


def _readonly(array: Array) -> Array:
    """Loops are compiled for such arrays only, whatever the buffer is."""
    array.flags.writeable = False
    return array


def _valid_rows(payloads: pa.BinaryArray) -> Array:
    import numpy as np

    if not payloads.null_count:
        return np.arange(len(payloads), dtype=np.int64)
    return np.flatnonzero(payloads.is_valid().to_numpy(False)).astype(np.int64)


def _cut(payloads: pa.BinaryArray, front: int) -> pa.BinaryArray:
    """Payloads without so many bytes in front of each."""
    from pyarrow import compute

    return compute.binary_slice(payloads, front, _END) if front else payloads


def _taken(payloads: pa.BinaryArray, rows: Array) -> pa.BinaryArray:
    """Some rows; all of them without a copy."""
    import pyarrow as pa

    return payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
