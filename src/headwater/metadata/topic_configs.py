"""Topic configs: the names that exist, what they may hold, and their typed form.

Unknown names are refused, not ignored. Some of Kafka's configs steer things that do not exist here (segments on a
local disk, replicas); they are checked, kept and reported, since tools set them, and have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from headwater.errors import ConfigError

TABLE_RETENTION = "headwater.table.retention.ms"
LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class Kind(Enum):
    """How Kafka's tools show a config's value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One topic config."""

    name: str
    kind: Kind
    default: str
    check: Callable[[str], str]
    doc: str
    effective: bool = True
    """False where the config has nothing to act on here."""


def _number(low: int, high: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            number = int(value.strip())
        except ValueError:
            raise ConfigError(f"Not a number of type {'INT' if high <= INT_MAX else 'LONG'}") from None
        if not low <= number <= high:
            raise ConfigError(f"Value must be at least {low}" if number < low else f"Value must be at most {high}")
        return str(number)

    return check


def _fraction(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        raise ConfigError("Not a number of type DOUBLE") from None
    if not 0 <= number <= 1:
        raise ConfigError("Value must lie between 0 and 1")
    return value.strip()


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in allowed:
            raise ConfigError(f"String must be one of: {', '.join(allowed)}")
        return value

    return check


def _boolean(value: str) -> str:
    if value.strip().lower() not in ("true", "false"):
        raise ConfigError("Expected value to be either true or false")
    return value.strip().lower()


def _cleanup(value: str) -> str:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not parts or any(part not in ("delete", "compact") for part in parts):
        raise ConfigError("List must be one or both of: compact, delete")
    return ",".join(parts)


def _any(value: str) -> str:
    return value


_duration = _number(-1, LONG_MAX)


def _optional_duration(value: str) -> str:
    return value if not value else _number(1, LONG_MAX)(value)


_not_negative = _number(0, LONG_MAX)

_KEYS = [
    ConfigKey("cleanup.policy", Kind.LIST, "delete", _cleanup, "Delete old records, compact by key, or both."),
    ConfigKey("headwater.table.enable", Kind.BOOLEAN, "true", _boolean,
              "Whether Iceberg, Delta and other catalogs show the topic as a table. It settles in any case."),
    ConfigKey("headwater.table.freshness.ms", Kind.LONG, "", _optional_duration,
              "How far the table may lag behind the log. Empty: the compactor's default."),
    ConfigKey(TABLE_RETENTION, Kind.LONG, "-1", _duration,
              "How long the table keeps its rows, whatever the log keeps. -1: for ever."),
    ConfigKey("headwater.wal.profile", Kind.STRING, "", _one_of("", "cost", "latency"),
              "How appends are gathered: few large objects, or quick small ones. Empty: the store's default."),
    ConfigKey("max.message.bytes", Kind.INT, "1048588", _number(0, INT_MAX), "The largest record batch."),
    ConfigKey("message.timestamp.after.max.ms", Kind.LONG, "3600000", _not_negative,
              "How far a record's timestamp may lie ahead."),
    ConfigKey("message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX), _not_negative,
              "How far a record's timestamp may lie back."),
    ConfigKey("message.timestamp.type", Kind.STRING, "CreateTime", _one_of("CreateTime", "LogAppendTime"),
              "Whether records keep their producer's timestamp."),
    ConfigKey("retention.bytes", Kind.LONG, "-1", _duration, "How many bytes of a partition to keep."),
    ConfigKey("retention.ms", Kind.LONG, "604800000", _duration, "How long to keep records."),
    ConfigKey("compression.type", Kind.STRING, "producer", _one_of("producer"),
              "Batches keep their producer's codec."),
    # Accepted for the sake of tools, without effect here.
    ConfigKey("compression.gzip.level", Kind.INT, "-1", _number(-1, 9), "Gzip level.", False),
    ConfigKey("compression.lz4.level", Kind.INT, "9", _number(1, 17), "LZ4 level.", False),
    ConfigKey("compression.zstd.level", Kind.INT, "3", _number(-131072, 22), "Zstd level.", False),
    ConfigKey("delete.retention.ms", Kind.LONG, "86400000", _not_negative, "How long tombstones stay.", False),
    ConfigKey("file.delete.delay.ms", Kind.LONG, "60000", _not_negative, "Delay before files go.", False),
    ConfigKey("flush.messages", Kind.LONG, str(LONG_MAX), _number(1, LONG_MAX), "Every append is synced.", False),
    ConfigKey("flush.ms", Kind.LONG, str(LONG_MAX), _not_negative, "Every append is synced.", False),
    ConfigKey("follower.replication.throttled.replicas", Kind.LIST, "", _any, "No replicas.", False),
    ConfigKey("index.interval.bytes", Kind.INT, "4096", _number(0, INT_MAX), "No such index.", False),
    ConfigKey("leader.replication.throttled.replicas", Kind.LIST, "", _any, "No replicas.", False),
    ConfigKey("local.retention.bytes", Kind.LONG, "-2", _number(-2, LONG_MAX), "Nothing is local.", False),
    ConfigKey("local.retention.ms", Kind.LONG, "-2", _number(-2, LONG_MAX), "Nothing is local.", False),
    ConfigKey("max.compaction.lag.ms", Kind.LONG, str(LONG_MAX), _number(1, LONG_MAX), "Compaction lag.", False),
    ConfigKey("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", _fraction, "Compaction threshold.", False),
    ConfigKey("min.compaction.lag.ms", Kind.LONG, "0", _not_negative, "Compaction lag.", False),
    ConfigKey("min.insync.replicas", Kind.INT, "1", _number(1, INT_MAX), "Object storage replicates.", False),
    ConfigKey("preallocate", Kind.BOOLEAN, "false", _boolean, "No files of its own.", False),
    ConfigKey("segment.bytes", Kind.INT, "1073741824", _number(14, INT_MAX), "No segments of its own.", False),
    ConfigKey("segment.index.bytes", Kind.INT, "10485760", _number(4, INT_MAX), "No such index.", False),
    ConfigKey("segment.jitter.ms", Kind.LONG, "0", _not_negative, "No segments of its own.", False),
    ConfigKey("segment.ms", Kind.LONG, "604800000", _number(1, LONG_MAX), "No segments of its own.", False),
    ConfigKey("unclean.leader.election.enable", Kind.BOOLEAN, "false", _boolean, "No leaders.", False),
]  # fmt: skip
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}
MAX_VALUE_LENGTH = 10_000


def checked(name: str, value: str | None) -> str:
    """A config's value in its canonical form, or a `ConfigError` in the words that Kafka's tools show."""
    key = KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    if value is None or len(value) > MAX_VALUE_LENGTH:
        raise ConfigError(f"Null or overlong value not supported for topic config: {name}")
    try:
        return key.check(value)
    except ConfigError as error:
        raise ConfigError(f"Invalid value {value} for configuration {name}: {error}") from None


class TopicConfig(msgspec.Struct, frozen=True):
    """A topic's configs, typed."""

    cleanup: tuple[str, ...]
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

        return cls(
            cleanup=tuple(value("cleanup.policy").split(",")),
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
