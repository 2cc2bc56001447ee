"""How rows that are still in the WAL get the typed columns of their topic's table, as far as a gateway knows it.

Readers of rows ask no registry. They get the schemas that records of the topic named lately, and say which others they
need; these are asked for, and the rows are read again. What a registry does not give is null, with a note, and no
error. Processes of engines start no other ones either, so Protobuf's schemas are compiled here.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.clock import Clock
from headwater.configs.topics import TopicConfig
from headwater.errors import BadSchema, HeadwaterError
from headwater.lake.decoding import is_flat, typing_of
from headwater.lake.known import KnownSchemas
from headwater.lake.registries import BuiltIn, Registry
from headwater.query.typed import HotTyper
from headwater.replica.replica import Replica
from headwater.schemas.codecs import Codec, codec_of
from headwater.schemas.columns import merged, root_of
from headwater.schemas.parsing import ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.typing import AUTO, JSON, NO_SCHEMA, SUBJECT, KnownSchema, Typing
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.columns import Column
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import NO_COLUMNS, Columns
from headwater.threads import Offload

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SCHEMAS = 256
MAX_CHARACTERS = 4 << 20
"""Schemas that a reader of a topic gets, and the length of their texts."""
MAX_COMPILED = 16
"""Schemas of Protobuf that are compiled for one query. Each takes some 50 milliseconds when it is met first."""
KEPT_COMPILED = 1_000
KEPT_BYTES = 32 << 20
"""Compiled schemas that are kept, and their size."""
TRIES = 4
"""How often rows are read again because schemas were missing."""
WAIT_SECONDS = 5.0
"""How long a query waits for all schemas that it wants of an external registry."""
OWN_ABSENT_SECONDS = 5.0
"""How long a schema that the cluster's own registry does not have is not looked for again."""


def columns_of(state: StreamsState, topic: Topic) -> Columns:
    """The typed columns of a topic's table, with their history."""
    table = state.typed.get(topic.id)
    return table.columns if table is not None else NO_COLUMNS


def shown(columns: Columns, version: int | None) -> tuple[Column, ...]:
    """The typed columns at a version of the table. None: those of the present."""
    return columns.of(shown_version(columns, version))


def shown_version(columns: Columns, version: int | None) -> int:
    """The version of the typed columns at a version of the table. None: that of the present."""
    return columns.version if version is None else columns.at(version)


def schemas_of(cluster: Replica[ClusterState], clock: Clock, external: Registry | None = None) -> KnownSchemas:
    """The schemas of an external registry, or else of the cluster's own."""
    if external is not None:
        return KnownSchemas(external, clock, wait_seconds=WAIT_SECONDS)
    return KnownSchemas(BuiltIn(cluster), clock, absent_seconds=OWN_ABSENT_SECONDS, newest_seconds=0)


class Expected(NamedTuple):
    """Typed columns of a table, with those that settling will add by what is known now."""

    columns: tuple[Column, ...]
    last_id: int


class Typings:
    """Says how rows of the WAL are decoded."""

    def __init__(self, schemas: KnownSchemas, offload: Offload) -> None:
        self.schemas = schemas
        self._offload = offload
        self._compiled: OrderedDict[bytes, bytes] = OrderedDict()
        """By a hash of the texts, descriptors of Protobuf's schemas; empty if a schema cannot be used."""
        self._size = 0
        self.lacking: set[uuid.UUID] = set()
        """Topics whose rows named schemas for which the registry did not answer."""

    def __repr__(self) -> str:
        return f"<Typings by {self.schemas!r}, {len(self._compiled)} compiled>"

    async def expected(self, cluster: ClusterState, topic: Topic, columns: Columns) -> Expected:
        """The columns that the table will have once records of its subjects' newest schemas are settled."""
        config = TopicConfig.of(topic.configs, cluster.resources.common)
        now = Expected(columns.newest, columns.last_id)
        sources = {
            word: f"{SUBJECT}{topic.name}-{word}" if source == AUTO else source
            for word, source in (("key", config.key_schema), ("value", config.value_schema))
            if source not in (NO_SCHEMA, JSON)
        }
        if not sources:
            return now
        await self.schemas.refresh(topic.id, sources.values())
        known = {name: one for one in await self.usable(self.schemas.of(topic.id)[0]) for name in one.names}
        codecs: dict[str, Codec] = {}
        for word, name in sources.items():
            if name in known:
                with contextlib.suppress(BadSchema):
                    codecs[word] = codec_of(known[name], ())
        if not codecs:
            return now
        value = codecs.get("value")
        root = root_of(
            codecs["key"].shape if "key" in codecs else None,
            value.shape if value is not None else None,
            flatten=is_flat(columns.newest, config.flatten),
            record=value.record if value is not None and config.separate_types else "",
        )
        return Expected(*merged(columns.newest, columns.last_id, root))

    async def of(
        self, cluster: ClusterState, topic: Topic, columns: Columns, expected: Expected | None = None
    ) -> TopicTyping | None:
        """How rows of a topic are decoded, with the columns that its table has, or will have; None if they are not."""
        config = TopicConfig.of(topic.configs, cluster.resources.common)
        wanted = expected or Expected(columns.newest, columns.last_id)
        if not config.typed or not wanted.columns:
            return None
        typing = msgspec.structs.replace(typing_of(config, columns), columns=wanted.columns, last_id=wanted.last_id)
        self.schemas.forget(cluster.topics)
        self.lacking &= cluster.topics.keys()
        found = TopicTyping(self, topic, typing)
        if {config.key_schema, config.value_schema} - {NO_SCHEMA, JSON}:
            await self.schemas.refresh(topic.id, (config.key_schema, config.value_schema))
            await found.renew()
            if topic.id in self.lacking and self.schemas.resting:
                found.give_up(answered=False)  # rows are not read twice while nothing can change
        return found

    async def usable(self, known: Sequence[KnownSchema]) -> list[KnownSchema]:
        """Schemas as a reader can use them, as many as it gets, the last ones first. Protobuf's are compiled."""
        found: list[KnownSchema] = []
        room, fresh = MAX_CHARACTERS, 0
        for one in reversed(known):
            room -= len(one.text) + sum(len(text) for _, text in one.references)
            if room < 0 or len(found) >= MAX_SCHEMAS:
                break
            if one.kind != SchemaKind.PROTOBUF:
                found.append(one)
                continue
            key = hashlib.sha256(msgspec.msgpack.encode((one.text, one.references))).digest()
            if key not in self._compiled:
                fresh += 1
                if fresh > MAX_COMPILED or not await self._compile(key, one):
                    continue
            self._compiled.move_to_end(key)
            if self._compiled[key]:
                found.append(msgspec.structs.replace(one, compiled=self._compiled[key]))
        return found

    async def _compile(self, key: bytes, known: KnownSchema) -> bool:
        """Compile a schema and keep it. Returns False if the compiler took too long: the next query tries again."""
        source = Source(SchemaKind.PROTOBUF, known.text, known.references)
        try:
            made = await self._offload(_descriptors, source)
        except BadSchema:
            made = b""
        except HeadwaterError:
            return False
        self._size += len(made) - len(self._compiled.get(key, b""))
        self._compiled[key] = made
        while len(self._compiled) > 1 and (len(self._compiled) > KEPT_COMPILED or self._size > KEPT_BYTES):
            self._size -= len(self._compiled.popitem(last=False)[1])
        return True


class TopicTyping:
    """How rows of one topic are decoded, for one reader. What is missing is asked for while it reads."""

    def __init__(self, typings: Typings, topic: Topic, typing: Typing) -> None:
        self._typings = typings
        self._topic = topic
        self.typing = typing
        """What a reader gets now."""
        self.notes: dict[str, None] = {}
        """Why some values are null, in sentences."""

    def __repr__(self) -> str:
        return f"<TopicTyping of {self._topic.name!r}, {len(self.typing.schemas)} schemas>"

    async def renew(self) -> None:
        """Take the schemas that are known by now. Others that rows name are told as missing."""
        known, absent = self._typings.schemas.of(self._topic.id)
        chosen = sorted(await self._typings.usable(known), key=lambda one: one.names)
        self.typing = msgspec.structs.replace(
            self.typing, schemas=tuple(chosen), absent=tuple(sorted(absent)), cut_off=False
        )

    async def learn(self, names: Sequence[str]) -> None:
        """Ask for schemas that rows name. If that does not give all of them, the rows are to be read without them."""
        schemas = self._typings.schemas
        answered = await schemas.learn(self._topic.id, names)
        await self.renew()
        given = {name for schema in self.typing.schemas for name in schema.names} | set(self.typing.absent)
        lacking = [name for name in names if name not in given]
        self._typings.lacking.discard(self._topic.id)
        if lacking:
            self.give_up(answered=answered)

    def give_up(self, *, answered: bool = True) -> None:
        """Let the rows be read without schemas that are not known: their values are null."""
        self.typing = msgspec.structs.replace(self.typing, cut_off=True)
        reason = "their schemas cannot be used, or are too many for one query"
        if not answered:
            self._typings.lacking.add(self._topic.id)
            reason = "the schema registry does not answer"
        where = f"of topic {self._topic.name!r} that are not settled"
        self.notes[f"Some values of records {where} may be null: {reason}."] = None


class RowTyping:
    """Adds typed columns to rows of the WAL, and asks for the schemas that they name. For scans."""

    def __init__(self, own: TopicTyping, offload: Offload) -> None:
        self._own = own
        self._offload = offload
        self._typer = HotTyper(own.typing)

    def __repr__(self) -> str:
        return f"<RowTyping by {self._own!r}>"

    async def typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with their typed columns behind the others."""
        for left in range(TRIES, -1, -1):
            found = await self._offload(self._typer.typed, rows)
            if not self._typer.missing:
                break
            await self._own.learn(self._typer.missing)
            if left == 1:
                self._own.give_up()
            self._typer = HotTyper(self._own.typing)
        if self._own.typing.cut_off:  # the next rows may name other schemas
            await self._own.renew()
            self._typer = HotTyper(self._own.typing)
        return found


def _descriptors(source: Source) -> bytes:
    model = parse(source, strict=False).model
    assert isinstance(model, ProtobufModel)
    return model.descriptors
