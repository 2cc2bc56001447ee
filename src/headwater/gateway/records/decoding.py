"""Keys and values of records by their schemas, as JSON: for callers that ask for `format=decoded`.

What cannot be decoded is shown as text, with the reason beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.background import each
from headwater.client.records import Record
from headwater.configs.topics import TopicConfig
from headwater.errors import BadSchema, BadValue, RegistryUnavailable
from headwater.gateway.records.values import NULL, Format, shown
from headwater.lake.finding import SchemaFinder
from headwater.schemas.framing import KEY_HEADER, VALUE_HEADER
from headwater.schemas.payloads import Reading, Usable
from headwater.schemas.typing import JSON, NO_SCHEMA

if TYPE_CHECKING:
    from headwater.gateway.services import Services
    from headwater.state.cluster.domain import Topic

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
    decoded: bool = False
    """Whether it is shown by a schema, or as the JSON that the topic has."""


class Decoding:
    """Decodes records of one topic. One thread at a time uses it."""

    def __init__(self, finder: SchemaFinder, key: str, value: str) -> None:
        """`key` and `value` say where schemas come from: see the topic config `headwater.value.schema`."""
        self._finder = finder
        self._readings = {KEY_HEADER: Reading(key), VALUE_HEADER: Reading(value)}
        self._known: dict[str, Usable | str | None] = {}
        self._unanswered: set[str] = set()
        """Names of schemas for which the registry did not answer. It is asked again."""
        self.with_bytes = False
        """Whether the bytes are shown, too."""

    def __repr__(self) -> str:
        return f"<Decoding, {len(self._known)} schemas>"

    async def prepare(self, records: Iterable[Record]) -> None:
        """Get the schemas that records name. The others of this class know no more than these."""
        for name in self._unanswered:
            self._known.pop(name, None)
        self._unanswered.clear()
        wanted: dict[str, None] = {}
        for record in records:
            for header, data in ((KEY_HEADER, record.key), (VALUE_HEADER, record.value)):
                for name in self._readings[header].wants(data, _told(record, header)) if data is not None else ():
                    if name not in self._known and len(self._known) + len(wanted) < MAX_SCHEMAS:
                        wanted[name] = None
        if wanted:
            self._known.update(zip(wanted, await each(self._load, list(wanted)), strict=True))

    def key(self, record: Record) -> Shown:
        """The key of a record."""
        return self._shown(KEY_HEADER, record.key, record)

    def value(self, record: Record) -> Shown:
        """The value of a record."""
        return self._shown(VALUE_HEADER, record.value, record)

    async def _load(self, name: str) -> Usable | str | None:
        try:
            return await self._finder.find(name)
        except BadSchema as error:
            return f"the schema {name} cannot be used: {error}"
        except RegistryUnavailable as error:
            self._unanswered.add(name)
            return f"the schema registry cannot be asked: {error}"

    def _shown(self, header: str, data: bytes | None, record: Record) -> Shown:
        if data is None:
            return Shown(NULL)
        reading = self._readings[header]
        if reading.source == NO_SCHEMA:
            return Shown(*shown(data, Format.JSON))
        try:
            value, schema = reading.decoded(data, _told(record, header), self._known)
            if reading.source == JSON:
                return Shown(
                    msgspec.Raw(msgspec.json.format(data, indent=-1)), decoded=True
                )  # numbers keep their digits
            return Shown(msgspec.Raw(msgspec.json.encode(value)), schema=schema, decoded=True)
        except (BadValue, BadSchema, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return Shown(*shown(data, Format.TEXT), error=str(error)[:MAX_ERROR])


def _told(record: Record, header: str) -> bytes | None:
    """The header of a record that names a schema. The last one counts."""
    return next((value or b"" for name, value in reversed(record.headers) if name == header), None)


View = Format | Decoding
"""How keys and values are shown."""


def decoding_of(services: Services, topic: Topic) -> Decoding:
    """What decodes records of a topic, for one answer."""
    config = TopicConfig.of(topic.configs, services.state.resources.common)
    return Decoding(services.schemas, config.key_schema, config.value_schema)


async def view_of(services: Services, topic: Topic, form: Format, records: Iterable[Record]) -> View:
    """How these records of a topic are shown."""
    if not form.by_schema:
        return form
    decoding = decoding_of(services, topic)
    decoding.with_bytes = form is Format.BOTH
    await decoding.prepare(records)
    return decoding
