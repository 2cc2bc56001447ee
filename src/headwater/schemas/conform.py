"""Natural values become columns of a table, in Arrow.

Where the natural type is the column's type the buffers are passed on as they are. pyarrow is imported at first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.schemas.columns import ERROR, FLAT, KEY, REST, VALUE
from headwater.schemas.leftovers import left_texts, texts
from headwater.schemas.plans import Fill, Plan
from headwater.schemas.shapes import NESTED, Shape, digits
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"


def arrow_type(shape: Shape) -> pa.DataType:
    """The natural Arrow type of a shape: what a decoder gives."""
    import pyarrow as pa

    if shape.kind == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.shape)) for field in shape.fields])
    if shape.kind == "list":
        return pa.list_(pa.field("element", arrow_type(shape.fields[0].shape)))
    if shape.kind == "map":
        value = pa.field("value", arrow_type(shape.fields[1].shape))
        return pa.map_(pa.field("key", pa.string(), nullable=False), value)
    return _scalar(shape.kind)


def arrow_fields(columns: Sequence[Column]) -> list[pa.Field]:
    """The Arrow fields of columns, with the ids and the comments that Parquet files carry."""
    return [_arrow_field(column) for column in columns]


def root_array(
    key: pa.Array | None,
    value: pa.Array | None,
    errors: pa.Array | None,
    *,
    flatten: bool = False,
    record: str = "",
) -> pa.StructArray:
    """The natural array of a root shape: of `root_of` with the shapes of the key and of the value.

    A row without a value in `errors` was decoded. At least one of the arrays is given; all are of one length.
    """
    import pyarrow as pa

    rows = len(next(array for array in (key, value, errors) if array is not None))
    parts = [(ERROR, pa.nulls(rows, pa.string()) if errors is None else errors)]
    if key is not None:
        parts.append((KEY, key))
    if value is not None and record:
        value = pa.StructArray.from_arrays([value], names=[record], mask=_nulls_of(value))
    if value is not None and flatten and pa.types.is_struct(value.type):
        names = [value.type.field(at).name for at in range(value.type.num_fields)]
        parts.extend((FLAT + name, part) for name, part in zip(names, value.flatten(), strict=True))
    elif value is not None:
        parts.append((VALUE, value))
    return pa.StructArray.from_arrays([part for _, part in parts], names=[name for name, _ in parts])


def conform(array: pa.StructArray, plan: Plan) -> list[pa.Array]:
    """The columns of a table for a natural array of the plan's root shape, in the order of `plan.columns`."""
    import pyarrow as pa

    filled = _children(array, plan.fills, [_arrow_field(column) for column in plan.columns])
    for at, column in enumerate(plan.columns):
        if column.name == REST and plan.left:
            filled[at] = pa.array(left_texts(array, plan.left), pa.string())
    return filled


def _children(array: pa.StructArray, fills: Sequence[Fill | None], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """The columns of one level."""
    import pyarrow as pa

    return [
        pa.nulls(len(array), field.type) if fill is None else _filled(array.field(fill.at), fill, field.type)
        for fill, field in zip(fills, fields, strict=True)
    ]


def _filled(array: pa.Array, fill: Fill, kind: pa.DataType) -> pa.Array:
    """One column, of an Arrow type."""
    import pyarrow as pa

    if fill.same:
        return array
    if not fill.children:
        return pa.array(texts(array, fill.shape), kind) if fill.shape.kind in NESTED else array.cast(kind)
    if fill.column.kind == "struct":
        fields = [kind.field(at) for at in range(kind.num_fields)]
        children = _children(array, fill.children, fields)
        return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls_of(array))
    offsets, start, stop = _offsets(array)
    last = fill.children[-1]
    inner = array.values if fill.column.kind == "list" else array.items
    inner = inner.slice(start, stop - start)
    wanted = kind.value_type if fill.column.kind == "list" else kind.item_type
    inner = pa.nulls(len(inner), wanted) if last is None else _filled(inner, last, wanted)
    if fill.column.kind == "list":
        return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=_nulls_of(array))
    keys = array.keys.slice(start, stop - start)
    return pa.MapArray.from_arrays(offsets, keys, inner, type=kind, mask=_nulls_of(array))


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Where the lists of an array begin, counted from the first one; and the range of its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    offsets = array.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    if start or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(start, pa.int32()))
    return offsets, start, stop


def _nulls_of(array: pa.Array) -> pa.Array | None:
    """Which values are null; None if none is."""
    return array.is_null() if array.null_count else None


def _arrow_field(column: Column, required: bool = False) -> pa.Field:
    import pyarrow as pa

    if column.kind == "struct":
        kind = pa.struct(arrow_fields(column.children))
    elif column.kind == "list":
        kind = pa.list_(_arrow_field(column.children[0]))
    elif column.kind == "map":
        kind = pa.map_(_arrow_field(column.children[0], required=True), _arrow_field(column.children[1]))
    else:
        kind = _scalar(column.kind)
    return pa.field(column.name, kind, nullable=not required, metadata={FIELD_ID: str(column.id)})


def _scalar(kind: str) -> pa.DataType:
    import pyarrow as pa

    decimal = digits(kind)
    if decimal is not None:
        return pa.decimal128(*decimal)
    makers = {
        "boolean": pa.bool_,
        "int": pa.int32,
        "long": pa.int64,
        "float": pa.float32,
        "double": pa.float64,
        "date": pa.date32,
        "binary": pa.binary,
        "null": pa.null,
        "string": pa.string,
        "uuid": pa.string,
        "json": pa.string,
    }
    if kind in makers:
        return makers[kind]()
    if kind == "time":
        return pa.time64("us")
    return pa.timestamp("us", tz="UTC") if kind == "timestamptz" else pa.timestamp("us")
