"""Whether a new version of a schema may follow the versions before it: Confluent's seven levels."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import BadSchema
from headwater.schemas.avro import compatibility as avro
from headwater.schemas.differences import Difference
from headwater.schemas.jsonschema import compatibility as jsonschema
from headwater.schemas.parsing import AvroModel, JsonModel, Parsed, ProtobufModel
from headwater.schemas.protobuf import compatibility as protobuf

MOST_SHOWN = 10 * 1024
"""Characters of a former schema that an explanation shows."""


class Level(enum.StrEnum):
    """The levels of compatibility, by Confluent's names."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


def differences(reader: Parsed, writer: Parsed) -> list[Difference]:
    """What keeps the reader's schema from reading what was written with the writer's.

    Raises `BadSchema` if the schemas are too large or too deep to be compared.
    """
    try:
        return _differences(reader, writer)
    except RecursionError:
        raise BadSchema("The schemas refer to each other too deeply to be compared") from None


def _differences(reader: Parsed, writer: Parsed) -> list[Difference]:
    if isinstance(reader.model, AvroModel) and isinstance(writer.model, AvroModel):
        return avro.differences(reader.model, writer.model)
    if isinstance(reader.model, ProtobufModel) and isinstance(writer.model, ProtobufModel):
        return protobuf.differences(reader.model, writer.model)
    if isinstance(reader.model, JsonModel) and isinstance(writer.model, JsonModel):
        return jsonschema.differences(reader.model, writer.model)
    text = "the kind of the {reader} schema is not that of the {writer} schema"
    return [Difference("SCHEMA_TYPE_CHANGED", "/", text, f"the reader is {reader.kind}, the writer {writer.kind}")]


def incompatibilities(level: Level, new: Parsed, versions: Sequence[Parsed]) -> list[str]:
    """What keeps a new schema from following the versions of a subject, oldest first. Nothing: it may follow.

    The newest version is compared first. The answer is about the first version that does not fit.
    """
    if level is Level.NONE:
        return []
    compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    for old in reversed(compared):
        found: list[str] = []
        if level.startswith(("BACKWARD", "FULL")):
            found.extend(one.described("new", "old") for one in differences(new, old))
        if level.startswith(("FORWARD", "FULL")):
            found.extend(one.described("old", "new") for one in differences(old, new))
        if found:
            return found
    return []


@dataclass(frozen=True, slots=True)
class Former:
    """A version that a new schema is compared with."""

    version: int
    text: str
    parsed: Parsed


def explained(level: Level, new: Parsed, versions: Sequence[Former]) -> list[str]:
    """The same as `incompatibilities`, with the version that does not fit and the level, as Confluent's registry says.

    Clients look for `oldSchemaVersion` and `oldSchema`.
    """
    compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    for old in reversed(compared):
        if found := incompatibilities(level, new, [old.parsed]):
            shown = f"'{old.text}'" if len(old.text) <= MOST_SHOWN else f"<truncated> '{old.text[:MOST_SHOWN]}...'"
            more = (f"{{oldSchemaVersion: {old.version}}}", f"{{oldSchema: {shown}}}")
            return [*found, *more, f"{{validateFields: 'false', compatibility: '{level}'}}"]
    return []
