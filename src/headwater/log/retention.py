"""Which records a topic no longer keeps: a plain decision over the index, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.configs.topics import TopicConfig
from headwater.settings.settings import Housekeeping
from headwater.state.cluster.domain import Topic
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream

SHOWN = 8
"""Partitions that are named."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log should start."""

    start: int
    spared: bool = False
    """Whether records stay that were too old when they arrived, because that is not long ago."""


def cut_of(state: StreamsState, stream: Stream, config: TopicConfig, now_ms: int, grace_ms: int) -> Cut:
    """Where a log should start, by time and by size, to the granularity of index entries.

    `now_ms` is what retention takes for now. Records stay for `grace_ms` of ledger time after they arrived, or for the
    retention time if that is shorter: old records that are copied into a topic do not go while they are copied. Markers
    have their own time, which no running maximum counts. Records of open transactions stay.
    """
    if "delete" not in config.cleanup:
        return Cut(stream.log_start)
    keep, spared = 0, False
    if config.retention_ms >= 0:
        cutoff = now_ms - config.retention_ms
        arrived_by = state.clock_ms - min(grace_ms, config.retention_ms)
        keep = stream.index.find_time(cutoff)
        for i in range(keep):
            entry = stream.index[i]
            timestamp, arrived_ms = _timestamp(state, stream, entry), _arrived_ms(state, stream, entry)
            if timestamp >= cutoff or arrived_ms > arrived_by:
                keep, spared = i, timestamp < arrived_ms + state.clocks.lead_ms - config.retention_ms
                break
        while keep and stream.index[keep - 1].settled and not stream.index[keep - 1].file:
            keep -= 1  # a range without records goes with the records behind it: a reader may stand in it
    if config.retention_bytes >= 0:
        keep = max(keep, _first_within(stream, config.retention_bytes))
    if not keep:
        return Cut(stream.log_start, spared)
    return Cut(max(stream.log_start, min(stream.index[keep - 1].end, stream.stable)), spared)


def spared_words(
    state: StreamsState, topic: Topic, common: Mapping[str, str], wall_ms: int, settings: Housekeeping
) -> str:
    """What is to be said of records of a topic that were too old when they arrived; empty if there are none."""
    config, now_ms = TopicConfig.of(topic.configs, common), state.clocks.retention_now_ms(wall_ms)
    streams = (state.streams.get(name) for name in topic.streams)
    grace_ms = settings.arrival_grace_ms
    found = [s.partition for s in streams if s is not None and cut_of(state, s, config, now_ms, grace_ms).spared]
    if not found:
        return ""
    partitions = ", ".join(map(str, found[:SHOWN])) + (" and others" if len(found) > SHOWN else "")
    return (
        f"partition {partitions}: records were older than retention.ms when they arrived. They are removed "
        f"{min(grace_ms, config.retention_ms) / 60_000:g} minutes after they arrived. To keep them, raise retention.ms"
    )


def _timestamp(state: StreamsState, stream: Stream, entry: IndexEntry) -> int:
    """The newest timestamp of an entry. Records without one have the date of their object or file."""
    if entry.max_timestamp >= 0:
        return entry.max_timestamp
    table = state.tables.get(stream.topic)
    if entry.file and table is not None:
        return table.files[entry.file].created_ms
    known = state.objects.get(entry.object)
    return known.created_ms if known is not None else 0


def _arrived_ms(state: StreamsState, stream: Stream, entry: IndexEntry) -> int:
    """The ledger time at which an entry came into the log, or its file into the table. 0 of a gap or a marker."""
    table = state.tables.get(stream.topic)
    if entry.file and table is not None:
        return table.files[entry.file].arrived_ms
    known = state.objects.get(entry.object) if entry.in_wal else None
    return known.arrived_ms if known is not None else 0


def _first_within(stream: Stream, limit: int) -> int:
    """The first index entry to keep, by size.

    As in Kafka, an entry is removed only if the entries after it still have at least `limit` bytes.
    """
    low, high = 0, len(stream.index)
    while low < high:
        middle = (low + high) // 2
        if stream.size - stream.index[middle].cumulative_size < limit:
            high = middle
        else:
            low = middle + 1
    return low
