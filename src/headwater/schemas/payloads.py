"""Keys and values one by one, by their schemas: from bytes to JSON values, and back.

Tables decode many records at once (`typer`). This is for those that show or take single records. Finding schemas is up
to the caller: a `Reading` says which ones it needs, by the names that records and topics have for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headwater.errors import BadValue
from headwater.schemas.encoding import Codec, codec, prefix
from headwater.schemas.framing import frame_of, read_indexes
from headwater.schemas.parsing import Parsed, ProtobufModel, SchemaKind
from headwater.schemas.protobuf.model import message_indexes, message_name
from headwater.schemas.typing import AUTO, JSON, NO_SCHEMA, SUBJECT

FIRST = (0,)
"""The indexes of the first message of a Protobuf file."""


@dataclass(frozen=True, slots=True)
class Usable:
    """A schema that was found and parsed."""

    parsed: Parsed
    id: int | None = None
    """None if the registry does not tell it."""

    @property
    def kind(self) -> SchemaKind:
        """AVRO, PROTOBUF or JSON."""
        return self.parsed.kind


Known = Mapping[str, "Usable | str | None"]
"""By name, a schema, or why it cannot be used; None if there is none."""


class Reading:
    """Decodes the keys, or the values, of one topic. One thread at a time uses it."""

    def __init__(self, source: str) -> None:
        """`source` says where schemas come from: see the topic config `headwater.value.schema`."""
        self.source = source
        self._codecs: dict[tuple[str, tuple[int, ...]], Codec] = {}

    def __repr__(self) -> str:
        return f"<Reading by {self.source}, {len(self._codecs)} schemas>"

    @property
    def by_schema(self) -> bool:
        """Whether there are schemas at all."""
        return self.source not in (NO_SCHEMA, JSON)

    @property
    def _pinned(self) -> str:
        """The name of the schema of records that name none; empty if there is none."""
        return self.source if self.source.startswith(SUBJECT) else ""

    def wants(self, data: bytes, told: bytes | None) -> tuple[str, ...]:
        """The names of schemas that are needed to decode a payload. `told` is the header that names one, if any."""
        if not self.by_schema:
            return ()
        return tuple(name for name in dict.fromkeys((self._named(data, told)[0], self._pinned)) if name)

    def decoded(self, data: bytes, told: bytes | None, known: Known) -> tuple[Any, int | None]:
        """The value of a payload, and the id of its schema. Raises `BadValue` with the reason if there is none."""
        try:
            if self.source == JSON:
                return msgspec.json.decode(data), None
            return self._decoded(data, told, known)
        except (ValueError, IndexError, RecursionError, msgspec.MsgspecError) as error:
            raise BadValue(str(error)) from error

    def _named(self, data: bytes, told: bytes | None) -> tuple[str, bytes]:
        """The name of the schema of a payload, empty if there is none, and the bytes behind its prefix."""
        try:
            schema, rest = frame_of(data, told)
        except ValueError:
            return "", data
        return schema.key or self._pinned, rest

    def _decoded(self, data: bytes, told: bytes | None, known: Known) -> tuple[Any, int | None]:
        name, rest = self._named(data, told)
        if not name:
            raise BadValue("neither a prefix nor a header names a schema")
        found = known.get(name, "too many different schemas are named")
        if found is None and self._pinned and len(rest) < len(data):  # what looks like a prefix is none
            name, rest = self._pinned, data
            found = known.get(name)
        if found is None:
            raise BadValue(f"the registry has no schema {name}")
        if isinstance(found, str):
            raise BadValue(found)
        indexes: tuple[int, ...] = ()
        if isinstance(found.parsed.model, ProtobufModel) and not name.startswith(SUBJECT):
            indexes, size = read_indexes(rest)
            rest = rest[size:]
        key = (name, indexes)
        if key not in self._codecs:
            model = found.parsed.model
            message = message_name(model, indexes) if isinstance(model, ProtobufModel) else ""
            self._codecs[key] = codec(found.parsed, message)
        return self._codecs[key].decode(rest), found.id


class Writing:
    """Encodes JSON values by one schema, with the id in front of them. Several threads may use it."""

    def __init__(self, schema: Usable, message: str = "") -> None:
        """`message` is the full name of a Protobuf message; without it, the first one of the file.

        Raises `BadValue` if the schema has no such message, or has no id.
        """
        if schema.id is None:
            raise BadValue("the registry does not tell the id of the schema")
        model = schema.parsed.model
        if message and not isinstance(model, ProtobufModel):
            raise BadValue(f"a schema of kind {schema.kind.value} has no messages")
        self._codec = codec(schema.parsed, message)
        indexes: tuple[int, ...] | None = None
        if isinstance(model, ProtobufModel):
            try:
                indexes = message_indexes(model, message) if message else FIRST
            except KeyError as error:
                raise BadValue(str(error.args[0])) from None
        self._prefix = prefix(schema.id, indexes)
        self.schema = schema

    def __repr__(self) -> str:
        return f"<Writing by schema {self.schema.id}>"

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises `BadValue`, which names the place, if it does not fit."""
        return self._prefix + self._codec.encode(value)


def takes_prefix(source: str) -> bool:
    """Whether records of a topic may have the id of a schema in front of them. `source` is the topic's config."""
    return source in (NO_SCHEMA, AUTO) or source.startswith(SUBJECT)


def record_name(parsed: Parsed) -> str:
    """The name of what a schema describes: a record, the first message, a title. Empty if it has none."""
    model = parsed.model
    if isinstance(model, ProtobufModel):
        return model.messages[0] if model.messages else ""
    tree = getattr(model, "tree", None) if parsed.kind is SchemaKind.AVRO else getattr(model, "schema", None)
    name = tree.get("name" if parsed.kind is SchemaKind.AVRO else "title") if isinstance(tree, dict) else None
    return name if isinstance(name, str) else ""
