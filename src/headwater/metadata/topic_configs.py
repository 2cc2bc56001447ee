"""Topic configs: the names that exist, what they may hold, and their typed form.

Unknown names are refused, not ignored. Some of Kafka's configs steer things that do not exist here (files on a local
disk, replicas). They are shown read-only with what holds here. Nobody can change them; only a topic's creation may name
them, since clients such as Kafka Streams do, and is told by the answer how things are.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headwater.config import Settings
from headwater.errors import ConfigError
from headwater.metadata.config_keys import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    Kind,
    anything,
    boolean,
    checked_by,
    elements,
    fraction,
    number,
    one_of,
)

TABLE_RETENTION = "headwater.table.retention.ms"
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
UNCOMPRESSED, PRODUCER = "uncompressed", "producer"
CODECS = (UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER)


def _cleanup(value: str) -> str:
    parts = list(dict.fromkeys(elements(value)))
    for part in parts:
        if part not in ("compact", "delete"):
            raise ConfigError("String must be one of: compact, delete")
    return ",".join(parts)


def _gzip_level(value: str) -> str:
    given = number(-INT_MAX, INT_MAX)(value)
    if given != "-1" and not 1 <= int(given) <= 9:
        raise ConfigError("Value must be between 1 and 9 or equal to -1")
    return given


_duration = number(-1, LONG_MAX)
_not_negative = number(0, LONG_MAX)


def _optional_duration(value: str) -> str:
    return value if not value else number(1, LONG_MAX)(value)


_KEYS = [
    ConfigKey("cleanup.policy", Kind.LIST, "delete", _cleanup,
              "Delete old records, compact by key, both, or nothing of that.", "log.cleanup.policy"),
    ConfigKey("compression.type", Kind.STRING, PRODUCER, one_of(*CODECS),
              "The codec that batches are stored in; `producer` keeps the one they came in.", "compression.type"),
    ConfigKey("compression.gzip.level", Kind.INT, "-1", _gzip_level,
              "How hard gzip tries where batches are stored with it.", "compression.gzip.level"),
    ConfigKey("compression.lz4.level", Kind.INT, "9", number(1, 17),
              "How hard LZ4 tries where batches are stored with it.", "compression.lz4.level"),
    ConfigKey("compression.zstd.level", Kind.INT, "3", number(-131072, 22),
              "How hard Zstandard tries where batches are stored with it.", "compression.zstd.level"),
    ConfigKey("headwater.table.enable", Kind.BOOLEAN, "true", boolean,
              "Whether Iceberg, Delta and other catalogs show the topic as a table. It settles in any case."),
    ConfigKey("headwater.table.freshness.ms", Kind.LONG, "", _optional_duration,
              "How far the table may lag behind the log. Empty: the compactor's default."),
    ConfigKey(TABLE_RETENTION, Kind.LONG, "-1", _duration,
              "How long the table keeps its rows, whatever the log keeps. -1: for ever."),
    ConfigKey("headwater.wal.profile", Kind.STRING, "", one_of("", "cost", "latency"),
              "How appends are gathered: few large objects, or quick small ones. Empty: the store's default."),
    ConfigKey("max.message.bytes", Kind.INT, "1048588", number(0, INT_MAX),
              "The largest record batch.", "message.max.bytes"),
    ConfigKey("message.timestamp.after.max.ms", Kind.LONG, "3600000", _not_negative,
              "How far a record's timestamp may lie ahead.", "log.message.timestamp.after.max.ms"),
    ConfigKey("message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX), _not_negative,
              "How far a record's timestamp may lie back.", "log.message.timestamp.before.max.ms"),
    ConfigKey("message.timestamp.type", Kind.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
              "Whether records keep their producer's timestamp.", "log.message.timestamp.type"),
    ConfigKey("retention.bytes", Kind.LONG, "-1", _duration,
              "How many bytes of a partition to keep.", "log.retention.bytes"),
    ConfigKey("retention.ms", Kind.LONG, "604800000", _duration, "How long to keep records.", "log.retention.ms"),
    # Kept for compaction.
    ConfigKey("delete.retention.ms", Kind.LONG, "86400000", _not_negative,
              "How long compaction keeps tombstones.", "log.cleaner.delete.retention.ms"),
    ConfigKey(MAX_LAG, Kind.LONG, str(LONG_MAX), number(1, LONG_MAX),
              "How long a record stays uncompacted at most.", "log.cleaner.max.compaction.lag.ms"),
    ConfigKey("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", fraction,
              "Which part of a log has to be uncompacted before it is compacted.", "log.cleaner.min.cleanable.ratio"),
    ConfigKey(MIN_LAG, Kind.LONG, "0", _not_negative,
              "How long a record stays uncompacted at least.", "log.cleaner.min.compaction.lag.ms"),
    # How things are here.
    ConfigKey("file.delete.delay.ms", Kind.LONG, "60000", _not_negative,
              "Objects that nothing refers to go by `housekeeping.dead_object_grace_ms`.",
              "log.segment.delete.delay.ms", fixed=True),
    ConfigKey("flush.messages", Kind.LONG, "1", number(1, LONG_MAX),
              "Every append is stored before it is acknowledged.", "log.flush.interval.messages", fixed=True),
    ConfigKey("flush.ms", Kind.LONG, "0", _not_negative,
              "Every append is stored before it is acknowledged.", "log.flush.interval.ms", fixed=True),
    ConfigKey("follower.replication.throttled.replicas", Kind.LIST, "", anything, "There are no followers.",
              fixed=True),
    ConfigKey("index.interval.bytes", Kind.INT, "4096", number(0, INT_MAX),
              "The index lies in the ledger.", "log.index.interval.bytes", fixed=True),
    ConfigKey("leader.replication.throttled.replicas", Kind.LIST, "", anything, "There are no followers.", fixed=True),
    ConfigKey("local.retention.bytes", Kind.LONG, "-2", number(-2, LONG_MAX),
              "Nothing is kept on a broker.", "log.local.retention.bytes", fixed=True),
    ConfigKey("local.retention.ms", Kind.LONG, "-2", number(-2, LONG_MAX),
              "Nothing is kept on a broker.", "log.local.retention.ms", fixed=True),
    ConfigKey("min.insync.replicas", Kind.INT, "1", number(1, INT_MAX),
              "Object storage replicates.", "min.insync.replicas", fixed=True),
    ConfigKey("preallocate", Kind.BOOLEAN, "false", boolean, "Objects have no room to spare.", "log.preallocate",
              fixed=True),
    ConfigKey("remote.log.copy.disable", Kind.BOOLEAN, "false", boolean, "Everything lies in object storage.",
              fixed=True),
    ConfigKey("remote.log.delete.on.disable", Kind.BOOLEAN, "false", boolean, "Everything lies in object storage.",
              fixed=True),
    ConfigKey("remote.storage.enable", Kind.BOOLEAN, "false", boolean,
              "Everything lies in object storage; there is no second tier.", fixed=True),
    ConfigKey("segment.bytes", Kind.INT, str(48 << 20), number(1 << 20, INT_MAX),
              "Segments are cut by the compactor, see `lake.file_bytes`.", "log.segment.bytes", fixed=True),
    ConfigKey("segment.index.bytes", Kind.INT, "10485760", number(4, INT_MAX),
              "The index lies in the ledger.", "log.index.size.max.bytes", fixed=True),
    ConfigKey("segment.jitter.ms", Kind.LONG, "0", _not_negative,
              "Segments are cut by the compactor.", "log.roll.jitter.ms", fixed=True),
    ConfigKey("segment.ms", Kind.LONG, "30000", number(1, LONG_MAX),
              "Segments are cut by the compactor, see `headwater.table.freshness.ms`.", "log.roll.ms", fixed=True),
    ConfigKey("unclean.leader.election.enable", Kind.BOOLEAN, "false", boolean,
              "There are no elections.", "unclean.leader.election.enable", fixed=True),
]  # fmt: skip
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


def checked(name: str, value: str) -> str:
    """A topic config's value in its canonical form, or a `ConfigError` in the words that Kafka's tools show."""
    return checked_by(KEYS, "topic", name, value)


def facts(settings: Settings) -> dict[str, str]:
    """The values of fixed configs that follow from settings. The others are what they are by default."""
    return {
        "file.delete.delay.ms": str(settings.housekeeping.dead_object_grace_ms),
        "segment.bytes": str(settings.lake.file_bytes),
        "segment.ms": str(settings.lake.freshness_ms),
    }


def changed(name: str, value: str, true: Mapping[str, str]) -> str:
    """As `checked`, for a change of a topic that is there: a fixed config can only be set to what it truly is."""
    canonical = checked(name, value)
    key = KEYS[name]
    fact = true.get(name, key.default)
    if key.fixed and canonical != fact:
        raise ConfigError(f"Config {name} is read-only here, with the value '{fact}': {key.doc}")
    return canonical


def settable(configs: Mapping[str, str]) -> dict[str, str]:
    """Checked configs without those that are fixed."""
    return {name: value for name, value in configs.items() if not KEYS[name].fixed}


def check_together(configs: Mapping[str, str]) -> None:
    """What configs demand of each other."""
    shortest, longest = (int(configs.get(name, KEYS[name].default)) for name in (MIN_LAG, MAX_LAG))
    if shortest > longest:
        raise ConfigError(f"conflict topic config setting {MIN_LAG} ({shortest}) > {MAX_LAG} ({longest})")


class TopicConfig(msgspec.Struct, frozen=True):
    """A topic's configs, typed."""

    cleanup: tuple[str, ...]
    compression: str
    compression_level: int
    """For the codec at hand; what the codec itself takes for a default where there are no levels."""
    profile: str
    max_message_bytes: int
    timestamp_after_ms: int
    timestamp_before_ms: int
    append_time: bool
    retention_bytes: int
    retention_ms: int
    table: bool
    freshness_ms: int
    """0 if the topic leaves it to the compactor."""
    table_retention_ms: int
    """-1 for ever."""

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> TopicConfig:
        """The typed form of checked configs; what is not set has its default."""

        def value(name: str) -> str:
            return configs.get(name, KEYS[name].default)

        compression = value("compression.type")
        level = f"compression.{compression}.level"
        return cls(
            compression=compression,
            compression_level=int(value(level)) if level in KEYS else -1,
            cleanup=tuple(elements(value("cleanup.policy"))),
            profile=value("headwater.wal.profile"),
            max_message_bytes=int(value("max.message.bytes")),
            timestamp_after_ms=int(value("message.timestamp.after.max.ms")),
            timestamp_before_ms=int(value("message.timestamp.before.max.ms")),
            append_time=value("message.timestamp.type") == "LogAppendTime",
            retention_bytes=int(value("retention.bytes")),
            retention_ms=int(value("retention.ms")),
            table=value("headwater.table.enable") == "true",
            freshness_ms=int(value("headwater.table.freshness.ms") or 0),
            table_retention_ms=int(value(TABLE_RETENTION)),
        )
