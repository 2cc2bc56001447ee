"""Keys and values of records by their schemas, as JSON: for callers that ask for `format=decoded`.

The schemas are those of the cluster's own registry. What cannot be decoded is shown as text, with the reason beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from headwater.client.records import Record
from headwater.configs.topics import TopicConfig
from headwater.errors import BadSchema, BadValue
from headwater.gateway.records.values import NULL, Format, shown
from headwater.gateway.services import Services
from headwater.schemas.encoding import Codec, codec
from headwater.schemas.framing import KEY_HEADER, VALUE_HEADER, frame_of, read_indexes
from headwater.schemas.parsing import Parsed, ProtobufModel
from headwater.schemas.protobuf.model import message_name
from headwater.schemas.typing import JSON, NO_SCHEMA, SUBJECT
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.schemas import Schema

MAX_SCHEMAS = 1_000
"""Schemas that one answer decodes with. Records of others are shown as text."""
MAX_ERROR = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or a value, as it is shown."""

    json: msgspec.Raw
    base64: str | None = None
    """The bytes, if they are neither decoded nor text."""
    schema: int | None = None
    """The id of the schema, if the record was decoded by one."""
    error: str | None = None
    """Why it was not decoded."""


@dataclass(frozen=True, slots=True)
class _Known:
    schema: Schema
    parsed: Parsed


class Decoding:
    """Decodes records of one topic, for one answer. One thread at a time uses it."""

    def __init__(self, services: Services, topic: Topic) -> None:
        config = TopicConfig.of(topic.configs, services.state.resources.common)
        self._services = services
        self._registry = services.registry
        self._elsewhere = bool(services.settings.schema_registry.url)
        self._sources = {KEY_HEADER: config.key_schema, VALUE_HEADER: config.value_schema}
        self._known: dict[str, _Known | str | None] = {}
        """By the name that records have for it, a schema, or why it cannot be used; None if there is none."""
        self._codecs: dict[tuple[str, tuple[int, ...]], Codec] = {}
        self.with_bytes = False
        """Whether the bytes are shown, too."""

    def __repr__(self) -> str:
        return f"<Decoding, {len(self._known)} schemas>"

    async def prepare(self, records: Iterable[Record]) -> None:
        """Get the schemas that records name. The others of this class know no more than these."""
        fresh = False
        for record in records:
            for header, data in ((KEY_HEADER, record.key), (VALUE_HEADER, record.value)):
                if data is None or self._sources[header] in (NO_SCHEMA, JSON):
                    continue
                for name in (self._named(header, data, record)[0], self._pinned(header)):
                    if not name or name in self._known or len(self._known) >= MAX_SCHEMAS:
                        continue
                    if not fresh and self._find(name) is None:
                        await self._services.catch_up()  # it may have been registered lately
                        fresh = True
                    self._known[name] = await self._load(name)

    def key(self, record: Record) -> Shown:
        """The key of a record."""
        return self._shown(KEY_HEADER, record.key, record)

    def value(self, record: Record) -> Shown:
        """The value of a record."""
        return self._shown(VALUE_HEADER, record.value, record)

    # --- schemas ---------------------------------------------------------------------------------------

    async def _load(self, name: str) -> _Known | str | None:
        if self._elsewhere:
            return "its schema is in another registry, which a gateway does not ask"
        schema = self._find(name)
        if schema is None:
            return None
        try:
            return _Known(schema, await self._registry.parsed(schema))
        except BadSchema as error:
            return f"the schema {schema.id} cannot be used: {error}"

    def _find(self, name: str) -> Schema | None:
        schemas = self._registry.schemas
        if name.startswith(SUBJECT):
            subject = schemas.subjects.get(name.removeprefix(SUBJECT))
            live = subject.live if subject is not None else []
            return schemas.schemas[live[-1].id] if live else None
        return schemas.schemas.get(int(name)) if name.isdecimal() else schemas.by_guid(uuid.UUID(name))

    def _named(self, header: str, data: bytes, record: Record) -> tuple[str, bytes]:
        """The name of the schema of a key or a value, empty if there is none, and the bytes behind its prefix."""
        told = next((value or b"" for name, value in reversed(record.headers) if name == header), None)
        try:
            schema, rest = frame_of(data, told)
        except ValueError:
            return "", data
        return schema.key or self._pinned(header), rest

    def _pinned(self, header: str) -> str:
        """The name of the schema of records that name none; empty if there is none."""
        source = self._sources[header]
        return source if source.startswith(SUBJECT) else ""

    # --- decoding --------------------------------------------------------------------------------------

    def _shown(self, header: str, data: bytes | None, record: Record) -> Shown:
        if data is None:
            return Shown(NULL)
        source = self._sources[header]
        if source == NO_SCHEMA:
            return Shown(*shown(data, Format.JSON))
        try:
            if source == JSON:
                msgspec.json.decode(data)
                return Shown(msgspec.Raw(msgspec.json.format(data, indent=-1)))
            return self._decoded(header, data, record)
        except (BadValue, BadSchema, ValueError, IndexError, RecursionError, msgspec.MsgspecError) as error:
            return Shown(*shown(data, Format.TEXT), error=str(error)[:MAX_ERROR])

    def _decoded(self, header: str, data: bytes, record: Record) -> Shown:
        name, rest = self._named(header, data, record)
        if not name:
            raise BadValue("neither a prefix nor a header names a schema")
        known = self._known.get(name, "the answer has too many different schemas")
        if known is None and self._pinned(header) and len(rest) < len(data):  # what looks like a prefix is none
            name, rest = self._pinned(header), data
            known = self._known.get(name)
        if known is None:
            raise BadValue(f"the registry has no schema {name}")
        if isinstance(known, str):
            raise BadValue(known)
        indexes: tuple[int, ...] = ()
        if isinstance(known.parsed.model, ProtobufModel) and not name.startswith(SUBJECT):
            indexes, size = read_indexes(rest)
            rest = rest[size:]
        key = (name, indexes)
        if key not in self._codecs:
            model = known.parsed.model
            message = message_name(model, indexes) if isinstance(model, ProtobufModel) else ""
            self._codecs[key] = codec(known.parsed, message)
        value = self._codecs[key].decode(rest)
        return Shown(msgspec.Raw(msgspec.json.encode(value)), schema=known.schema.id)


View = Format | Decoding
"""How keys and values are shown."""


async def view_of(services: Services, topic: Topic, form: Format, records: Iterable[Record]) -> View:
    """How these records of a topic are shown."""
    if not form.by_schema:
        return form
    decoding = Decoding(services, topic)
    decoding.with_bytes = form is Format.BOTH
    await decoding.prepare(records)
    return decoding
