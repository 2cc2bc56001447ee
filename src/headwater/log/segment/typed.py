"""Typed columns of segments, which come behind those of the log. An earlier file may lack some, at any depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.log.segment.schema import segment_schema

if TYPE_CHECKING:
    import pyarrow as pa


def typed_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """The columns of a segment with these typed columns."""
    import pyarrow as pa

    return pa.schema([*segment_schema(), *fields]) if fields else segment_schema()


def aligned(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a file as values of a type that has all their fields and perhaps more, which are null."""
    import pyarrow as pa

    if array.type.equals(kind):
        return array
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        known = {array.type.field(i).name: i for i in range(array.type.num_fields)}
        fields = [kind.field(i) for i in range(kind.num_fields)]
        children = [
            aligned(array.field(known[field.name]), field.type)
            if field.name in known
            else pa.nulls(len(array), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=nulls)
    if pa.types.is_list(kind):
        offsets, first, last = _borders(array)
        values = aligned(array.values.slice(first, last - first), kind.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=nulls)
    if pa.types.is_map(kind):
        offsets, first, last = _borders(array)
        keys = array.keys.slice(first, last - first)
        items = aligned(array.items.slice(first, last - first), kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
    return array.cast(kind)


def _borders(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Where lists begin, counted from the first one, and the range of their values."""
    import pyarrow as pa
    from pyarrow import compute

    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return compute.subtract(array.offsets, pa.scalar(first, pa.int32())), first, last
