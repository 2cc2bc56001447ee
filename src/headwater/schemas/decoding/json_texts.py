"""JSON texts become an Arrow array of a shape, which comes from a schema or from the texts themselves.

Nothing is changed on the way: a number that its column cannot hold exactly, a value of another type, half of a
surrogate pair or a name that occurs twice in an object makes the row a bad one. An empty list or object of another type
is null. A field that the shape does not have is passed over.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from headwater.native.bytes import Array
from headwater.schemas.decoding import conversions
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.slots import Layout, Node, Payloads, Slots, decode
from headwater.schemas.shapes import Shape, digits

if TYPE_CHECKING:
    import pyarrow as pa

CACHED_SHAPES = 64


class Texts:
    """The nodes, names and table of names of a shape."""

    def __init__(self, shape: Shape) -> None:
        from headwater.schemas.decoding.kernels import json

        self.shape = shape
        self.layout = Layout(json.COLUMNS)
        self._names = bytearray()
        self._fields: list[Node] = []
        self._add(shape, 0, "")
        self.names = np.frombuffer(bytes(self._names) or b"\0", np.uint8)
        size = 8
        while size < 2 * len(self._fields):
            size *= 2
        self.table = np.full(size, -1, np.int64)
        for node in self._fields:
            start, length = node.own[json.NAME], node.own[json.NAME_SIZE]
            place = json.hash_name(self.names, start, start + length, node.own[json.PARENT]) & (size - 1)
            while self.table[place] >= 0:
                place = (place + 1) & (size - 1)
            self.table[place] = node.index

    def _add(self, shape: Shape, pool: int, place: str) -> Node:
        import pyarrow as pa

        from headwater.schemas.decoding.kernels import json, json_values
        from headwater.schemas.decoding.kernels import slots as kernel

        kind = shape.kind
        node = Node(shape, "span", pool, place)
        self.layout.add(node)
        if kind == "struct":
            node.form, node.op = "struct", json.STRUCT
            firsts: dict[str, Node] = {}
            order: list[Node] = []
            for field in shape.fields:
                child = self._add(field.shape, pool, f"{place}.{field.name}" if place else field.name)
                node.children.append(child)
                if field.name in firsts:
                    before = firsts[field.name]
                    while json.VARIANT in before.own:
                        before = self.layout.nodes[before.own[json.VARIANT]]
                    before.own[json.VARIANT] = child.index
                    continue
                firsts[field.name] = child
                order.append(child)
                name = field.name.encode()
                child.own |= {
                    json.NAME: len(self._names),
                    json.NAME_SIZE: len(name),
                    json.PARENT: node.index,
                    json.IS_PLAIN: int(json_values.is_plain(name)),
                }
                self._names += name
                self._fields.append(child)
            if order:
                node.own[kernel.CHILD] = order[0].index
            for at, child in enumerate(order):
                child.own[kernel.NEXT] = order[at + 1].index if at + 1 < len(order) else -1
        elif kind in ("list", "map"):
            node.form, node.op = "list", json.LIST if kind == "list" else json.MAP
            node.inner = self.layout.new_pool()
            for field in shape.fields:
                node.children.append(self._add(field.shape, node.inner, f"{place}[]"))
        elif kind in _NUMBERS:
            node.form, node.op = "number", _NUMBERS[kind]()
            if kind == "float":
                node.reads, node.convert = pa.float64(), conversions.float32
        elif kind == "null":
            node.form, node.op = "nothing", json.NOTHING
        elif kind == "json":
            node.op = json.TEXT
        elif (precision := digits(kind)) is not None:
            node.op = json.REAL if precision[1] else json.DIGITS
            node.reads, node.convert = pa.string(), functools.partial(conversions.decimal, *precision)
        else:
            node.op = json.STRING
            if kind in conversions.FROM_TEXT:
                node.reads, node.convert = pa.string(), conversions.FROM_TEXT[kind]
        return node

    def decode(self, payloads: pa.Array, front: int = 0) -> Decoded:
        """Decode payloads. A field that the shape does not have, and the `front` of each payload, are passed over."""
        return self.try_out(payloads, strict=False, front=front)[0]

    def try_out(self, payloads: pa.Array, strict: bool, front: int = 0) -> tuple[Decoded, dict[int, int]]:
        """Decode payloads; also the codes of the flaws, by row. With `strict`, an unknown field is a flaw."""
        from headwater.schemas.decoding.kernels import json, json_values
        from headwater.schemas.decoding.kernels import slots as kernel

        given = Payloads(payloads, front)
        late = np.empty((len(given.data) // 3 + 1, json.LATE_NUMBERS), np.int64)
        longest = int(np.diff(given.offsets).max(initial=0))
        scratch = np.empty(longest + 1, np.uint8)
        kinds, found = np.zeros(json_values.MAX_DEPTH, np.uint8), np.zeros(json_values.FOUND_NUMBERS, np.int64)
        stack = np.zeros(3 * json.MAX_LEVELS, np.int64)
        codes: dict[int, int] = {}
        count = 0

        def step(slots: Slots, flaws: Array, state: Array) -> int:
            nonlocal count
            result = json.read_texts(
                given.data,
                given.offsets,
                given.front,
                given.skip,
                strict,
                slots.nodes,
                self.names,
                self.table,
                slots.slots,
                slots.valid,
                slots.used,
                slots.saved,
                slots.capacity,
                late,
                flaws,
                scratch,
                kinds,
                found,
                stack,
                state,
            )
            count = int(state[kernel.LATE])
            codes.clear()
            codes.update((row, code) for row, code, _, _ in flaws[: state[kernel.FLAWED]].tolist())
            return result

        def finish(slots: Slots) -> list[tuple[int, str]]:
            return _finish(slots, late[:count])

        def describe(code: int, node: int, at: int) -> str:
            text = json_values.FLAWS[code]
            place = self.layout.nodes[node].place if node >= 0 else ""
            return f"{place + ': ' if place else ''}{text} (byte {at})"

        size, large = len(self.layout.nodes), json_values.TOO_LARGE
        decoded = decode(given, self.layout, step, json_values.gather_strings, describe, large, size, finish)
        return decoded, codes


def _finish(slots: Slots, late: Array) -> list[tuple[int, str]]:
    """Convert the numbers with many digits or large exponents, which the loop leaves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.schemas.decoding.kernels import slots as kernel

    if not len(late):
        return []
    starts, lengths = np.ascontiguousarray(late[:, 2]), np.ascontiguousarray(late[:, 3])
    ends, target = np.empty(len(late) + 1, np.int32), np.empty(int(lengths.sum()), np.uint8)
    kernel.gather(slots.data, starts, lengths, ends, target)
    texts = pa.Array.from_buffers(pa.string(), len(late), [None, pa.py_buffer(ends), pa.py_buffer(target)], 0)
    values = pc.cast(texts, pa.float64()).to_numpy()
    places = slots.nodes[late[:, 0], kernel.BASE] + late[:, 1]
    slots.slots[places] = values.view(np.int64)
    return [
        (int(late[at, 4]), f"{slots.layout.nodes[int(late[at, 0])].place}: the number is too large for 64 bits")
        for at in np.flatnonzero(~np.isfinite(values)).tolist()
    ]


def _op(name: str) -> int:
    from headwater.schemas.decoding.kernels import json

    return int(getattr(json, name))


_NUMBERS = {
    "boolean": lambda: _op("BOOLEAN"),
    "int": lambda: _op("INT"),
    "long": lambda: _op("LONG"),
    "float": lambda: _op("DOUBLE"),
    "double": lambda: _op("DOUBLE"),
}


@functools.lru_cache(maxsize=CACHED_SHAPES)
def texts_of(shape: Shape) -> Texts:
    """The nodes of a shape. The last ones are kept."""
    return Texts(shape)
