"""Dead letters: records that could not be decoded are copied to the dead-letter topic of their topic, each once.

The rows of a table say which records failed (`decode_error`), and the state says which files have such rows. So nothing
has to be remembered but how far the letters of each stream are written. One unit appends letters and moves that cursor
(`CursorIs`), so a process that is killed, late or second changes nothing. Letters of a stream are in the order of its
offsets; they wait for files that are not decoded yet. A record that was decoded once, or is a letter already, does not
become one when its file is decoded again.

A dead-letter topic that refuses holds up nothing but its letters.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.background import Duty, OnDeath, Supervised
from headwater.client.records import Headers, Record
from headwater.configs.topics import DLQ_TOPIC, JSON_SCHEMA, TopicConfig
from headwater.errors import HeadwaterError, NotFound, NotReady, Retriable
from headwater.log.batch import Batch
from headwater.log.segment.write import read_pieces
from headwater.log.write.making import Demands, appended, cuts, made, most_bytes
from headwater.log.write.writers import Writers
from headwater.objects import ObjectStore
from headwater.ops.metrics import Metric
from headwater.replica.domains import Domains
from headwater.replica.replica import Replica
from headwater.replica.topic_rights import check_setter
from headwater.schemas.columns import ERROR
from headwater.schemas.conform import arrow_fields
from headwater.security.guard import Guard
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import CursorIs
from headwater.state.results import UnitVerdict
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import TopicTable
from headwater.threads import Offload, inline
from headwater.types import Buffer, Domain

log = logging.getLogger("headwater.letters")
LETTERS = Duty("dead-letters", OnDeath.RESTART, "copies records that could not be decoded to dead-letter topics")
PREFIX = "headwater.dlq."
"""Begins the names of the headers that say where a letter comes from."""
UNIT_RECORDS = 1_000
UNIT_BYTES = 4 << 20
"""Limits of the letters that are appended together. A single letter may be larger."""
RETRY_SECONDS = 5.0
"""How long letters wait after their topic has refused them."""

Place = tuple[int, int]
"""The number of a file, and which of its rows that could not be decoded, from 1 on."""
Lease = Callable[[Replica[StreamsState]], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Due:
    """Offsets of a stream, and the file whose failed rows among them are its next letters."""

    start: int
    end: int
    file: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that could not be decoded."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    raw_headers: bytes | None
    """All headers as the producer sent them, if their names are no text."""
    error: str


# --- what to write, without I/O ------------------------------------------------------------------------


def due(state: StreamsState, stream: Stream, seen: int = 0) -> Due | None:
    """The next letters of a stream; None if there are none. `seen`: there are none before this offset."""
    typed = state.typed.get(stream.topic, TypedTable())
    start = max(state.letters.get(stream.id, 0), stream.log_start)
    file, end = 0, start
    for entry in _settled(stream, max(start, seen)):
        typing = typed.files.get(entry.file) if entry.file else None
        if entry.file and (typing is None or not typing.version):
            break  # it is not known yet which of its rows fail
        if typing is not None and typing.failures and entry.file != file:
            if file:
                break
            file = entry.file
        end = entry.end
    return Due(start, end, file) if file else None


def clean_up_to(state: StreamsState, stream: Stream, seen: int) -> int:
    """The offset up to which a stream has no letters, if `due` found none: nothing before it is looked at again."""
    typed = state.typed.get(stream.topic, TypedTable())
    end = max(seen, state.letters.get(stream.id, 0), stream.log_start)
    for entry in _settled(stream, end):
        typing = typed.files.get(entry.file) if entry.file else None
        if entry.file and (typing is None or not typing.version):
            break
        end = entry.end
    return end


def _settled(stream: Stream, start: int) -> Iterator[Any]:
    index = stream.index
    for i in range(index.find(start), len(index)):
        if not index[i].settled or index[i].end > stream.settled:
            return
        yield index[i]


def bad_rows(data: Buffer, checksum: int, typed: TypedTable) -> list[tuple[int, BadRow]]:
    """The rows of a segment that could not be decoded, each with its partition."""
    fields = arrow_fields([column for column in typed.columns.newest if column.name == ERROR])
    found = []
    for piece in read_pieces(data, checksum) if fields else ():
        for batch in piece.batches(fields):
            chosen = batch.filter(batch.column(ERROR).is_valid())
            found += [(piece.partition, _bad_row(row)) for row in chosen.to_pylist()]
    return found


async def undecodable(
    store: ObjectStore,
    state: StreamsState,
    table: TopicTable,
    after: Place = (0, 0),
    offload: Offload = inline,
) -> AsyncGenerator[tuple[Place, int, BadRow], None]:
    """The rows of a table that could not be decoded, each with its place and its partition, file by file.

    `after` is the place behind which to begin. A row whose file is replaced meanwhile has another place, further on.
    Raises `ObjectMissing` if a file was replaced and deleted.
    """
    typed = state.typed.get(table.topic, TypedTable())
    for file in sorted(table.live(), key=lambda one: one.number):
        typing = typed.files.get(file.number)
        if typing is None or not typing.failures or file.number < after[0]:
            continue
        data = await store.get(f"{table.root}/{file.name}")
        rows = await offload(bad_rows, data, file.footer_checksum, typed)
        del data
        for number, (partition, row) in enumerate(rows, 1):
            if (file.number, number) > after:
                yield (file.number, number), partition, row


def failed_rows(state: StreamsState, table: TopicTable | None) -> int:
    """How many rows of a table could not be decoded."""
    typed = state.typed.get(table.topic) if table is not None else None
    if table is None or typed is None:
        return 0
    return sum(typed.files[file.number].failures for file in table.live() if file.number in typed.files)


def _bad_row(row: dict[str, Any]) -> BadRow:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return BadRow(row["offset"], row["timestamp_ms"], row["key"], row["value"], headers, row["headers_raw"], row[ERROR])


def letter_of(row: BadRow, topic: str, partition: int, now_ms: int, room: int, *, framed: bool) -> Record:
    """The letter of a record. What does not fit into a batch of `room` bytes is left out, and a header says so.

    `framed`: values have an id of a schema in front of them.
    """
    kind, _, text = row.error.partition(": ")
    told = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(row.offset),
        "timestamp": str(row.timestamp),
        "error.class": kind,
        "error.text": text,
    }
    if framed and row.value is not None and len(row.value) >= 5 and row.value[0] == 0:
        told["schema.id"] = str(int.from_bytes(row.value[1:5], "big"))
    own: Headers = tuple((PREFIX + name, content.encode()) for name, content in told.items())
    if row.raw_headers is not None:
        own = (*own, (f"{PREFIX}headers", row.raw_headers))
    headers = (*row.headers, *own)
    if most_bytes(row.key, row.value, headers) <= room:
        return Record(0, now_ms, row.key, row.value, headers)
    left_out: Headers = ((f"{PREFIX}left.out", b"value"),)
    if most_bytes(row.key, None, (*headers, *left_out)) <= room:
        return Record(0, now_ms, row.key, None, (*headers, *left_out))
    return Record(0, now_ms, None, None, (*own[: len(told)], (f"{PREFIX}left.out", b"key, value, headers")))


def units_of(rows: Sequence[BadRow], letters: Sequence[Record], end: int) -> list[tuple[list[Record], int]]:
    """Letters that are appended together, each with the offset that the cursor moves to."""
    found: list[tuple[list[Record], int]] = []
    size = 0
    for row, letter in zip(rows, letters, strict=True):
        own = most_bytes(letter.key, letter.value, letter.headers)
        if not found or len(found[-1][0]) >= UNIT_RECORDS or size + own > UNIT_BYTES:
            found.append(([], 0))
            size = 0
        found[-1][0].append(letter)
        found[-1] = (found[-1][0], row.offset + 1)
        size += own
    if found:
        found[-1] = (found[-1][0], end)
    return found


# --- the duty ------------------------------------------------------------------------------------------


class Letters:
    """Writes the dead letters of all topics that name a dead-letter topic."""

    def __init__(
        self, domains: Domains, writers: Writers, lease: Lease, settings: Settings, offload: Offload = inline
    ) -> None:
        self._domains = domains
        self._writers = writers
        self._lease = lease
        self._settings = settings
        self._guard = Guard(settings.security, domains.cluster.state.access)
        self._offload = offload
        self._seen: dict[int, int] = {}
        """By stream, the offset before which there are no letters to write."""
        self._until: dict[uuid.UUID, float] = {}
        self._last: tuple[int, list[tuple[int, BadRow]]] = (0, [])
        """The number of the file that was read last, and its rows that could not be decoded."""
        self._duty: Supervised | None = None
        self.written: dict[str, int] = {}
        """Letters that this process has written, by topic."""
        self.alerts: dict[uuid.UUID, str] = {}
        """Why the letters of a topic cannot be written at present."""

    def __repr__(self) -> str:
        return f"<Letters, {sum(self.written.values())} written, {len(self.alerts)} topics held up>"

    @property
    def alert(self) -> str:
        """Why letters wait; empty if none do."""
        return next(iter(self.alerts.values()), "")

    def start(self) -> None:
        self._duty = self._domains.background.run(LETTERS, self._run)

    async def close(self) -> None:
        if self._duty is not None:
            await self._duty.stop()

    def metrics(self) -> list[Metric]:
        """What was written, and what waits."""
        names = {topic.id: topic.name for topic in self._domains.cluster.state.topics.values()}
        written: list[tuple[Mapping[str, str], float]] = [
            ({"topic": name}, float(count)) for name, count in self.written.items()
        ]
        held: list[tuple[Mapping[str, str], float]] = [
            ({"topic": names.get(topic, str(topic))}, 1.0) for topic in self.alerts
        ]
        return [
            Metric("headwater_dead_letters_total", "counter", "Dead letters that were written.", written),
            Metric("headwater_dead_letters_held", "gauge", "Topics whose dead letters cannot be written.", held),
        ]

    async def _run(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(self._settings.lake.interval_ms / 1000 * (0.5 + self._domains.chance.fraction()))

    async def round(self) -> None:
        """Write the letters of every topic. What is refused is tried again later."""
        cluster = self._domains.cluster.state
        named = [topic for topic in cluster.topics.values() if topic.configs.get(DLQ_TOPIC) and not topic.deleting]
        known = {topic.id: topic for topic in named}
        self.alerts = {topic: reason for topic, reason in self.alerts.items() if topic in known}
        self._until = {topic: until for topic, until in self._until.items() if topic in known}
        streams = {stream for topic in named for stream in topic.streams}
        self._seen = {stream: seen for stream, seen in self._seen.items() if stream in streams}
        for topic in named:
            if self._domains.clock.monotonic() < self._until.get(topic.id, float("-inf")):
                continue
            try:
                await self._write(topic)
                self.alerts.pop(topic.id, None)
            except HeadwaterError as error:
                if self.alerts.get(topic.id) != str(error):
                    log.warning("dead letters wait", extra={"topic": topic.name, "reason": str(error)})
                self.alerts[topic.id] = str(error)
                self._until[topic.id] = self._domains.clock.monotonic() + RETRY_SECONDS

    async def _write(self, topic: Topic) -> None:
        replica = self._domains[Domain(topic.domain)]
        if topic.id not in replica.state.typed:
            return
        streams = [replica.state.streams[s] for s in topic.streams if s in replica.state.streams]
        waiting = [stream for stream in streams if self._due(replica.state, stream) is not None]
        if not waiting or await self._lease(replica) is None:
            return
        target, demands = self._target(topic)
        self._last = (0, [])
        while waiting:  # streams take turns, because a file has rows of many of them
            for stream in list(waiting):
                found = self._due(replica.state, stream)
                if found is None:
                    waiting.remove(stream)
                else:
                    await self._append(replica, topic, stream, found, target, demands)
        self._last = (0, [])

    def _due(self, state: StreamsState, stream: Stream) -> Due | None:
        seen = self._seen.get(stream.id, 0)
        found = due(state, stream, seen)
        if found is None:
            self._seen[stream.id] = clean_up_to(state, stream, seen)
        return found

    def _target(self, topic: Topic) -> tuple[Topic, Demands]:
        """The dead-letter topic of a topic, and what it demands of records."""
        cluster = self._domains.cluster.state
        name = topic.configs[DLQ_TOPIC]
        target = next((one for one in cluster.topics.values() if one.name == name and not one.deleting), None)
        if target is None:
            raise NotFound(f"the dead-letter topic {name!r} does not exist")
        if target.id == topic.id or target.configs.get(DLQ_TOPIC):
            raise NotReady(f"{name!r} is no dead-letter topic: it has one itself")
        check_setter(self._guard.may, topic.name, topic.configs)
        if target.domain != topic.domain:
            raise NotReady(f"the dead-letter topic {name!r} is in another domain of the ledger")
        config = TopicConfig.of(target.configs, cluster.resources.common)
        return target, Demands.of(target.ready, config, self._settings.limits.opened_batch_bytes)

    async def _append(
        self,
        replica: Replica[StreamsState],
        topic: Topic,
        stream: Stream,
        found: Due,
        target: Topic,
        demands: Demands,
    ) -> None:
        """Write the letters of one file."""
        rows = await self._rows(replica.state, stream, found)
        config = TopicConfig.of(topic.configs, self._domains.cluster.state.resources.common)
        now_ms, framed = self._domains.clock.wall_ms(), config.value_schema != JSON_SCHEMA
        letters = [letter_of(row, topic.name, stream.partition, now_ms, demands.room, framed=framed) for row in rows]
        if not letters:
            self._seen[stream.id] = found.end
            return
        place = target.streams[stream.partition % demands.partitions]
        for records, to in units_of(rows, letters, found.end):
            sizes = [most_bytes(record.key, record.value, record.headers) for record in records]
            batches = [made([records[i] for i in cut], demands, now_ms) for cut in cuts(sizes, demands.room)]
            cursor = CursorIs(stream.id, replica.state.letters.get(stream.id, 0), to)
            await self._judged(target, [(place, batch) for batch in batches], cursor)
            self.written[topic.name] = self.written.get(topic.name, 0) + len(records)

    async def _rows(self, state: StreamsState, stream: Stream, found: Due) -> list[BadRow]:
        table, typed = state.tables[stream.topic], state.typed[stream.topic]
        file = table.files[found.file]
        if self._last[0] != found.file:
            data = await self._domains.store.get(f"{table.root}/{file.name}")
            self._last = found.file, await self._offload(bad_rows, data, file.footer_checksum, typed)
        rows = self._last[1]
        return [row for own, row in rows if own == stream.partition and found.start <= row.offset < found.end]

    async def _judged(self, target: Topic, batches: list[tuple[int, Batch]], cursor: CursorIs) -> None:
        """Append letters and move the cursor; returns when that is in the ledger."""
        config = TopicConfig.of(target.configs, self._domains.cluster.state.resources.common)
        writer = self._writers.of(target.domain, config.profile or self._settings.default_profile)
        outcome = await appended(writer, batches, [cursor])
        if outcome.verdict is UnitVerdict.CONFLICT:
            raise Retriable(f"another process writes the dead letters for {target.name!r}")
        if outcome.verdict is not UnitVerdict.ACCEPTED:
            raise NotReady(f"the dead-letter topic {target.name!r} takes no records: {outcome.verdict.name}")
