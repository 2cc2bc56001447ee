"""The shape of a schema's values, whatever kind of schema it is."""

from __future__ import annotations

from headwater.schemas.avro import shape as avro
from headwater.schemas.jsonschema import shape as json_schema
from headwater.schemas.parsing import AvroModel, Parsed, ProtobufModel
from headwater.schemas.protobuf import shape as protobuf
from headwater.schemas.shapes import Shape


def shape_of(parsed: Parsed, message: str = "") -> Shape:
    """The shape of the values.

    `message` is the full name of a message of a Protobuf schema; without one it is the first of the file. Types that
    contain themselves are cut: what is below is JSON.
    """
    if isinstance(parsed.model, AvroModel):
        return avro.shape_of(parsed.model)
    if isinstance(parsed.model, ProtobufModel):
        return protobuf.shape_of(parsed.model, message)
    return json_schema.shape_of(parsed.model)


def record_of(parsed: Parsed, message: str = "") -> str:
    """The short name of the record type that a schema describes; empty if it has none.

    A record type, a message, or the title of a JSON Schema.
    """
    if isinstance(parsed.model, AvroModel):
        return avro.record_of(parsed.model)
    if isinstance(parsed.model, ProtobufModel):
        return protobuf.record_of(parsed.model, message)
    return json_schema.record_of(parsed.model)
