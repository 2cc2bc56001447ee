"""Slots that compiled loops fill, and the Arrow arrays that they become. `kernels/slots.py` explains slots and pools.

The memory for elements of lists grows with what the payloads hold. It is limited by their size, so that a short payload
cannot claim a huge list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from headwater.native.bytes import Array
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.shapes import Shape

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_CAPACITY = 1024
TWICE = "a key of the map occurs twice"
MAX_TEXT = (1 << 31) - 1
"""The bytes of one column of text or bytes in an Arrow array."""

Bad = dict[int, str]
"""By index in the array, why a value cannot be converted."""
Convert = Callable[["pa.Array"], "tuple[pa.Array, Bad]"]
"""Turns the values as they were in the payloads into values of the shape. A bad value may be anything."""
Join = Callable[[list["pa.Array"], Array], "tuple[pa.Array, Bad]"]
"""Makes one value of the parts of a struct, and of the marks which say where there is one."""
Form = Literal["struct", "list", "number", "span", "nothing", "joined"]


@dataclass(slots=True, eq=False)
class Node:
    """A value of a schema, as loops know it."""

    shape: Shape
    form: Form
    pool: int
    place: str
    """Where the value is, for errors: names with points between them."""
    op: int = 0
    inner: int = -1
    children: list[Node] = field(default_factory=list)
    reads: pa.DataType | None = None
    """The type of the values in slots, if it is not that of the shape."""
    convert: Convert | None = None
    join: Join | None = None
    index: int = -1
    own: dict[int, int] = field(default_factory=dict)
    """Further numbers of the node, by column of `nodes`."""
    becomes: Shape | None = None
    """The shape after the conversion, if it is not that of the node."""
    _types: tuple[pa.DataType, pa.DataType] | None = None

    def natural(self) -> pa.DataType:
        """The Arrow type of the shape."""
        return self._both()[0]

    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values after the conversion."""
        return self._both()[1]

    def _both(self) -> tuple[pa.DataType, pa.DataType]:
        from headwater.schemas.conform import arrow_type

        if self._types is None:
            own = arrow_type(self.shape)
            self._types = (own, own if self.becomes is None else arrow_type(self.becomes))
        return self._types


class Layout:
    """The nodes of a schema. It is made once and used for many arrays of payloads."""

    def __init__(self, columns: int) -> None:
        self.nodes: list[Node] = []
        self.pools = 1
        self._shares: list[float] = []
        self._columns = columns
        self._table: Array | None = None
        self._widths: Array | None = None

    def add(self, node: Node) -> Node:
        """Give the node its index. Children of a node get theirs in the order of `add`."""
        node.index = len(self.nodes)
        self.nodes.append(node)
        return node

    def new_pool(self) -> int:
        """A pool for the elements of a list."""
        self.pools += 1
        return self.pools - 1

    def note_use(self, used: Array, rows: int) -> None:
        """Remember how many elements of lists a row had, for the next payloads."""
        self._shares = (used / max(rows, 1)).tolist()

    def capacities(self, rows: int) -> Array:
        """How many elements of each pool to expect: a sixteenth more than rows had before."""
        found = np.full(self.pools, FIRST_CAPACITY, np.int64)
        if self._shares:
            found = np.maximum(found, (np.array(self._shares) * rows * 17 / 16).astype(np.int64))
        found[0] = rows
        return found

    def widths(self) -> Array:
        """How many slots a value of each node has."""
        if self._widths is None:
            self._widths = np.array([_width(node) for node in self.nodes], np.int64)
        return self._widths

    def table(self) -> Array:
        """The rows of `nodes`, without places of slots."""
        from headwater.schemas.decoding.kernels import slots as kernel

        if self._table is None:
            table = np.full((len(self.nodes), self._columns), -1, np.int64)
            for node in self.nodes:
                row = table[node.index]
                row[kernel.OP], row[kernel.POOL], row[kernel.INNER] = node.op, node.pool, node.inner
                if node.children:
                    row[kernel.CHILD] = node.children[0].index
                for child, following in zip(node.children, node.children[1:], strict=False):
                    table[child.index, kernel.NEXT] = following.index
                for column, number in node.own.items():
                    row[column] = number
            self._table = table
        return self._table.copy()


class Slots:
    """The memory that a loop fills for one array of payloads."""

    def __init__(self, layout: Layout, data: Array, rows: int) -> None:
        from headwater.schemas.decoding.kernels import slots as kernel

        self.layout = layout
        self.data = data
        self.rows = rows
        self.nodes = layout.table()
        self.used = np.zeros(layout.pools, np.int64)
        self.saved = np.zeros(layout.pools, np.int64)
        self.capacity = layout.capacities(rows)
        self._budget = len(data) * kernel.SLOTS_PER_BYTE + kernel.SPARE_SLOTS
        self.slots = np.zeros(0, np.int64)
        self.valid = np.zeros(0, np.uint8)
        pools = self.nodes[:, kernel.POOL]
        self._weights = np.bincount(pools, 1 + layout.widths(), layout.pools).astype(np.int64)
        if int(self.capacity[1:] @ self._weights[1:]) > self._budget:
            self.capacity[1:] = FIRST_CAPACITY
        self._lay(0)

    def grow(self, pool: int, row: int) -> bool:
        """Make room for more elements, after so many rows; False if the payloads are too small for so many."""
        doubled = 2 * int(self.capacity[pool])
        expected = int(doubled * 0.6 * self.rows / max(row, 1))
        for wanted in (max(doubled, expected), doubled):
            capacity = self.capacity.copy()
            capacity[pool] = wanted
            if int(capacity[1:] @ self._weights[1:]) <= self._budget:
                self.capacity = capacity
                self._lay(row)
                return True
        return False

    def _lay(self, rows: int) -> None:
        """Give every node its slots, and move what the loop has written for so many rows."""
        from headwater.schemas.decoding.kernels import slots as kernel

        old, slots, valid = self.nodes.copy(), self.slots, self.valid
        rooms = self.capacity[self.nodes[:, kernel.POOL]]
        widths = self.layout.widths()
        ends, mark_ends = np.cumsum(rooms * widths), np.cumsum(rooms)
        self.nodes[:, kernel.VALID] = mark_ends - rooms
        self.nodes[:, kernel.BASE] = np.where(widths > 0, ends - rooms * widths, -1)
        self.nodes[:, kernel.SECOND] = np.where(widths > 1, ends - rooms, -1)
        self.slots, self.valid = np.zeros(int(ends[-1]), np.int64), np.zeros(int(mark_ends[-1]), np.uint8)
        for node in self.layout.nodes if rows or self.used.any() else ():
            kept = int(self.used[node.pool]) if node.pool else rows
            if kept:
                for column in (kernel.BASE, kernel.SECOND)[: _width(node)]:
                    here, there = self.nodes[node.index, column], old[node.index, column]
                    self.slots[here : here + kept] = slots[there : there + kept]
                here, there = self.nodes[node.index, kernel.VALID], old[node.index, kernel.VALID]
                self.valid[here : here + kept] = valid[there : there + kept]

    def count(self, node: Node) -> int:
        """How many values a node has."""
        return int(self.used[node.pool]) if node.pool else self.rows

    def numbers(self, node: Node, second: bool = False) -> Array:
        """The slots of a node."""
        from headwater.schemas.decoding.kernels import slots as kernel

        base = self.nodes[node.index, kernel.SECOND if second else kernel.BASE]
        return self.slots[base : base + self.count(node)]

    def marks(self, node: Node) -> Array:
        """Which values of a node are not null."""
        from headwater.schemas.decoding.kernels import slots as kernel

        base = self.nodes[node.index, kernel.VALID]
        return self.valid[base : base + self.count(node)]


def _width(node: Node) -> int:
    return {"struct": 0, "nothing": 0, "joined": 0, "number": 1, "list": 1, "span": 2}[node.form]


class Assembly:
    """Makes the Arrow array of filled slots."""

    def __init__(self, slots: Slots, gather: Callable[[Array, Array, Array, Array, Array], int]) -> None:
        self._slots = slots
        self._gather = gather
        self.bad: list[tuple[int, str]] = []
        """Rows with values that could not be converted, and why."""

    def array(self, node: Node) -> pa.Array:
        """All values of a node."""
        import pyarrow as pa

        count = self._slots.count(node)
        marks = self._slots.marks(node)
        nulls = count - int(np.count_nonzero(marks))
        if node.form == "nothing" or nulls == count:
            return pa.nulls(count, node.arrow_type())
        kind = node.natural()
        bits = pa.py_buffer(np.packbits(marks, bitorder="little")) if nulls else None
        if node.form == "struct":
            children = [self.array(child) for child in node.children]
            return pa.Array.from_buffers(kind, count, [bits], nulls, children=children)
        if node.join is not None:
            array, bad = node.join([self.array(child) for child in node.children], marks)
            self._note(node, marks, bad)
            return array
        read = {"list": self._list, "span": self._spans}.get(node.form, self._numbers)
        array = read(node, node.reads or kind, bits, nulls)
        if node.convert is not None:
            array, bad = node.convert(array)
            self._note(node, marks, bad)
        return array

    def _list(self, node: Node, kind: pa.DataType, bits: pa.Buffer | None, nulls: int) -> pa.Array:
        import pyarrow as pa

        from headwater.schemas.decoding.kernels.slots import run_up

        count = self._slots.count(node)
        ends = np.empty(count + 1, np.int32)
        run_up(self._slots.numbers(node), ends)
        children = [self.array(child) for child in node.children]
        if node.shape.kind == "map":
            self._note_twice(node, ends, children[0])
            entries = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
            children = [entries]
        return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends)], nulls, children=children)

    def _numbers(self, node: Node, kind: pa.DataType, bits: pa.Buffer | None, nulls: int) -> pa.Array:
        import pyarrow as pa

        numbers = self._slots.numbers(node)
        values: Array
        if pa.types.is_boolean(kind):
            values = np.packbits(numbers != 0, bitorder="little")
        elif pa.types.is_float32(kind):
            values = numbers.astype(np.uint32)
        elif kind.bit_width == 32:
            values = numbers.astype(np.int32)
        else:
            values = numbers
        return pa.Array.from_buffers(kind, len(numbers), [bits, pa.py_buffer(values)], nulls)

    def _spans(self, node: Node, kind: pa.DataType, bits: pa.Buffer | None, nulls: int) -> pa.Array:
        import pyarrow as pa

        from headwater.schemas.decoding.kernels.slots import total_length

        starts, lengths = self._slots.numbers(node), self._slots.numbers(node, second=True)
        room = total_length(lengths)
        if room > MAX_TEXT:
            raise OverflowError(f"{node.place}: {room} bytes are too many for one array; decode fewer payloads at once")
        ends, target = np.empty(len(starts) + 1, np.int32), np.empty(room, np.uint8)
        size = self._gather(self._slots.data, starts, lengths, ends, target)
        buffers = [bits, pa.py_buffer(ends), pa.py_buffer(target[:size])]
        return pa.Array.from_buffers(kind, len(starts), buffers, nulls)

    def _note(self, node: Node, marks: Array, bad: Bad) -> None:
        """Remember by row what could not be converted."""
        places = [index for index in bad if marks[index]]
        rows = self._rows_of(node, np.array(places, np.int64))
        self.bad.extend((row, f"{node.place}: {bad[index]}") for row, index in zip(rows, places, strict=True))

    def _note_twice(self, node: Node, ends: Array, keys: pa.Array) -> None:
        """Maps that have a key twice are flaws: engines differ in what they make of them."""
        numbers = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        owners = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        pairs = np.sort(owners * (len(numbers) + 1) + numbers)
        again = np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // (len(numbers) + 1))
        self._note(node, self._slots.marks(node), dict.fromkeys(again.tolist(), TWICE))

    def _rows_of(self, node: Node, indexes: Array) -> list[int]:
        """The rows that values belong to."""
        pool = node.pool
        while pool:
            parent = next(one for one in self._slots.layout.nodes if one.inner == pool)
            ends = np.maximum.accumulate(self._slots.numbers(parent))
            indexes = np.searchsorted(ends, indexes, side="right")
            pool = parent.pool
        rows: list[int] = indexes.tolist()
        return rows


class Payloads:
    """An array of payloads, as loops take it. So many bytes at the front of each are no part of it."""

    def __init__(self, payloads: pa.Array, front: int = 0) -> None:
        import pyarrow as pa

        wide = pa.types.is_large_binary(payloads.type) or pa.types.is_large_string(payloads.type)
        _, borders, data = payloads.buffers()
        kind = np.dtype(np.int64 if wide else np.int32)
        self.rows = len(payloads)
        self.front = front
        if borders is None or borders.size == 0:
            self.offsets = np.zeros(self.rows + 1, np.int64)
        else:
            all_borders = np.frombuffer(borders, kind, self.rows + 1, payloads.offset * kind.itemsize)
            self.offsets = all_borders.astype(np.int64)
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        self.data = (
            np.frombuffer(data, np.uint8)[first:last] if data is not None and last > first else np.zeros(0, np.uint8)
        )
        self.data.flags.writeable = False  # loops are compiled for such arrays only, whatever the buffer is
        self.offsets -= first
        self.skip = np.zeros(self.rows, np.uint8)
        """Rows that are not decoded: nulls, and those that are known to be bad."""
        if payloads.null_count:
            self.skip[:] = payloads.is_null().to_numpy(zero_copy_only=False)


def decode(
    payloads: Payloads,
    layout: Layout,
    step: Callable[[Slots, Array, Array], int],
    gather: Callable[[Array, Array, Array, Array, Array], int],
    describe: Callable[[int, int, int], str],
    too_large: int,
    size: int,
    finish: Callable[[Slots], list[tuple[int, str]]] | None = None,
) -> Decoded:
    """Decode payloads by a loop.

    `step` runs the loop with the slots, the flaws (see `kernels/slots.py`) and the loop's state.
    `describe` says in words what a flaw is. `size` is that of the schema: a row may take so many steps without bytes.
    `finish` does what is left after the loop, and gives bad rows. A row that proves bad after the loop is left out by
    another run of the loop.
    """
    from headwater.schemas.decoding.kernels import slots as kernel

    errors: dict[int, str] = {}
    while True:
        slots = Slots(layout, payloads.data, payloads.rows)
        flaws = np.empty((payloads.rows, kernel.FLAW_NUMBERS), np.int64)
        state = np.zeros(kernel.STATE_NUMBERS, np.int64)
        state[kernel.SPARE] = kernel.SPARE_STEPS + size
        while step(slots, flaws, state) == kernel.GROW:
            row, pool = int(state[kernel.ROW]), int(state[kernel.POOL_WANTED])
            if not slots.grow(pool, row):
                of_list = next(node.index for node in layout.nodes if node.inner == pool)
                flaws[state[kernel.FLAWED]] = row, too_large, of_list, 0
                state[kernel.FLAWED] += 1
                state[kernel.ROW] += 1
        for row, code, node, at in flaws[: state[kernel.FLAWED]].tolist():
            errors[row] = describe(code, node, at)
        late = finish(slots) if finish is not None else []
        assembly = Assembly(slots, gather)
        array = assembly.array(layout.nodes[0])
        late.extend(assembly.bad)
        layout.note_use(slots.used, slots.rows)
        if not late:
            return Decoded(array, dict(sorted(errors.items())))
        for row, text in late:
            errors.setdefault(row, text)
            payloads.skip[row] = 1
