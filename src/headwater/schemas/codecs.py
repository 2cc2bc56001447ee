"""From a schema to what decodes its payloads: one interface for every kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.errors import BadSchema
from headwater.schemas.columns import FLAT, VALUE
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.parsing import Parsed, ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import message_name, model_of
from headwater.schemas.shapes import Field, Shape, struct
from headwater.schemas.shaping import record_of
from headwater.schemas.typing import KnownSchema
from headwater.state.commands.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.schemas.decoding.by_schema import Decoder

KEPT_SCHEMAS = 256
"""Schemas whose decoders a process keeps."""


class Codec(Protocol):
    """Decodes payloads of one type."""

    @property
    def record(self) -> str:
        """The short name of the record type; empty if it has none."""

    @property
    def shape(self) -> Shape:
        """The shape of the values."""

    def decode(self, payloads: pa.BinaryArray, front: int = 0) -> tuple[Shape, Decoded]:
        """Values, and their shape. Each payload has a prefix of `front` bytes. No payload raises."""


class SchemaCodec:
    """Payloads of a schema."""

    def __init__(self, record: str, decoder: Decoder) -> None:
        self.record = record
        self.shape = decoder.shape
        self._decoder = decoder

    def __repr__(self) -> str:
        return f"<SchemaCodec of {self.record}>"

    def decode(self, payloads: pa.BinaryArray, front: int = 0) -> tuple[Shape, Decoded]:
        return self.shape, self._decoder.decode(payloads, front)


def codec_of(known: KnownSchema, indexes: tuple[int, ...]) -> Codec:
    """What decodes payloads of a schema. `indexes` lead to the message of a Protobuf file. Raises `BadSchema`."""
    made = _codec(known.kind, known.text, known.references, known.compiled, indexes)
    if isinstance(made, BadSchema):
        raise made
    return made


@functools.lru_cache(KEPT_SCHEMAS)
def _codec(
    kind: str, text: str, references: tuple[tuple[str, str], ...], compiled: bytes, indexes: tuple[int, ...]
) -> Codec | BadSchema:
    """A codec, or what is wrong with the schema: that is found out once."""
    from headwater.schemas.decoding.by_schema import decoder_of

    try:
        if compiled:
            parsed = Parsed(SchemaKind(kind), "", "", model_of(compiled))
        else:
            parsed = parse(Source(SchemaKind(kind), text, references), strict=False)
        decoder = decoder_of(parsed, indexes)
        message = message_name(parsed.model, indexes) if isinstance(parsed.model, ProtobufModel) else ""
        return SchemaCodec(record_of(parsed, message), decoder)
    except BadSchema as error:
        return error
    except ValueError:
        return BadSchema(f"{kind!r} is no kind of schema")


def shape_in(columns: Sequence[Column], name: str) -> Shape | None:
    """The shape of the values in a column of a table; of `value_data` also where its fields are the table's columns."""
    found = next((column for column in columns if column.name == name), None)
    if found is not None:
        return _shape(found)
    flat = [column for column in columns if column.source.startswith(FLAT)] if name == VALUE else []
    return struct(*(Field(column.source.removeprefix(FLAT), _shape(column)) for column in flat)) if flat else None


def _shape(column: Column) -> Shape:
    return Shape(column.kind, tuple(Field(child.source, _shape(child)) for child in column.children))
