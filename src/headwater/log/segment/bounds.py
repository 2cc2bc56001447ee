"""Bounds of columns: the least and the greatest value of a whole segment, for the metadata of tables.

They are taken from the statistics of the row groups, which the file's writer has gathered. Values are in Iceberg's
binary form. Long ones are cut short, as Iceberg's own writers do it: a lower bound is a prefix of the least value, and
an upper bound is greater than all values that begin as the greatest one does.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.segment.schema import FIELD_ID, segment_schema
from headwater.log.segment.typed import leaves
from headwater.state.commands.tables import KEY_COLUMN, Bounds

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES = 16
"""Bytes of a key in its bounds."""
TEXT_LENGTH = 32
"""Characters of a text, and bytes of other values, in their bounds."""
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A Parquet column whose bounds are wanted."""

    column: int
    """Its field id."""
    place: int
    """Its number among the Parquet columns."""
    type: pa.DataType
    way: tuple[str, ...]
    """The names that lead to it."""

    @property
    def path(self) -> str:
        """Its path in the file."""
        return ".".join(self.way)

    @property
    def has_filter(self) -> bool:
        """Whether it can have a bloom filter."""
        import pyarrow as pa

        return not pa.types.is_boolean(self.type)

    def has_nan(self, batch: pa.RecordBatch) -> bool:
        """Whether one of its values may be no number. Readers do not agree on where such values belong."""
        import pyarrow as pa
        from pyarrow import compute

        if not pa.types.is_floating(self.type):
            return False
        array = batch.column(self.way[0])
        for name in self.way[1:]:
            array = array.field(name)
        return bool(compute.any(compute.is_nan(array)).as_py())


def bounded(typed: Sequence[pa.Field], index: Iterable[int]) -> list[Bounded]:
    """The key, and those of the typed columns that `index` names by their field ids. None is inside a list or a map."""
    wanted = set(index)
    log = leaves(list(segment_schema()))
    key = next(place for place, leaf in enumerate(log) if leaf.name == "key")
    found = [Bounded(KEY_COLUMN, key, log[key].type, ("key",))]
    for place, leaf in enumerate(leaves(typed), len(log)):
        number = int((leaf.metadata or {}).get(FIELD_ID, 0))
        if number in wanted and not leaf.repeated:
            found.append(Bounded(number, place, leaf.type, leaf.way))
    return sorted(found, key=lambda one: one.column)


def bounds_of(metadata: Any, columns: Iterable[Bounded], unordered: Iterable[int] = ()) -> tuple[Bounds, ...]:
    """The bounds of columns in a file, by its Parquet metadata. Columns in `unordered` get none."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    without = set(unordered)
    found = (_bounds(groups, column) for column in columns if column.column not in without)
    return tuple(one for one in found if one is not None)


def _bounds(groups: Sequence[Any], column: Bounded) -> Bounds | None:
    """None if a row group says too little."""
    nulls, known = 0, list[tuple[Any, Any]]()
    for group in groups:
        statistics = group.column(column.place).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.null_count == group.num_rows:
            continue
        if not statistics.has_min_max:
            return None
        known.append((statistics.min_raw, statistics.max_raw))
    if not known:
        return Bounds(column.column, nulls, None, None)
    order = _order(column.type)
    low, high = min((pair[0] for pair in known), key=order), max((pair[1] for pair in known), key=order)
    size = KEY_BYTES if column.column == KEY_COLUMN else TEXT_LENGTH
    return Bounds(
        column.column, nulls, _encoded(column.type, low, size, False), _encoded(column.type, high, size, True)
    )


def _order(kind: pa.DataType) -> Callable[[Any], Any]:
    """How raw values of statistics are compared."""
    import pyarrow as pa

    return _number if pa.types.is_decimal(kind) else lambda value: value


def _number(raw: bytes) -> int:
    """The digits of a decimal."""
    return int.from_bytes(raw, "big", signed=True)


def _encoded(kind: pa.DataType, value: Any, size: int, upper: bool) -> bytes | None:
    """A value of the statistics in Iceberg's form. None if there is no bound of this size."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_date32(kind):
        return struct.pack("<i", value)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return struct.pack("<q", value)
    if pa.types.is_floating(kind):
        return struct.pack("<d", value or math.copysign(0.0, 1 if upper else -1))  # -0.0 and 0.0 are equal
    if pa.types.is_decimal(kind):
        digits = _number(value)
        return digits.to_bytes((digits if digits >= 0 else ~digits).bit_length() // 8 + 1, "big", signed=True)
    if pa.types.is_string(kind):
        text = value if isinstance(value, str) else value.decode()
        shown = text_above(text, size) if upper else text[:size]
        return shown.encode() if shown is not None else None
    return bytes_above(value, size) if upper else bytes(value[:size])


def bytes_above(value: bytes, size: int) -> bytes | None:
    """At most `size` bytes that are not less than any value with this prefix; None if there are none."""
    if len(value) <= size:
        return bytes(value)
    prefix = value[:size].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def text_above(value: str, size: int) -> str | None:
    """The same for characters, in the order of their numbers."""
    if len(value) <= size:
        return value
    prefix = value[:size].rstrip(chr(_LAST_CHARACTER))
    if not prefix:
        return None
    after = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(after if after not in _SURROGATES else _SURROGATES.stop)
