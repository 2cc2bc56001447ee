"""A cluster by its data directory or settings: ledger and objects are read directly, whether or not a server runs.

To write, and to follow a topic, a server is needed: the cluster's gateway, at the address in the settings.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.app.session import LedgerSession, ledger_session
from headwater.client.records import Record as LogRecord
from headwater.clock import SystemClock
from headwater.configs.topics import TopicConfig
from headwater.errors import NotFound, NotReady
from headwater.gateway.records.decoding import Decoding, Shown
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.finding import SchemaFinder
from headwater.lake.known import KnownSchemas
from headwater.lake.registries import BuiltIn
from headwater.log.segment.cache import SegmentCache
from headwater.log.wal.cache import WalCache
from headwater.objects import open_store
from headwater.query.lookups.lookups import Answer, Lookups
from headwater.query.lookups.lookups import Place as Placed
from headwater.query.scan import scan, schema_of
from headwater.query.snapshot import Snapshot, take
from headwater.query.typings import RowTyping, TopicTyping, Typings, columns_of, shown
from headwater.query.wanted import Wanted
from headwater.schemas.typing import KnownSchema
from headwater.sdk.connection import Connection, PartitionInfo, TopicInfo
from headwater.sdk.consumer import Source
from headwater.sdk.http import Http, Login
from headwater.sdk.loops import Loop
from headwater.sdk.records import Appended, Data, NewRecord, Place, Record, Start, key_of
from headwater.sdk.remote import RemoteConnection
from headwater.sdk.result import Result
from headwater.sdk.scan import Rows, Scan
from headwater.settings.settings import Settings, load
from headwater.state.cluster.domain import Topic
from headwater.state.commands.columns import Column
from headwater.state.streams.stream import Stream
from headwater.threads import inline
from headwater.types import Domain

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER = "ledger.db"
PROBE_SECONDS = 2.0
"""How long to look for a gateway."""


def settings_of(place: Path) -> Settings:
    """The settings of a data directory, or those in a file."""
    if place.is_file():
        settings = load(str(place))
    elif place.is_dir():
        settings = load(flags={"data": str(place)})
    else:
        raise NotFound(f"there is no directory or file {place}")
    if settings.ledger_url.startswith("sqlite:") and not Path(settings.data, LEDGER).exists() and not settings.ledger:
        raise NotFound(f"{settings.data} is not the data directory of a cluster: it has no {LEDGER}")
    return settings


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a scan reads."""

    snapshot: Snapshot
    columns: tuple[Column, ...]
    """The typed columns."""
    typing: TopicTyping | None


class Visited:
    """The schema registry of a cluster whose ledger is read when it is asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        return f"<Visited {self._settings.ledger_url}>"

    async def schema(self, name: str) -> KnownSchema | None:
        async with ledger_session(self._settings) as found:
            return await BuiltIn(found.cluster).schema(name)


class LocalConnection(Connection):
    """See `Connection`. The log-in is for the gateway."""

    def __init__(self, settings: Settings, login: Login, timeout: float) -> None:
        self._settings = settings
        self._login = login
        self._timeout = timeout
        self._loop = Loop()
        self._served: RemoteConnection | None = None
        own = settings.schema_registry
        registry = ExternalRegistry(own, inline, SystemClock()) if own.url else Visited(settings)
        self._typings = Typings(KnownSchemas(registry, SystemClock()), inline)

    def __repr__(self) -> str:
        return f"<Connection to {self._settings.ledger_url}>"

    def close(self) -> None:
        self._loop.close()
        if self._served is not None:
            self._served.close()

    # --- topics ----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        async def look() -> list[str]:
            async with ledger_session(self._settings) as found:
                return sorted(name for name, topic in found.cluster.state.names.items() if topic.ready)

        return self._loop.run(look())

    def describe(self, topic: str) -> TopicInfo:
        async def look() -> TopicInfo:
            async with ledger_session(self._settings) as found:
                known = found.topic(topic)
                lines = [
                    PartitionInfo(s.partition, s.log_start, s.end, s.stable, s.settled) for s in _streams(found, topic)
                ]
                return TopicInfo(known.name, str(known.id), tuple(lines), dict(known.configs))

        return self._loop.run(look())

    def create_topic(self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> None:
        self._reached().create_topic(topic, partitions, configs)

    # --- with a server ---------------------------------------------------------------------------------

    def append(self, topic: str, record: NewRecord, key: str | None, expected: int | None) -> Place:
        return self._reached().append(topic, record, key, expected)

    def append_many(
        self, topic: str, records: Iterable[NewRecord | Data], count: int, size: int, key: str | None
    ) -> Appended:
        return self._reached().append_many(topic, records, count, size, key)

    def source(self, topic: str, group: str | None, start: Start, decode: bool) -> Source:
        return self._reached().source(topic, group, start, decode)

    def ask(self, body: Mapping[str, Any]) -> Result:
        return self._reached().ask(body)

    def _reached(self) -> RemoteConnection:
        """The gateway of this cluster. Another cluster's gateway at the same address is refused."""
        if self._served is None:
            own = self._settings.gateway
            url = own.url or f"http://{own.http}"
            wanted = self._loop.run(self._cluster_id())
            advice = "start `headwater up`, or connect by the URL of its gateway"
            probe = RemoteConnection(Http(url, self._login, timeout=PROBE_SECONDS))
            try:
                found = probe.cluster_id
            except NotReady as error:
                raise NotReady(f"this needs a running server, and no gateway answers at {url}: {advice}") from error
            finally:
                probe.close()
            if found != wanted:
                raise NotReady(f"the gateway at {url} is that of another cluster: {advice}")
            self._served = RemoteConnection(Http(url, self._login, timeout=self._timeout))
        return self._served

    async def _cluster_id(self) -> str:
        async with ledger_session(self._settings) as found:
            return found.cluster.state.cluster_id

    # --- looking up ------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int, offset: int, *, decode: bool = False) -> Record | None:
        return self._loop.run(self._found(topic, lambda own, place: own.at(place, partition, offset), decode))

    def latest(self, topic: str, key: Data, *, partition: int | None = None, decode: bool = False) -> Record | None:
        wanted = key_of(key)
        return self._loop.run(self._found(topic, lambda own, place: own.latest(place, wanted, partition), decode))

    async def _found(
        self, topic: str, look: Callable[[Lookups, Placed], Awaitable[Answer]], decode: bool
    ) -> Record | None:
        """What a look-up finds. Every call reads the ledger and the objects anew."""
        async with ledger_session(self._settings) as session:
            known, limits, sizes = session.topic(topic), self._settings.limits, self._settings.cache
            replica, store = session.domains[Domain(known.domain)], session.store
            own = Lookups(
                store,
                WalCache(store, sizes.wal_bytes),
                SegmentCache(store, sizes.segment_bytes),
                opened_limit=limits.opened_batch_bytes,
                cache_bytes=self._settings.gateway.lookup_bytes,
            )
            place = Placed(known.id, lambda: replica.state, lambda: _streams(session, topic), replica.barrier)
            answer = await look(own, place)
            found = answer.record
            if found is None:
                return None
            record = Record(
                topic, answer.partition, found.offset, found.timestamp, found.key, found.value, found.headers
            )
            return await self._decoded(session, known, found, record) if decode else record

    async def _decoded(self, session: LedgerSession, topic: Topic, found: LogRecord, record: Record) -> Record:
        """A record with its key and its value by their schemas."""
        config = TopicConfig.of(topic.configs, session.cluster.state.resources.common)
        own, clock = self._settings.schema_registry, SystemClock()
        registry = ExternalRegistry(own, inline, clock) if own.url else BuiltIn(session.cluster)
        finder = SchemaFinder(registry, clock, near=not own.url)
        decoding = Decoding(finder, config.key_schema, config.value_schema)
        await decoding.prepare([found])
        key, value = decoding.key(found), decoding.value(found)
        return replace(
            record,
            decoded_key=_data(key),
            decoded_value=_data(value),
            key_schema=key.schema,
            value_schema=value.schema,
            key_error=key.error,
            value_error=value.error,
        )

    # --- scanning --------------------------------------------------------------------------------------

    def scan_wanted(self, topic: str, wanted: Wanted, columns: list[str] | None) -> Scan:
        def begin() -> Rows:
            taken = self._loop.run(self._taken(topic, wanted))
            schema = schema_of(columns, taken.columns)
            return Rows(schema, self._loop.each(self._rows(taken, schema.names)))

        def look() -> pa.Schema:
            return schema_of(columns, self._loop.run(self._taken(topic, wanted)).columns)

        return Scan(begin, look, f"topic {topic!r}")

    async def _rows(self, taken: _Taken, names: list[str]) -> AsyncGenerator[pa.RecordBatch, None]:
        store = open_store(self._settings.objects_url, self._settings.object_store)
        typing = RowTyping(taken.typing, inline) if taken.typing is not None else None
        try:
            async for batch in scan(store, taken.snapshot, names, inline, taken.columns, typing):
                yield batch
        finally:
            await store.close()

    async def _taken(self, topic: str, wanted: Wanted) -> _Taken:
        async with ledger_session(self._settings) as found:
            known = found.topic(topic)
            state = found.domains[Domain(known.domain)].state
            snapshot = take(state, known.id, _streams(found, topic), wanted)
            columns, cluster = columns_of(state, known), found.cluster.state
            typing = await self._typings.of(cluster, known, columns) if snapshot.hot else None
            return _Taken(snapshot, shown(columns, wanted.version), typing)


def _data(shown: Shown) -> Any:
    """A key or a value as plain data; None if it is not decoded."""
    return None if shown.error is not None or not bytes(shown.json) else msgspec.json.decode(shown.json)


def _streams(found: LedgerSession, topic: str) -> list[Stream]:
    known = found.topic(topic)
    state = found.domains[Domain(known.domain)].state
    return [state.streams[stream] for stream in known.streams[: known.ready] if stream in state.streams]
