"""Offsets that cannot be read, as this process has found them: objects that are missing, and bytes that have changed.

The store is the truth here too: a range is read again from time to time, and forgotten once that succeeds. A range is
also forgotten when it leaves the log.

A consumer that has come to a damaged range retries and gets nothing. Kafka's protocol has no way to say why, so the
log, health pages and the descriptions of topics and groups do.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from headwater.errors import Damaged, HeadwaterError
from headwater.log.wal import format as wal
from headwater.ops.metrics import Metric
from headwater.replica.domains import Domains
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain

log = logging.getLogger("headwater.damage")
MAX_RANGES = 10_000
"""The number of ranges that are kept. Others are found anew by each read."""
RECHECK_SECONDS = 5.0
"""A damaged range is read from the store at most this often."""
SHOWN = 100
"""At most this many ranges are in a health page, in metrics or in the description of a topic."""
LOG_SECONDS = 60.0
LOGGED_AT_ONCE = 20
"""At most this many ranges are logged in `LOG_SECONDS`. The next line says how many were left out."""
MAX_WAITING = 20
"""At most this many groups and clients are named at one range."""
MAX_CLIENT_NAME = 200


@dataclass(frozen=True, slots=True)
class BadRange:
    """Offsets of a stream that cannot be read, the object that has them, and why."""

    domain: Domain
    stream: int
    start: int
    end: int
    path: str
    reason: str


class DamagedRange(Damaged):
    """A range of a stream cannot be read. Other ranges can."""

    def __init__(self, bad: BadRange) -> None:
        super().__init__(f"stream {bad.stream}, offsets {bad.start} to {bad.end - 1}: {bad.path}: {bad.reason}")
        self.bad = bad


class DamageLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A damaged range as health pages, metrics and commands name it."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    object: str
    reason: str
    groups: list[str] = msgspec.field(default_factory=list)
    """Groups that continue in the range, by their committed offsets."""
    clients: list[str] = msgspec.field(default_factory=list)
    """Clients that this process could not give records of the range in the last minute, as `ID at ADDRESS`."""

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}, offsets {self.first_offset} to {self.last_offset}"
        return f"{where}: {self.object}: {self.reason}"


def path_of(state: StreamsState, stream: Stream, entry: IndexEntry) -> str:
    """The path of the object that an index entry names; empty if the state does not know the object."""
    if entry.file:
        table = state.tables.get(stream.topic)
        file = table.files.get(entry.file) if table is not None else None
        return f"{table.root}/{file.name}" if table is not None and file is not None else ""
    known = state.objects.get(entry.object) if entry.in_wal else None
    return wal.path_of(known.zone, state.domain, known.created_ms, entry.object) if known is not None else ""


@dataclass(slots=True)
class _Known:
    bad: BadRange
    recheck: float
    clients: dict[str, float] = field(default_factory=dict)
    """When each client last wanted records of the range."""
    told: float = float("-inf")
    """When the log last said that consumers wait here."""


def way_on(topic: str, partition: int, last_offset: int, group: str = "GROUP") -> str:
    """What to do for a consumer that waits at a damaged range."""
    return (
        "put the object back from a backup; or give its records up: stop the members of the group, then "
        f"`headwater group reset {group} --topic {topic} --partition {partition} --to {last_offset + 1}`"
    )


class Damage:
    """The damaged ranges that this process knows."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._clock = domains.clock
        self._known: dict[tuple[Domain, int], dict[int, _Known]] = {}
        """By stream and first offset."""
        self._count = 0
        self._logged_from = float("-inf")
        self._logged = self._left_out = 0
        self._told_from, self._told = float("-inf"), 0
        self.found = 0
        """How many times a range was found to be damaged."""

    def __repr__(self) -> str:
        return f"<Damage: {self._count} ranges>"

    def __bool__(self) -> bool:
        return self._count > 0

    def note(self, bad: BadRange) -> DamagedRange:
        """Enter a range that was read twice in vain. Returns the error for readers."""
        self.found += 1
        ranges = self._known.setdefault((bad.domain, bad.stream), {})
        known = ranges.get(bad.start)
        if known is None:
            self._log(bad)
            if self._count < MAX_RANGES:
                self._count += 1
                ranges[bad.start] = _Known(bad, self._clock.monotonic() + RECHECK_SECONDS)
        else:
            known.bad = bad
        if not ranges:
            del self._known[(bad.domain, bad.stream)]
        return DamagedRange(bad)

    def recent(self, domain: Domain, stream: int, offset: int) -> BadRange | None:
        """The damaged range at an offset, unless it is time to read it again. The caller then does so."""
        known = self._at(domain, stream, offset)
        now = self._clock.monotonic()
        if known is None:
            return None
        if known.recheck > now:
            return known.bad
        known.recheck = now + RECHECK_SECONDS
        return None

    def met(self, error: HeadwaterError, client: str) -> None:
        """Note that a consumer waits at a range. The log names it and its group, once a minute for each range."""
        if not isinstance(error, DamagedRange):
            return
        bad = error.bad
        known = self._known.get((bad.domain, bad.stream), {}).get(bad.start)
        if known is None:
            return
        now, client = self._clock.monotonic(), client[:MAX_CLIENT_NAME]
        if client in known.clients or len(_recent(known, now)) < MAX_WAITING:
            known.clients[client] = now
        if now - self._told_from >= LOG_SECONDS:
            self._told_from, self._told = now, 0
        if now - known.told >= LOG_SECONDS and self._told < LOGGED_AT_ONCE:
            known.told = now
            self._told += 1
            [line] = self._lines([bad])
            facts = msgspec.structs.asdict(line)
            facts["to_do"] = way_on(line.topic, line.partition, line.last_offset)
            log.warning("consumers wait at records that cannot be read", extra=facts)

    def at(self, domain: Domain, stream: int, offset: int) -> DamageLine | None:
        """The damaged range at an offset, if this process knows of one."""
        known = self._at(domain, stream, offset)
        return self._line(known.bad) if known is not None and self._in_log(known.bad) else None

    def is_due(self, bad: BadRange) -> bool:
        """Whether it is time to read a range again."""
        known = self._at(bad.domain, bad.stream, bad.start)
        return known is not None and known.recheck <= self._clock.monotonic()

    def knows(self, domain: Domain, stream: int) -> bool:
        """Whether a range of the stream is damaged."""
        return (domain, stream) in self._known

    def mended(self, domain: Domain, stream: int, start: int, end: int) -> None:
        """Forget the damaged ranges between two offsets, which were just read."""
        for known in list(self._known.get((domain, stream), {}).values()):
            if start < known.bad.end and known.bad.start < end:
                log.info("a damaged range can be read again", extra=self._named(known.bad))
                self.forget(known.bad)

    def forget(self, bad: BadRange) -> None:
        """Forget a range."""
        ranges = self._known.get((bad.domain, bad.stream), {})
        if ranges.pop(bad.start, None) is not None:
            self._count -= 1
        if not ranges:
            self._known.pop((bad.domain, bad.stream), None)

    def ranges(self, domain: Domain | None = None) -> list[BadRange]:
        """The damaged ranges that are still in the log, of one domain or of all."""
        found = []
        for bad in [known.bad for ranges in self._known.values() for known in ranges.values()]:
            if not self._in_log(bad):
                self.forget(bad)
            elif domain is None or bad.domain == domain:
                found.append(bad)
        return sorted(found, key=lambda bad: (bad.domain, bad.stream, bad.start))

    def metrics(self) -> list[Metric]:
        """The number of damaged ranges, and the first of them by name."""
        labels = [
            {
                "topic": line.topic,
                "partition": str(line.partition),
                "object": line.object,
                "first_offset": str(line.first_offset),
                "last_offset": str(line.last_offset),
            }
            for line in map(self._line, self.ranges()[:SHOWN])
        ]
        offsets = [int(label["last_offset"]) - int(label["first_offset"]) + 1 for label in labels]
        return [
            Metric("headwater_damaged_ranges", "gauge", "Ranges of offsets that cannot be read, as far as is known.",
                   [({}, self._count)]),
            Metric("headwater_damaged_offsets", "gauge", f"Offsets that cannot be read, for up to {SHOWN} ranges.",
                   list(zip(labels, offsets, strict=True))),
            Metric("headwater_damage_found_total", "counter", "Reads that met a damaged range.", [({}, self.found)]),
        ]  # fmt: skip

    def lines(self, limit: int = SHOWN, topic: str | None = None) -> list[DamageLine]:
        """The first damaged ranges, of one topic or of all, with the names of their topics."""
        found = [bad for bad in self.ranges() if topic in (None, self._line(bad).topic)]
        return self._lines(found[:limit])

    def _at(self, domain: Domain, stream: int, offset: int) -> _Known | None:
        ranges = self._known.get((domain, stream), {})
        return next((known for known in ranges.values() if known.bad.start <= offset < known.bad.end), None)

    def _in_log(self, bad: BadRange) -> bool:
        stream = self._stream(bad)
        if stream is None or stream.log_start >= bad.end:
            return False
        i = stream.index.find(bad.start)
        if i == len(stream.index):
            return False
        return path_of(self._domains[bad.domain].state, stream, stream.index[i]) == bad.path

    def _stream(self, bad: BadRange) -> Stream | None:
        replica = self._domains.get(bad.domain)
        return replica.state.streams.get(bad.stream) if replica is not None else None

    def _lines(self, ranges: Sequence[BadRange]) -> list[DamageLine]:
        """Ranges with those that wait there."""
        now, groups = self._clock.monotonic(), self._groups(ranges)
        lines = []
        for bad in ranges:
            known = self._known.get((bad.domain, bad.stream), {}).get(bad.start)
            clients = sorted(_recent(known, now)) if known is not None else []
            lines.append(msgspec.structs.replace(self._line(bad), groups=groups.get(bad, []), clients=clients))
        return lines

    def _groups(self, ranges: Sequence[BadRange]) -> dict[BadRange, list[str]]:
        """The groups whose committed offsets are in ranges. One pass over the groups serves all ranges."""
        places: dict[uuid.UUID, list[tuple[int, BadRange]]] = {}
        for bad in ranges:
            stream = self._stream(bad)
            if stream is not None:
                places.setdefault(stream.topic, []).append((stream.partition, bad))
        found: dict[BadRange, list[str]] = {}
        if not places:
            return found
        for group in self._domains[min(self._domains)].state.groups:
            for topic in places.keys() & group.offsets.keys():
                for partition, bad in places[topic]:
                    committed = group.offsets[topic].get(partition)
                    if committed is None or not bad.start <= committed.offset < bad.end:
                        continue
                    names = found.setdefault(bad, [])
                    if len(names) < MAX_WAITING:
                        names.append(group.name)
        return {bad: sorted(names) for bad, names in found.items()}

    def _line(self, bad: BadRange) -> DamageLine:
        stream = self._stream(bad)
        topic = self._domains.cluster.state.topics.get(stream.topic) if stream is not None else None
        name, partition = f"stream {bad.stream}", -1
        if stream is not None and topic is not None:
            name, partition = topic.name, stream.partition
        return DamageLine(name, partition, bad.start, bad.end - 1, bad.path, bad.reason)

    def _named(self, bad: BadRange) -> dict[str, object]:
        [line] = self._lines([bad])
        return msgspec.structs.asdict(line)

    def _log(self, bad: BadRange) -> None:
        now = self._clock.monotonic()
        if now - self._logged_from >= LOG_SECONDS:
            if self._left_out:
                log.error("more ranges are damaged than were logged", extra={"left_out": self._left_out})
            self._logged_from, self._logged, self._left_out = now, 0, 0
        if self._logged < LOGGED_AT_ONCE:
            self._logged += 1
            log.error("stored records cannot be read", extra=self._named(bad))
        else:
            self._left_out += 1


def _recent(known: _Known, now: float) -> dict[str, float]:
    """The clients that wait at a range. Those that have stopped asking are forgotten."""
    known.clients = {client: at for client, at in known.clients.items() if now - at < LOG_SECONDS}
    return known.clients
