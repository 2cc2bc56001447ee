"""Which records a topic no longer keeps: a plain decision over the index, without I/O."""

from __future__ import annotations

from collections.abc import Callable

from headwater.configs.topics import TopicConfig
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.stream import Stream


def new_log_start(
    stream: Stream, config: TopicConfig, now_ms: int, written_ms: Callable[[IndexEntry], int] = lambda _: 0
) -> int:
    """Where the log should start, by time and by size, to the granularity of index entries.

    `written_ms` says when an entry's object was written: the age of records without a timestamp. Markers have their own
    time, which no running maximum counts. Records of open transactions stay.
    """
    if "delete" not in config.cleanup:
        return stream.log_start
    keep = 0
    if config.retention_ms >= 0:
        cutoff = now_ms - config.retention_ms
        keep = stream.index.find_time(cutoff)
        for i in range(keep):
            entry = stream.index[i]
            if (entry.max_timestamp if entry.max_timestamp >= 0 else written_ms(entry)) >= cutoff:
                keep = i
                break
        while keep and stream.index[keep - 1].settled and not stream.index[keep - 1].file:
            keep -= 1  # a range without records goes with the records behind it: a reader may stand in it
    if config.retention_bytes >= 0:
        keep = max(keep, _first_within(stream, config.retention_bytes))
    if not keep:
        return stream.log_start
    return max(stream.log_start, min(stream.index[keep - 1].end, stream.stable))


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
