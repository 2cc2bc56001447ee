"""Topic configs: their names, allowed values and typed form.

Unknown names are refused, not ignored. Some of Kafka's configs control things that do not exist here (files on a local
disk, replicas). They have Kafka's defaults and ranges, and are kept and shown, because tools set them and look whether
they are set. Their descriptions say that they have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headwater.configs.keys import (
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
from headwater.errors import ConfigError

TABLE_RETENTION = "headwater.table.retention.ms"
TABLE_ENABLE = "headwater.table.enable"
KEY_INDEX = "headwater.key.index"
KEY_SCHEMA, VALUE_SCHEMA = "headwater.key.schema", "headwater.value.schema"
TABLE_FLATTEN, TABLE_TYPES = "headwater.table.flatten", "headwater.table.types"
BACKFILL_CHANGE = "headwater.table.backfill.change"
INDEX_COLUMNS = "headwater.table.index.columns"
CUT_PARTITIONS = "headwater.table.cut.partitions"
MAX_INDEX_COLUMNS, MAX_COLUMN_PATH = 32, 1_000
"""The number of columns in `headwater.table.index.columns`, and the characters of each."""
DLQ_TOPIC = "headwater.dlq.topic"
DLQ_SETTER = "headwater.dlq.setter"
"""Stored beside `headwater.dlq.topic`, neither shown nor set by its name: the address and the principal who set it, as
`ADDRESS PRINCIPAL`. Their rights are asked again when dead letters are written."""
NO_SCHEMA, AUTO_SCHEMA, JSON_SCHEMA, SUBJECT_PREFIX = "none", "auto", "json", "subject:"
MAX_SUBJECT = 255
"""Longest name of a subject in a topic config, in characters."""
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
UNCOMPRESSED, PRODUCER = "uncompressed", "producer"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REPLICA = re.compile(r"[0-9]+:[0-9]+")
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


def _throttled(value: str) -> str:
    parts = elements(value)
    if parts[:1] != ["*"] and not all(_REPLICA.fullmatch(part) for part in parts):
        raise ConfigError("The value must be the literal '*' or a list of [partitionId]:[brokerId],...")
    return ",".join(parts)


def _no_second_tier(value: str) -> str:
    if boolean(value) == "true":
        raise ConfigError("Tiered Storage functionality is disabled: there is no second tier.")
    return "false"


def _optional_topic(value: str) -> str:
    given = value.strip()
    if given and (not _TOPIC.fullmatch(given) or given in (".", "..")):
        raise ConfigError("Value must be the name of a topic, or empty")
    return given


def _columns(value: str) -> str:
    paths = list(dict.fromkeys(elements(value)))
    if len(paths) > MAX_INDEX_COLUMNS:
        raise ConfigError(f"Value must be a list of up to {MAX_INDEX_COLUMNS} columns")
    for path in paths:
        if len(path) > MAX_COLUMN_PATH or not all(path.split(".")):
            raise ConfigError("Each column must be a name, with dots between the levels: value_data.customer.id")
    return ",".join(paths)


def _schema(value: str) -> str:
    given = value.strip()
    if given in (NO_SCHEMA, AUTO_SCHEMA, JSON_SCHEMA):
        return given
    subject = given.removeprefix(SUBJECT_PREFIX)
    if subject == given or not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise ConfigError(
            f"Value must be none, auto, json or subject:NAME, with a name of up to {MAX_SUBJECT} characters"
        )
    return given


_KEYS = [
    ConfigKey("cleanup.policy", Kind.LIST, "delete", _cleanup,
              "`delete` removes old records. `compact` demands keys; nothing is compacted yet. Empty: neither.",
              "log.cleanup.policy"),
    ConfigKey("compression.type", Kind.STRING, PRODUCER, one_of(*CODECS),
              "Codec in which batches are stored; `producer` keeps the producer's.", "compression.type"),
    ConfigKey("compression.gzip.level", Kind.INT, "-1", _gzip_level,
              "Level of gzip, if batches are stored with it.", "compression.gzip.level"),
    ConfigKey("compression.lz4.level", Kind.INT, "9", number(1, 17),
              "Level of LZ4, if batches are stored with it.", "compression.lz4.level"),
    ConfigKey("compression.zstd.level", Kind.INT, "3", number(-131072, 22),
              "Level of Zstandard, if batches are stored with it.", "compression.zstd.level"),
    ConfigKey(KEY_INDEX, Kind.BOOLEAN, "false", boolean,
              "Whether the compactor keeps an index of the table's keys, so that look-ups by key read little."),
    ConfigKey(KEY_SCHEMA, Kind.STRING, NO_SCHEMA, _schema,
              "Where the schemas of keys come from, for typed columns: see `headwater.value.schema`."),
    ConfigKey(DLQ_TOPIC, Kind.STRING, "", _optional_topic,
              "The dead-letter topic: records that cannot be decoded by a schema are copied there, each once. It names "
              "no dead-letter topic itself. Empty: none."),
    ConfigKey(BACKFILL_CHANGE, Kind.BOOLEAN, "false", boolean,
              "Whether Delta shows it as a change of data when settled rows get typed columns later. Streaming readers "
              "of Delta end at such a change; without it they see those rows as they read them before."),
    ConfigKey(CUT_PARTITIONS, Kind.BOOLEAN, "false", boolean,
              "Whether files that partitions share are written again, one partition a file, when there are enough of "
              "them. Queries of one partition then read little; settling takes about twice the work. Large partitions "
              "have files of their own in any case (`lake.partition_bytes`)."),
    ConfigKey(TABLE_ENABLE, Kind.BOOLEAN, "true", boolean,
              "Whether Iceberg, Delta and other catalogs show the topic as a table. The topic settles in any case."),
    ConfigKey(TABLE_FLATTEN, Kind.BOOLEAN, "false", boolean,
              "Whether fields of the value are columns of the table itself, not of `value_data`. It is fixed once the "
              "table has such columns."),
    ConfigKey("headwater.table.freshness.ms", Kind.LONG, "", _optional_duration,
              "How far the table may lag behind the log. Empty: `lake.freshness_ms`."),
    ConfigKey(INDEX_COLUMNS, Kind.LIST, "", _columns,
              "Typed columns by which queries look for rows, such as `value_data.customer.id`, up to 32. New files "
              "have bounds and bloom filters of them, so that engines pass over files. A column inside a list or a map "
              "gets none."),
    ConfigKey(TABLE_RETENTION, Kind.LONG, "-1", _duration,
              "How long the table keeps its rows, independent of the log. -1: without limit."),
    ConfigKey(TABLE_TYPES, Kind.STRING, "merged", one_of("merged", "separate"),
              "Columns of a topic with several record types. `merged`: all types share them. `separate`: each has a "
              "struct of its own, by its short name."),
    ConfigKey(VALUE_SCHEMA, Kind.STRING, NO_SCHEMA, _schema,
              "Where the schemas of values come from, for typed columns. `auto`: the id in front of a value, or the "
              "header `__value_schema_id`. `subject:NAME`: the same, and the newest version of the subject for values "
              "without an id. `json`: values are JSON without a schema. `none`: no typed columns."),
    ConfigKey("headwater.wal.profile", Kind.STRING, "", one_of("", "cost", "latency"),
              "How appends are gathered: `cost` or `latency`. Empty: `latency` on a local directory, else `cost`."),
    ConfigKey("max.message.bytes", Kind.INT, "1048588", number(0, INT_MAX),
              "Largest record batch in bytes.", "message.max.bytes"),
    ConfigKey("message.timestamp.after.max.ms", Kind.LONG, "3600000", _not_negative,
              "How far a record's timestamp may be ahead of the broker's clock.", "log.message.timestamp.after.max.ms"),
    ConfigKey("message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX), _not_negative,
              "How far a record's timestamp may be behind the broker's clock.", "log.message.timestamp.before.max.ms"),
    ConfigKey("message.timestamp.type", Kind.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
              "Whether records keep their producer's timestamp or get that of the append.",
              "log.message.timestamp.type"),
    ConfigKey("retention.bytes", Kind.LONG, "-1", _duration,
              "How many bytes of a partition are kept. -1: without limit.", "log.retention.bytes"),
    ConfigKey("retention.ms", Kind.LONG, "604800000", _duration,
              "How long records are kept. -1: without limit.", "log.retention.ms"),
    # Stored for compaction, without effect yet.
    ConfigKey("delete.retention.ms", Kind.LONG, "86400000", _not_negative,
              "How long compaction keeps tombstones. No effect yet.", "log.cleaner.delete.retention.ms"),
    ConfigKey(MAX_LAG, Kind.LONG, str(LONG_MAX), number(1, LONG_MAX),
              "Longest time that a record stays uncompacted. No effect yet.", "log.cleaner.max.compaction.lag.ms"),
    ConfigKey("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", fraction,
              "Share of a log that must be uncompacted before it is compacted. No effect yet.",
              "log.cleaner.min.cleanable.ratio"),
    ConfigKey(MIN_LAG, Kind.LONG, "0", _not_negative,
              "Shortest time that a record stays uncompacted. No effect yet.", "log.cleaner.min.compaction.lag.ms"),
    # Without effect.
    ConfigKey("file.delete.delay.ms", Kind.LONG, "60000", _not_negative,
              "`housekeeping.dead_object_grace_ms` says when unused objects are deleted.",
              "log.segment.delete.delay.ms", inert=True),
    ConfigKey("flush.messages", Kind.LONG, str(LONG_MAX), number(1, LONG_MAX),
              "Every append is stored before it is acknowledged.", "log.flush.interval.messages", inert=True),
    ConfigKey("flush.ms", Kind.LONG, str(LONG_MAX), _not_negative,
              "Every append is stored before it is acknowledged.", "log.flush.interval.ms", inert=True),
    ConfigKey("follower.replication.throttled.replicas", Kind.LIST, "", _throttled, "There are no followers.",
              inert=True),
    ConfigKey("index.interval.bytes", Kind.INT, "4096", number(0, INT_MAX),
              "The index is in the ledger.", "log.index.interval.bytes", inert=True),
    ConfigKey("leader.replication.throttled.replicas", Kind.LIST, "", _throttled, "There are no followers.",
              inert=True),
    ConfigKey("local.retention.bytes", Kind.LONG, "-2", number(-2, LONG_MAX),
              "Brokers keep no data.", "log.local.retention.bytes", inert=True),
    ConfigKey("local.retention.ms", Kind.LONG, "-2", number(-2, LONG_MAX),
              "Brokers keep no data.", "log.local.retention.ms", inert=True),
    ConfigKey("min.insync.replicas", Kind.INT, "1", number(1, INT_MAX),
              "Object storage replicates. Shown as 1 whatever is set: each partition has one replica, and tools would "
              "list it as under its minimum.", "min.insync.replicas", inert=True, shown="1"),
    ConfigKey("preallocate", Kind.BOOLEAN, "false", boolean, "Objects are written whole.", "log.preallocate",
              inert=True),
    ConfigKey("remote.log.copy.disable", Kind.BOOLEAN, "false", boolean, "All data is in object storage.",
              inert=True),
    ConfigKey("remote.log.delete.on.disable", Kind.BOOLEAN, "false", boolean, "All data is in object storage.",
              inert=True),
    ConfigKey("remote.storage.enable", Kind.BOOLEAN, "false", _no_second_tier,
              "All data is in object storage; there is no second tier.", inert=True),
    ConfigKey("segment.bytes", Kind.INT, str(1 << 30), number(1 << 20, INT_MAX),
              "The compactor cuts segments by `lake.file_bytes`.", "log.segment.bytes", inert=True),
    ConfigKey("segment.index.bytes", Kind.INT, "10485760", number(4, INT_MAX),
              "The index is in the ledger.", "log.index.size.max.bytes", inert=True),
    ConfigKey("segment.jitter.ms", Kind.LONG, "0", _not_negative,
              "The compactor cuts segments.", "log.roll.jitter.ms", inert=True),
    ConfigKey("segment.ms", Kind.LONG, "604800000", number(1, LONG_MAX),
              "The compactor cuts segments by `headwater.table.freshness.ms`.", "log.roll.ms", inert=True),
    ConfigKey("unclean.leader.election.enable", Kind.BOOLEAN, "false", boolean,
              "There are no elections.", "unclean.leader.election.enable", inert=True),
]  # fmt: skip
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}
DEFAULTS: Mapping[str, ConfigKey] = {key.synonym: key for key in _KEYS if key.synonym}
"""Topic configs by the broker config that has their default."""
DAMAGE = ConfigKey(
    "headwater.damage",
    Kind.STRING,
    "",
    anything,
    "Records that the broker cannot read, as JSON. It is shown if there are any, and cannot be set.",
)

RETENTION_NOTICE = ConfigKey(
    "headwater.retention.notice",
    Kind.STRING,
    "",
    anything,
    "What becomes of records that were too old when they arrived. It is shown if there are any, and cannot be set.",
)

LINK = ConfigKey(
    "headwater.link",
    Kind.STRING,
    "",
    anything,
    "The link that copies the topic, as JSON. It is shown only if there is one, and cannot be set.",
)


def checked(name: str, value: str) -> str:
    """Check a topic config. Returns its canonical form, or raises a `ConfigError` in Kafka's words."""
    return checked_by(KEYS, "topic", name, value)


def value_of(name: str, configs: Mapping[str, str], common: Mapping[str, str]) -> str:
    """The value that applies to a topic: its own, else the cluster's default, else that of the config.

    `common` are the configs that are set for all brokers (`Resources.common`).
    """
    key = KEYS[name]
    return configs.get(name, common.get(key.synonym, key.default))


def check_together(configs: Mapping[str, str], common: Mapping[str, str]) -> None:
    """Check configs that depend on each other."""
    shortest, longest = (int(value_of(name, configs, common)) for name in (MIN_LAG, MAX_LAG))
    if shortest > longest:
        raise ConfigError(f"conflict topic config setting {MIN_LAG} ({shortest}) > {MAX_LAG} ({longest})")


class TopicConfig(msgspec.Struct, frozen=True):
    """A topic's configs, typed."""

    cleanup: tuple[str, ...]
    compression: str
    compression_level: int
    """The level of the codec. -1, the codec's default, if the codec has no levels."""
    profile: str
    max_message_bytes: int
    timestamp_after_ms: int
    timestamp_before_ms: int
    append_time: bool
    retention_bytes: int
    retention_ms: int
    table: bool
    freshness_ms: int
    """0 if the compactor's setting applies."""
    table_retention_ms: int
    """-1 for no limit."""
    key_schema: str
    value_schema: str
    flatten: bool
    separate_types: bool
    backfill_change: bool
    index_columns: tuple[str, ...]

    @property
    def typed(self) -> bool:
        """Whether the topic's table gets typed columns."""
        return self.key_schema != NO_SCHEMA or self.value_schema != NO_SCHEMA

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup

    @classmethod
    def of(cls, configs: Mapping[str, str], common: Mapping[str, str]) -> TopicConfig:
        """The typed form of what applies to a topic with these configs. See `value_of`."""

        def value(name: str) -> str:
            return value_of(name, configs, common)

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
            table=value(TABLE_ENABLE) == "true",
            freshness_ms=int(value("headwater.table.freshness.ms") or 0),
            table_retention_ms=int(value(TABLE_RETENTION)),
            key_schema=value(KEY_SCHEMA),
            value_schema=value(VALUE_SCHEMA),
            flatten=value(TABLE_FLATTEN) == "true",
            separate_types=value(TABLE_TYPES) == "separate",
            backfill_change=value(BACKFILL_CHANGE) == "true",
            index_columns=tuple(elements(value(INDEX_COLUMNS))),
        )
