"""Protobuf's wire format, by the writer's schema.

A field without a value is null if the schema can tell that from a zero, else it is zero. Fields that the schema does
not have are passed over. What has no columns of its own, such as the depths of a recursive message, is read by
Protobuf's library and becomes JSON by Protobuf's rules. The library also puts payloads in order whose parts are
scattered.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.native.bytes import Array
from headwater.schemas.decoding import conversions
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.slots import MAX_TEXT, TWICE, Bad, Convert, Layout, Node, Payloads, Slots
from headwater.schemas.decoding.slots import decode as run
from headwater.schemas.leftovers import texts
from headwater.schemas.shapes import JSON, Field, Shape, list_of, map_of

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_OPS = {
    1: "DOUBLE",
    2: "FLOAT",
    3: "INT64",
    4: "INT64",
    5: "INT32",
    6: "FIXED64",
    7: "FIXED32",
    8: "BOOL",
    9: "STRING",
    12: "BYTES",
    13: "UINT32",
    14: "INT32",
    15: "SFIXED32",
    16: "FIXED64",
    17: "SINT32",
    18: "SINT64",
}
"""Kinds of fields, by the numbers that descriptors have for types."""
_UNSIGNED = (4, 6)
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The seconds that a Timestamp may have: the years 1 to 9999."""


class Messages:
    """A message type as tables; see `kernels/protobuf.py`. `descriptor` is one of Protobuf's library."""

    def __init__(self, descriptor: Any, shape: Shape) -> None:
        from google.protobuf import message_factory

        from headwater.schemas.decoding.kernels import protobuf as kernel

        self.shape = shape
        self.layout = Layout(kernel.COLUMNS)
        self._class = message_factory.GetMessageClass(descriptor)
        self._entries: list[list[list[int]]] = []
        self._marks: list[list[int]] = []
        self._members: list[int] = []
        self._json = _json(descriptor) if shape.kind == "json" else None
        if shape.kind == "struct":
            self._message(descriptor, self.layout.add(Node(shape, "struct", 0, "")), shape.fields)
        elif self._json is None:
            self._joined(descriptor, shape, 0, "")
        width = kernel.MESSAGE_WIDTH
        self._message_table = np.zeros((len(self._entries), width), np.int64)
        entries: list[list[int]] = []
        marks: list[int] = []
        for row, own, marked in zip(self._message_table, self._entries, self._marks, strict=True):
            row[:] = (len(entries), len(own), len(marks), len(marked))
            entries.extend(sorted(own))
            marks.extend(marked)
        self._entry_table = np.zeros((max(len(entries), 1), kernel.ENTRY), np.int64)
        for line, entry in zip(self._entry_table, entries, strict=False):
            line[: kernel.TAG] = entry
            line[kernel.TAG] = entry[kernel.NUMBER] << 3 | kernel.wire_type(entry[kernel.OP])
            line[kernel.PLAIN] = entry[kernel.LIST] < 0 and entry[kernel.ONEOF] < 0 and entry[kernel.OP] <= kernel.BYTES
        self._mark_table = np.array(marks or [0], np.int64)
        self._member_table = np.array(self._members or [-1], np.int64)

    def decode(self, payloads: pa.Array, front: int = 0) -> Decoded:
        """Decode payloads of the message type. So many bytes at the front of each are passed over."""
        import pyarrow as pa

        if self._json is not None:
            array, bad = self._json(_cut(payloads, front))
            return Decoded(array, bad)
        decoded, odd = self._run(payloads, front)
        if not odd:
            return decoded
        mended = _cut(payloads, front).to_pylist()
        errors = dict(decoded.errors)
        for row in odd:
            mended[row], errors[row] = self._in_order(mended[row])
            if not errors[row]:
                del errors[row]
        decoded, _ = self._run(pa.array(mended, payloads.type))
        for row, text in decoded.errors.items():
            errors.setdefault(row, text)
        return Decoded(decoded.array, dict(sorted(errors.items())))

    def _run(self, payloads: pa.Array, front: int = 0) -> tuple[Decoded, list[int]]:
        """Decode payloads; also the rows that are odd."""
        from headwater.schemas.decoding.kernels import protobuf as kernel
        from headwater.schemas.decoding.kernels.slots import BASE, FLAWED, INNER, ROW, SECOND, VALID, gather

        given = Payloads(payloads, front)
        entries = self._entry_table.copy()
        marks = self._mark_table[: self._message_table[0, kernel.MARK_COUNT]].tolist()
        stack, groups = np.zeros(kernel.FRAME * kernel.MAX_DEPTH, np.int64), np.zeros(kernel.MAX_DEPTH, np.int64)
        odd: list[int] = []

        def step(slots: Slots, flaws: Array, state: Array) -> int:
            own = slots.nodes[entries[:, kernel.NODE]]
            entries[:, kernel.ENTRY_BASE : kernel.LIST_BASE] = own[:, [BASE, SECOND, VALID]]
            entries[:, kernel.LIST_BASE :] = slots.nodes[entries[:, kernel.LIST]][:, [BASE, INNER]]
            for node in (0, *marks):
                slots.marks(self.layout.nodes[node])[state[ROW] :] = given.skip[state[ROW] :] == 0
            result = kernel.read_payloads(
                given.data,
                given.offsets,
                given.front,
                given.skip,
                entries,
                self._message_table,
                self._mark_table,
                self._member_table,
                slots.nodes,
                slots.slots,
                slots.valid,
                slots.used,
                slots.saved,
                slots.capacity,
                stack,
                groups,
                flaws,
                state,
            )
            odd[:] = [row for row, code, _, _ in flaws[: state[FLAWED]].tolist() if code == kernel.ODD]
            return result

        def describe(code: int, node: int, at: int) -> str:
            place = self.layout.nodes[node].place if node >= 0 else ""
            return f"{place + ': ' if place else ''}{kernel.FLAWS[code]} (byte {at})"

        size = len(entries) + len(self._mark_table) + kernel.SPARE_MARKS
        decoded = run(given, self.layout, step, gather, describe, kernel.TOO_LARGE, size)
        odd.extend(row for row, text in decoded.errors.items() if text.endswith(TWICE))  # the last one counts
        return decoded, odd

    def _in_order(self, payload: bytes) -> tuple[bytes | None, str]:
        """A payload as Protobuf's library writes it, or the flaw that it finds."""
        from google.protobuf.message import DecodeError, EncodeError

        try:
            message = self._class.FromString(payload)
            message.DiscardUnknownFields()
            return message.SerializePartialToString(), ""
        except (DecodeError, EncodeError, ValueError) as error:
            return None, str(error)

    def _message(self, descriptor: Any, parent: Node, fields: tuple[Field, ...]) -> int:
        """The row of a message. Nodes of its fields are added to `parent`."""
        number = len(self._entries)
        self._entries.append([])
        self._marks.append([])
        shapes = {field.name: field.shape for field in fields}
        oneofs: dict[str, list[tuple[int, Node, bool]]] = {}
        for field in descriptor.fields:
            place = f"{parent.place}.{field.name}" if parent.place else field.name
            at = len(self._entries[number])
            if _is_repeated(field):
                node = self._list(number, field, shapes[field.name], parent.pool, place)
                self._marks[number].append(node.index)
            else:
                node = self._one(number, field, shapes[field.name], parent.pool, place, -1)
                if not field.has_presence:
                    self._marks[number].append(node.index)
                if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
                    nested = field.type in (_GROUP, _MESSAGE)
                    oneofs.setdefault(field.containing_oneof.name, []).append((at, node, nested))
            parent.children.append(node)
        for members in oneofs.values():
            start = len(self._members)
            for at, node, nested in members:
                self._members += [node.index, int(nested)]
                self._entries[number][at][4] = start
            self._members.append(-1)
        return number

    def _entry(self, message: int, field: Any, op: str, node: int, within: int, inside: int = -1) -> None:
        from headwater.schemas.decoding.kernels import protobuf as kernel

        self._entries[message].append([field.number, getattr(kernel, op), node, within, -1, inside])

    def _one(self, message: int, field: Any, shape: Shape, pool: int, place: str, within: int) -> Node:
        """The node of one value of a field, and the field's entry in a message. `within` is the node of its list."""
        import pyarrow as pa

        if field.type not in (_GROUP, _MESSAGE):
            node = self.layout.add(Node(shape, "number", pool, place))
            if field.type == _ENUM:
                names: dict[int, str] = {}
                for value in field.enum_type.values:
                    names.setdefault(value.number, value.name)
                node.reads, node.convert = pa.int64(), functools.partial(_enum, names)
            elif _OPS[field.type] in ("STRING", "BYTES"):
                node.form = "span"
            elif field.type in _UNSIGNED:
                node.reads, node.convert = pa.uint64(), _unsigned
            if shape.kind == "string" and field.type not in (9, _ENUM):  # the key of a map
                node.reads, node.convert = _key_type(field.type), _as_text
            self._entry(message, field, _OPS[field.type], node.index, within)
            return node
        group = field.type == _GROUP
        inner = field.message_type
        if shape.kind == "struct":
            node = self.layout.add(Node(shape, "struct", pool, place))
            inside = self._message(inner, node, shape.fields)
        elif shape.kind != "json":
            node, inside = self._joined(inner, shape, pool, place)
        else:
            node = self.layout.add(Node(shape, "span", pool, place, reads=pa.binary(), convert=_json(inner)))
            self._entry(message, field, "TEXT_GROUP" if group else "TEXT", node.index, within)
            return node
        self._entry(message, field, "GROUP" if group else "MESSAGE", node.index, within, inside)
        return node

    def _joined(self, descriptor: Any, shape: Shape, pool: int, place: str) -> tuple[Node, int]:
        """The node and the row of a message whose fields become one value: a time or a wrapper."""
        parts = {"seconds": Shape("long"), "nanos": Shape("int"), "value": shape}
        join = _moments if shape.kind == "timestamptz" else _unwrapped
        node = self.layout.add(Node(shape, "joined", pool, place, join=join))
        fields = tuple(Field(field.name, parts[field.name]) for field in descriptor.fields)
        return node, self._message(descriptor, node, fields)

    def _list(self, message: int, field: Any, shape: Shape, pool: int, place: str) -> Node:
        """The node of a repeated field or of a map, and its entry."""
        entry = field.message_type if field.type == _MESSAGE and field.message_type.GetOptions().map_entry else None
        convert: Convert | None = None
        if shape.kind == "json":
            value = entry.fields_by_name["value"] if entry is not None else field
            inner = _scalar_shape(value)
            whole = map_of(inner) if entry is not None else list_of(inner)
            shape, convert = whole, functools.partial(_texts, whole)
        becomes = JSON if convert is not None else None
        inner_pool = self.layout.new_pool()
        node = Node(shape, "list", pool, place, inner=inner_pool, convert=convert, becomes=becomes)
        self.layout.add(node)
        if entry is None:
            node.children.append(self._one(message, field, shape.fields[0].shape, node.inner, f"{place}[]", node.index))
            return node
        holder = Node(shape, "struct", node.inner, f"{place}[]")
        parts = {part.name: part.shape for part in shape.fields}
        inside = len(self._entries)
        self._entries.append([])
        self._marks.append([])
        for part in (entry.fields_by_name["key"], entry.fields_by_name["value"]):
            child = self._one(inside, part, parts[part.name], node.inner, holder.place, -1)
            node.children.append(child)
            self._marks[inside].append(child.index)
            if self._entries[inside][-1][5] >= 0:
                self._marks[inside].extend(self._marks[self._entries[inside][-1][5]])
        self._entry(message, field, "MESSAGE", -1, node.index, inside)
        return node


def _cut(payloads: pa.Array, front: int) -> pa.Array:
    """Payloads without so many bytes at the front of each."""
    from pyarrow import compute

    return compute.binary_slice(payloads, front, MAX_TEXT) if front else payloads


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _scalar_shape(field: Any) -> Shape:
    """The shape of a value that becomes JSON with others."""
    kinds = {1: "double", 2: "float", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)", 8: "boolean", 9: "string"}
    kinds |= {12: "binary", 14: "string", 15: "int", 17: "int"}
    return JSON if field.type in (_GROUP, _MESSAGE) else Shape(kinds.get(field.type, "long"))


def _texts(shape: Shape, array: pa.Array) -> tuple[pa.Array, Bad]:
    """Lists and maps become JSON text; empty ones become null."""
    import pyarrow as pa

    return pa.array([None if text in ("[]", "{}") else text for text in texts(array, shape)], pa.string()), {}


def _enum(names: dict[int, str], array: pa.Array) -> tuple[pa.Array, Bad]:
    """Numbers of an enum become names; a number without a name is text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.array(list(names), pa.int64())
    found = pc.index_in(array, value_set=numbers)
    named = pa.array(list(names.values()), pa.string()).take(found)
    if named.null_count > array.null_count:
        named = pc.coalesce(named, array.cast(pa.string()))
    return named, {}


def _unsigned(array: pa.Array) -> tuple[pa.Array, Bad]:
    import pyarrow as pa

    return array.cast(pa.decimal128(20, 0)), {}


def _key_type(kind: int) -> pa.DataType:
    import pyarrow as pa

    return pa.bool_() if kind == 8 else pa.uint64() if kind in _UNSIGNED else pa.int64()


def _as_text(array: pa.Array) -> tuple[pa.Array, Bad]:
    import pyarrow as pa

    return array.cast(pa.string()), {}


def _unwrapped(children: list[pa.Array], valid: Array) -> tuple[pa.Array, Bad]:
    """A wrapper is its only field."""
    return children[0], {}


def _moments(children: list[pa.Array], valid: Array) -> tuple[pa.Array, Bad]:
    """Seconds and nanoseconds become a time in microseconds."""
    import pyarrow as pa

    seconds, nanos = (child.fill_null(0).to_numpy() for child in children)
    wrong = (seconds < _SECONDS[0]) | (seconds > _SECONDS[1]) | (nanos < 0) | (nanos > 999_999_999)
    bad = {int(at): "the time is out of range" for at in np.flatnonzero(wrong)}
    times = np.where(wrong, 0, seconds) * 1_000_000 + nanos // 1_000
    return pa.array(times, pa.timestamp("us", tz="UTC"), mask=valid == 0), bad


def _json(descriptor: Any) -> Convert:
    """A conversion from the bytes of messages to JSON text, by Protobuf's library."""
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    kind = message_factory.GetMessageClass(descriptor)

    def one(value: bytes) -> str:
        try:
            return conversions.json_text(_data(kind.FromString(value), json_format), sort=True)
        except (DecodeError, json_format.Error) as error:
            raise ValueError(str(error)) from None

    def convert(array: pa.Array) -> tuple[pa.Array, Bad]:
        import pyarrow as pa

        return conversions.each(array, pa.string(), one)

    return convert


def _data(message: Any, json_format: Any) -> Any:
    try:
        pool = message.DESCRIPTOR.file.pool
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except TypeError:
        if message.DESCRIPTOR.full_name != "google.protobuf.Any":
            raise
        return {"@type": message.type_url, "value": message.value}  # a type that the schema does not have
