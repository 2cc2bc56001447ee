"""Typed columns of segments, which come behind those of the log. An earlier file may lack some, at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.segment.schema import segment_schema

if TYPE_CHECKING:
    import pyarrow as pa


def typed_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """The columns of a segment with these typed columns."""
    import pyarrow as pa

    return pa.schema([*segment_schema(), *fields]) if fields else segment_schema()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A Parquet column: a field without fields."""

    way: tuple[str, ...]
    """The names of the fields that lead to it."""
    path: str
    """Its path in the file."""
    type: pa.DataType
    metadata: Mapping[bytes, bytes]
    repeated: bool
    """Whether it is inside a list or a map."""

    @property
    def name(self) -> str:
        return ".".join(self.way)


def leaves(fields: Iterable[pa.Field]) -> list[Leaf]:
    """The Parquet columns of fields."""
    return [leaf for field in fields for leaf in _leaves(field, (field.name,), field.name, False)]


def _leaves(field: pa.Field, way: tuple[str, ...], path: str, repeated: bool) -> list[Leaf]:
    import pyarrow as pa

    kind, inner = field.type, list[tuple[Any, str]]()
    if pa.types.is_struct(kind):
        inner = [(kind.field(i), kind.field(i).name) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [(kind.key_field, "key_value.key"), (kind.item_field, "key_value.value")]
    elif pa.types.is_list(kind):
        inner = [(kind.value_field, "list.element")]
    if not inner:
        return [Leaf(way, path, kind, field.metadata or {}, repeated)]
    repeated = repeated or not pa.types.is_struct(kind)
    return [leaf for child, to in inner for leaf in _leaves(child, (*way, child.name), f"{path}.{to}", repeated)]


def leaf_places(schema: pa.Schema) -> dict[str, range]:
    """The numbers of the Parquet columns of each column of a file."""
    places, at = dict[str, range](), 0
    for field in schema:
        end = at + len(_leaves(field, (), "", False))
        places[field.name], at = range(at, end), end
    return places


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
