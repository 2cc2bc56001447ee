"""From a schema to what decodes its payloads: one interface for every kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.errors import BadSchema
from headwater.schemas.columns import FLAT, VALUE
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.shapes import Field, Shape, struct
from headwater.schemas.typing import KnownSchema
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa


class Codec(Protocol):
    """Decodes payloads of one type."""

    @property
    def record(self) -> str:
        """The short name of the record type; empty if it has none."""

    def decode(self, payloads: pa.BinaryArray) -> tuple[Shape, Decoded]:
        """Values, and their shape. No payload raises."""


class JsonCodec:
    """JSON without a schema: the shape is found in the values. It begins with what the table's columns have."""

    record = ""

    def __init__(self, known: Shape | None) -> None:
        self._known = known

    def __repr__(self) -> str:
        return f"<JsonCodec of {self._known!r}>"

    def decode(self, payloads: pa.BinaryArray) -> tuple[Shape, Decoded]:
        from headwater.schemas.decoding.json_plain import decode_as, infer

        self._known = shape = infer(payloads, self._known)
        return shape, decode_as(shape, payloads)


def codec_of(known: KnownSchema, indexes: tuple[int, ...]) -> Codec:
    """What decodes payloads of a schema. `indexes` lead to the message of a Protobuf file. Raises `BadSchema`."""
    raise BadSchema(f"schemas of the kind {known.kind} are not decoded yet")


def shape_in(columns: Sequence[Column], name: str) -> Shape | None:
    """The shape of the values in a column of a table; of `value_data` also where its fields are the table's columns."""
    found = next((column for column in columns if column.name == name), None)
    if found is not None:
        return _shape(found)
    flat = [column for column in columns if column.source.startswith(FLAT)] if name == VALUE else []
    return struct(*(Field(column.source.removeprefix(FLAT), _shape(column)) for column in flat)) if flat else None


def _shape(column: Column) -> Shape:
    return Shape(column.kind, tuple(Field(child.source, _shape(child)) for child in column.children))
