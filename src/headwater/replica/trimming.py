"""Deleting records at the start of a log: which offset a request may move the start to."""

from __future__ import annotations

from headwater.configs.topics import TopicConfig
from headwater.errors import CompactedTopic, OffsetOutOfRange
from headwater.state.streams.stream import Stream


def start_of(config: TopicConfig, stream: Stream, before: int | None) -> int:
    """The start of a log after all records before an offset are deleted; `None` deletes up to the end."""
    if config.cleanup == ("compact",):
        raise CompactedTopic("The topic's cleanup.policy is compact: its records are not deleted by offset.")
    start = stream.end if before is None else before
    if not 0 <= start <= stream.end:
        raise OffsetOutOfRange(
            f"Partition {stream.partition} has records up to offset {stream.end}, not up to {start}."
        )
    return start
