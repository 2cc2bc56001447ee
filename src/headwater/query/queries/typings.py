"""How rows that are still in the WAL get the typed columns of their topic's table, as far as a gateway knows it.

An engine's process asks no registry, so it gets the schemas that records of the topic probably name: those of the
topic's subjects first, then others, the newest first. A row whose schema is not among them has nulls until it is
settled. An engine's process starts no other one either, so Protobuf's schemas are compiled here.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from headwater.configs.topics import TopicConfig
from headwater.errors import BadSchema, HeadwaterError
from headwater.lake.decoding import is_flat
from headwater.replica.schema_sources import Sources
from headwater.schemas.parsing import ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.typing import AUTO, SUBJECT, KnownSchema, Typing
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.schemas import Schema, Schemas
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.columns import Column
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import NO_COLUMNS, Columns
from headwater.threads import Offload

MAX_SCHEMAS = 256
MAX_CHARACTERS = 1 << 20
"""Schemas that a task carries for a topic, and the length of their texts."""
MAX_COMPILED = 16
"""Of these, schemas of Protobuf. Each takes some 50 milliseconds when it is met first."""
KEPT_COMPILED = 1_000


def columns_of(state: StreamsState, topic: Topic) -> Columns:
    """The typed columns of a topic's table, with their history."""
    table = state.typed.get(topic.id)
    return table.columns if table is not None else NO_COLUMNS


def shown(columns: Columns, version: int | None) -> tuple[Column, ...]:
    """The typed columns at a version of the table. None: those of the present."""
    return columns.newest if version is None else columns.of(columns.at(version))


class Typings:
    """Says how rows of the WAL are decoded."""

    def __init__(self, offload: Offload, *, built_in: bool = True) -> None:
        """`built_in` says whether records name schemas of the cluster's own registry. No other one is asked."""
        self._offload = offload
        self._built_in = built_in
        self._compiled: OrderedDict[int, bytes] = OrderedDict()
        """By id, descriptors of Protobuf's schemas; empty if a schema cannot be used."""

    def __repr__(self) -> str:
        return f"<Typings, {len(self._compiled)} compiled>"

    async def of(self, cluster: ClusterState, topic: Topic, columns: Columns) -> Typing | None:
        """How rows of a topic are decoded; None if they are not."""
        config = TopicConfig.of(topic.configs, cluster.resources.common)
        if not config.typed or not columns.newest:
            return None
        sources = (config.key_schema, config.value_schema)
        by_schema = self._built_in and any(source == AUTO or source.startswith(SUBJECT) for source in sources)
        return Typing(
            key=config.key_schema,
            value=config.value_schema,
            flatten=is_flat(columns.newest, config.flatten),
            separate=config.separate_types,
            columns=columns.newest,
            version=columns.version,
            last_id=columns.last_id,
            schemas=await self._schemas(cluster.schemas, topic.name, sources) if by_schema else (),
            cut_off=True,
        )

    async def _schemas(self, schemas: Schemas, topic: str, sources: tuple[str, ...]) -> tuple[KnownSchema, ...]:
        """The schemas that records of a topic may name. They are chosen in one step; Protobuf's are compiled then."""
        pinned = {source: newest.id for source in sources if (newest := _newest(schemas, source)) is not None}
        texts, known, room, compiled = Sources(schemas), [], MAX_CHARACTERS, 0
        for schema in itertools.islice(_candidates(schemas, topic, pinned), MAX_SCHEMAS):
            source = texts.source_of(schema.content)
            room -= len(source.text) + sum(len(text) for _, text in source.references)
            if room < 0:
                break
            if source.kind is SchemaKind.PROTOBUF:
                compiled += 1
                if compiled > MAX_COMPILED:
                    continue
            names = [str(schema.id), *(name for name, own in pinned.items() if own == schema.id)]
            if schemas.by_guid(schema.guid) is schema:
                names.append(str(schema.guid))
            known.append((schema.id, KnownSchema(tuple(names), source.kind.value, source.text, source.references)))
        found = [await self._usable(number, one) for number, one in known]
        return tuple(one for one in found if one is not None)

    async def _usable(self, number: int, known: KnownSchema) -> KnownSchema | None:
        """A schema as an engine's process can use it; None if it cannot."""
        if known.kind != SchemaKind.PROTOBUF:
            return known
        if number not in self._compiled:
            source = Source(SchemaKind.PROTOBUF, known.text, known.references)
            try:
                self._compiled[number] = await self._offload(_descriptors, source)
            except BadSchema:
                self._compiled[number] = b""
            except HeadwaterError:
                return None  # the compiler took too long: the next query tries again
            while len(self._compiled) > KEPT_COMPILED:
                self._compiled.popitem(last=False)
        descriptors = self._compiled.get(number, b"")
        return msgspec.structs.replace(known, compiled=descriptors) if descriptors else None


def _newest(schemas: Schemas, source: str) -> Schema | None:
    """The newest schema of the subject that a topic pins."""
    subject = schemas.subjects.get(source.removeprefix(SUBJECT)) if source.startswith(SUBJECT) else None
    live = subject.live if subject is not None else []
    return schemas.schemas[live[-1].id] if live else None


def _candidates(schemas: Schemas, topic: str, pinned: dict[str, int]) -> Iterator[Schema]:
    """Schemas, the likeliest first, each once."""
    names = [f"{topic}-value", f"{topic}-key", *(source.removeprefix(SUBJECT) for source in pinned)]
    own = (schemas.subjects[name] for name in names if name in schemas.subjects)
    versions = [version.id for subject in own for version in reversed(subject.versions.values())]
    for number in dict.fromkeys([*pinned.values(), *versions, *sorted(schemas.schemas, reverse=True)]):
        if number in schemas.schemas:
            yield schemas.schemas[number]


def _descriptors(source: Source) -> bytes:
    model = parse(source, strict=False).model
    assert isinstance(model, ProtobufModel)
    return model.descriptors
