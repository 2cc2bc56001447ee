"""What the configs of a topic demand of its batches, for every process that writes them."""

from __future__ import annotations

from headwater.configs.topics import PRODUCER, UNCOMPRESSED, TopicConfig
from headwater.log.batch import BatchRules
from headwater.log.write.opening import Target
from headwater.wire.codecs import NONE, WRITTEN


def rules_of(config: TopicConfig, opened_bytes: int) -> BatchRules:
    """What batches of a topic are checked for. `opened_bytes` is the limit of one batch, uncompressed."""
    return BatchRules(
        max_bytes=config.max_message_bytes,
        max_opened_bytes=opened_bytes,
        timestamp_before_ms=config.timestamp_before_ms,
        timestamp_after_ms=config.timestamp_after_ms,
        append_time=config.append_time,
        compacted=config.compacted,
    )


def target_of(config: TopicConfig, opened_bytes: int) -> Target | None:
    """The codec in which batches of a topic are stored; None if the topic leaves it to producers."""
    if config.compression == PRODUCER:
        return None
    codec = NONE if config.compression == UNCOMPRESSED else WRITTEN[config.compression]
    return Target(codec, config.compression_level, config.max_message_bytes, opened_bytes)
