"""Avro's binary encoding, by the writer's schema.

A payload must be one value and no more. fastavro reads the values that have no columns of their own, such as the depths
of a recursive type; they become JSON text.
"""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.native.bytes import Array
from headwater.schemas.decoding import conversions
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.slots import Bad, Convert, Layout, Node, Payloads, Slots
from headwater.schemas.decoding.slots import decode as run
from headwater.schemas.shapes import Shape, digits

if TYPE_CHECKING:
    import pyarrow as pa

Tree = Any
"""A schema of Avro as JSON data."""
_KINDS = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "fixed",
    "enum",
    "null",
    "record",
    "union",
    "array",
    "map",
]
_MILLIS, _MICROS, _NANOS = (1_000, 1), (1, 1), (1, 1_000)
_UNITS = {"millis": _MILLIS, "micros": _MICROS, "nanos": _NANOS}
_PLAIN = {
    "boolean": ("boolean",),
    "int": ("int", "date"),
    "long": ("long",),
    "float": ("float",),
    "double": ("double",),
    "bytes": ("binary",),
    "fixed": ("binary",),
    "string": ("string",),
}
"""By type of Avro, the shapes that its values have without a conversion."""


class Program:
    """A schema as a program of steps; see `kernels/avro.py`."""

    def __init__(self, tree: Tree, shape: Shape) -> None:
        from headwater.schemas.decoding.kernels import avro as kernel

        self.shape = shape
        self.layout = Layout(kernel.COLUMNS)
        self._definitions: dict[str, Tree] = {}
        self._define(tree)
        self._steps: list[list[int]] = []
        self._jumps: list[int] = []
        self._types: list[list[int]] = []
        self._links: list[list[int]] = []
        self._numbers: dict[str, int] = {}
        self._write(tree, shape, 0, "")
        self._step(kernel.END)
        self._program = np.zeros((len(self._steps), kernel.LINE), np.int64)
        self._program[:, : kernel.STEP_POOL] = self._steps
        self._jump_table = np.array(self._jumps or [0], np.int64)
        self._type_table = np.array(self._types or [[0] * kernel.WIDTH], np.int64)
        flat: list[int] = []
        for row, parts in zip(self._type_table, self._links, strict=False):
            row[kernel.LINK] = len(flat)
            flat.extend(parts)
        self._link_table = np.array(flat or [0], np.int64)

    def decode(self, payloads: pa.Array, front: int = 0) -> Decoded:
        """Decode payloads of the schema. So many bytes at the front of each are passed over."""
        from headwater.schemas.decoding.kernels import avro as kernel
        from headwater.schemas.decoding.kernels.slots import BASE, POOL, SECOND, VALID, gather

        of_nodes = [POOL, BASE, SECOND, VALID]
        given = Payloads(payloads, front)
        program = self._program.copy()
        current, loops = np.zeros(self.layout.pools, np.int64), np.zeros(kernel.MAX_LEVELS, np.int64)
        stack = np.zeros(2 * kernel.MAX_DEPTH, np.int64)

        def step(slots: Slots, flaws: Array, state: Array) -> int:
            program[:, kernel.STEP_POOL :] = slots.nodes[program[:, kernel.NODE]][:, of_nodes]
            return kernel.read_payloads(
                given.data,
                given.offsets,
                given.front,
                given.skip,
                program,
                self._jump_table,
                self._type_table,
                self._link_table,
                slots.nodes,
                slots.slots,
                slots.valid,
                slots.used,
                slots.saved,
                slots.capacity,
                current,
                loops,
                stack,
                flaws,
                state,
            )

        def describe(code: int, node: int, at: int) -> str:
            place = self.layout.nodes[node].place if node >= 0 else ""
            return f"{place + ': ' if place else ''}{kernel.FLAWS[code]} (byte {at})"

        size = len(self._program) + len(self._type_table) + len(self._link_table)
        return run(given, self.layout, step, gather, describe, kernel.TOO_LARGE, size)

    def _define(self, tree: Tree) -> None:
        """Find the definitions of named types."""
        todo = [tree]
        while todo:
            one = todo.pop()
            if isinstance(one, list):
                todo.extend(one)
            elif isinstance(one, dict):
                if "name" in one:
                    self._definitions[one["name"]] = one
                todo.extend(field["type"] for field in one.get("fields", ()))
                todo.extend(one[part] for part in ("items", "values") if part in one)

    def _kind(self, tree: Tree) -> tuple[str, Tree]:
        """The type of a tree and its definition."""
        if isinstance(tree, str) and tree in self._definitions:
            tree = self._definitions[tree]
        if isinstance(tree, list):
            return "union", tree
        if isinstance(tree, str):
            return tree, {"type": tree}
        kind = tree["type"]
        return ("record" if kind == "error" else kind), tree

    def _step(self, op: int, node: int = -1, first: int = 0, other: int = 0) -> int:
        self._steps.append([op, node, first, other])
        return len(self._steps) - 1

    def _node(self, node: Node) -> Node:
        return self.layout.add(node)

    def _write(self, tree: Tree, shape: Shape, pool: int, place: str) -> Node:
        """Write the steps for a value, and make its nodes."""
        from headwater.schemas.decoding.kernels import avro as kernel

        kind, tree = self._kind(tree)
        if kind == "union":
            return self._write_union(tree, shape, pool, place)
        if kind == "record" and shape.kind == "struct":
            node = self._node(Node(shape, "struct", pool, place))
            self._step(kernel.MARK, node.index)
            for part, field in zip(tree["fields"], shape.fields, strict=True):
                node.children.append(self._write(part["type"], field.shape, pool, _join(place, part["name"])))
            return node
        if kind == "fixed" and shape.kind == "struct":  # a duration: three numbers of 32 bits without a sign
            node = self._node(Node(shape, "struct", pool, place))
            self._step(kernel.MARK, node.index)
            for field in shape.fields:
                part = self._node(Node(field.shape, "number", pool, _join(place, field.name)))
                self._step(kernel.FLOAT, part.index)
                node.children.append(part)
            return node
        if (kind == "array" and shape.kind == "list") or (kind == "map" and shape.kind == "map"):
            return self._write_list(kind, tree, shape, pool, place)
        if kind == "null":
            return self._node(Node(shape, "nothing", pool, place))
        node = self._node(Node(shape, "number", pool, place))
        if kind in ("bytes", "string", "fixed"):
            node.form = "span"
        number = tree["size"] if kind == "fixed" else len(tree["symbols"]) if kind == "enum" else 0
        converted = _conversion(kind, tree, shape)
        if converted is None:
            node.form, node.reads, node.convert = "span", _binary(), self._slow(tree, shape)
            self._step(kernel.SKIP, node.index, self._type(tree))
            return node
        node.reads, node.convert = converted
        self._step(_KINDS.index(kind), node.index, number)
        return node

    def _write_union(self, branches: list[Tree], shape: Shape, pool: int, place: str) -> Node:
        from headwater.schemas.decoding.kernels import avro as kernel

        real = [branch for branch in branches if self._kind(branch)[0] != "null"]
        if not real:
            node = self._node(Node(shape, "nothing", pool, place))
        elif len(real) > 1 and (shape.kind != "struct" or len(shape.fields) != len(real)):
            node = self._node(Node(shape, "span", pool, place, reads=_binary(), convert=self._slow(branches, shape)))
            self._step(kernel.SKIP, node.index, self._type(branches))
            return node
        elif len(real) > 1:
            node = self._node(Node(shape, "struct", pool, place))
        start, jumps = self._step(kernel.UNION, -1, len(branches), len(self._jumps)), len(self._jumps)
        self._jumps.extend([0] * len(branches))
        ends, at = [], 0
        for number, branch in enumerate(branches):
            self._jumps[jumps + number] = len(self._steps)
            if self._kind(branch)[0] != "null":
                if len(real) == 1:
                    node = self._write(branch, shape, pool, place)
                else:
                    self._step(kernel.MARK, node.index)
                    field = shape.fields[at]
                    node.children.append(self._write(branch, field.shape, pool, _join(place, field.name)))
                    at += 1
            ends.append(self._step(kernel.JUMP))
        for end in ends:
            self._steps[end][kernel.FIRST] = len(self._steps)
        self._steps[start][kernel.NODE] = node.index
        return node

    def _write_list(self, kind: str, tree: Tree, shape: Shape, pool: int, place: str) -> Node:
        from headwater.schemas.decoding.kernels import avro as kernel

        node = self._node(Node(shape, "list", pool, place, inner=self.layout.new_pool()))
        inner = tree["items" if kind == "array" else "values"]
        empty = int(kind == "array" and not self._types[self._type(inner)][kernel.SMALLEST])
        head = self._step(kernel.ARRAY, node.index, 0, node.inner << 1 | empty)
        for field in shape.fields[:-1]:
            node.children.append(self._write("string", field.shape, node.inner, f"{place}[]"))
        node.children.append(self._write(inner, shape.fields[-1].shape, node.inner, f"{place}[]"))
        self._step(kernel.REPEAT, node.index, head + 1)
        self._steps[head][kernel.FIRST] = len(self._steps)
        return node

    def _type(self, tree: Tree) -> int:
        """The number of a type, for values that are passed over."""
        from headwater.schemas.decoding.kernels import avro as kernel

        kind, tree = self._kind(tree)
        name = tree["name"] if isinstance(tree, dict) and "name" in tree else f"{kind} {id(tree)}"
        if isinstance(tree, dict) and set(tree) == {"type"}:
            name = kind
        if name in self._numbers:
            return self._numbers[name]
        number = self._numbers[name] = len(self._types)
        row = [_KINDS.index(kind), 0, 0, 1, 1]
        self._types.append(row)
        self._links.append([])
        parts: list[Tree] = []
        if kind == "union":
            parts = tree
        elif kind == "record":
            parts = [field["type"] for field in tree["fields"]]
        elif kind in ("array", "map"):
            parts = [tree["items" if kind == "array" else "values"]]
        if kind == "fixed":
            row[kernel.NUMBER] = tree["size"]
        else:
            row[kernel.NUMBER] = len(tree["symbols"]) if kind == "enum" else len(parts)
        self._links[number] = [self._type(part) for part in parts]
        if kind in ("bytes", "fixed") and tree.get("logicalType") == "decimal":
            if kind == "bytes":
                row[kernel.NUMBER] = kernel.LONGEST_DECIMAL
            elif tree["size"] > kernel.LONGEST_DECIMAL:
                row[kernel.COST] = kernel.MOST_COST
        if kind == "null" or (kind == "fixed" and not row[kernel.NUMBER]):
            row[kernel.SMALLEST] = 0
        if kind == "record":
            row[kernel.SMALLEST] = int(any(self._types[part][kernel.SMALLEST] for part in self._links[number]))
            if not row[kernel.SMALLEST]:
                row[kernel.COST] = min(
                    1 + sum(self._types[part][kernel.COST] for part in self._links[number]), kernel.MOST_COST
                )
        return number

    def _slow(self, tree: Tree, shape: Shape) -> Convert:
        """A conversion from the bytes of values, by fastavro: to JSON text, or to text."""
        closed = _Closed(self._definitions).tree(tree)

        def convert(array: pa.Array) -> tuple[pa.Array, Bad]:
            import fastavro
            import pyarrow as pa

            schema = fastavro.parse_schema(closed, _ignore_default_error=True)

            def one(value: bytes) -> str:
                read = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
                return str(read) if shape.kind == "string" else conversions.json_text(read)

            return conversions.each(array, pa.string(), one)

        return convert


class _Closed:
    """Makes a schema of a part of a schema: with the definition of each type where it comes first."""

    def __init__(self, definitions: dict[str, Tree]) -> None:
        self._definitions = definitions
        self._seen: set[str] = set()

    def tree(self, tree: Tree) -> Tree:
        if isinstance(tree, list):
            return [self.tree(branch) for branch in tree]
        if isinstance(tree, str):
            if tree not in self._definitions or tree in self._seen:
                return tree
            tree = self._definitions[tree]
        if "name" in tree:
            if tree["name"] in self._seen:
                return tree["name"]
            self._seen.add(tree["name"])
        whole = dict(tree)
        for part in ("items", "values"):
            if part in tree:
                whole[part] = self.tree(tree[part])
        if "fields" in tree:
            whole["fields"] = [{"name": field["name"], "type": self.tree(field["type"])} for field in tree["fields"]]
        return whole


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _binary() -> pa.DataType:
    import pyarrow as pa

    return pa.binary()


def _conversion(kind: str, tree: Tree, shape: Shape) -> tuple[pa.DataType | None, Convert | None] | None:
    """The type of the values in slots and what converts them to the shape; None if fastavro has to read them."""
    import pyarrow as pa

    logical = tree.get("logicalType") or ""
    if shape.kind in _PLAIN.get(kind, ()):
        return None, None
    if kind == "enum" and shape.kind == "string":
        return pa.int64(), functools.partial(conversions.symbols, tuple(tree["symbols"]))
    if kind == "string" and shape.kind == "uuid":
        return pa.string(), conversions.FROM_TEXT["uuid"]
    if kind == "fixed" and shape.kind == "uuid":
        return pa.binary(), conversions.uuid_bytes
    precision = digits(shape.kind)
    if precision is not None and kind in ("bytes", "fixed"):
        return pa.binary(), functools.partial(conversions.decimal_bytes, *precision)
    unit = logical.rpartition("-")[2]
    if shape.kind in ("time", "timestamp", "timestamptz") and kind in ("int", "long") and unit in _UNITS:
        return pa.int64(), conversions.scaled(*_UNITS[unit], shape.kind)
    return None
