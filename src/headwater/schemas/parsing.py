"""From the text of a schema and of what it refers to, to a model of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headwater.errors import BadSchema
from headwater.extras import need
from headwater.schemas.avro import model as avro
from headwater.schemas.avro.model import AvroModel
from headwater.schemas.jsonschema import model as jsonschema
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.protobuf import model as protobuf
from headwater.schemas.protobuf.model import ProtobufModel
from headwater.schemas.texts import check_sizes

__all__ = ["AvroModel", "JsonModel", "Model", "Parsed", "ProtobufModel", "SchemaKind", "Source", "parse"]

Model = AvroModel | JsonModel | ProtobufModel


class SchemaKind(enum.StrEnum):
    """The kinds of schemas, by the names that Confluent's registry has for them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Source:
    """A schema as it was registered."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of every schema that this one refers to, also by way of others. A schema comes after those that it
    refers to itself."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema that was found to be valid."""

    kind: SchemaKind
    canonical: str
    """A text that is the same for two schemas which differ in spaces and the like only."""
    normalized: str
    """A text that is the same for two schemas which mean the same, as far as `normalize` of the registry goes."""
    model: Model


def parse(source: Source, strict: bool = True) -> Parsed:
    """Parse a schema. Raises `BadSchema`, with the place of the flaw.

    With `strict=False` it accepts flaws that old schemas of other registries have and that no reader minds.
    """
    need("registry")
    check_sizes(source.text, source.references)
    try:
        if source.kind is SchemaKind.AVRO:
            return Parsed(source.kind, *avro.parse(source.text, source.references, strict))
        if source.kind is SchemaKind.JSON:
            return Parsed(source.kind, *jsonschema.parse(source.text, source.references))
        return Parsed(source.kind, *protobuf.parse(source.text, source.references))
    except RecursionError:
        raise BadSchema("The schema is nested too deeply") from None
