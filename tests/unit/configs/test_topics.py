"""Topic configs: checked strictly, kept in a canonical form, typed."""

import pytest

from headwater.configs.keys import INT_MAX, LONG_MAX, MAX_VALUE_LENGTH, Kind
from headwater.configs.topics import DEFAULTS, KEYS, TopicConfig, check_together, checked, value_of
from headwater.errors import ConfigError
from tests.support.promise import promise

PROMISES = ("K7",)


@promise("K7")
@pytest.mark.parametrize("name", KEYS)
def test_defaults_are_valid(name: str) -> None:
    """Every config has a sound default and a word on what it does."""
    key = KEYS[name]
    assert checked(name, key.default) == key.default
    assert key.doc.endswith(".")


@promise("K7")
@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", str(LONG_MAX), str(LONG_MAX)),
        ("retention.bytes", "+7", "7"),
        ("max.message.bytes", "0", "0"),
        ("max.message.bytes", str(INT_MAX), str(INT_MAX)),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "compact", "compact"),
        ("cleanup.policy", "", ""),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "0.25", "0.25"),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("headwater.wal.profile", "cost", "cost"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("segment.bytes", "1048576", "1048576"),
        ("cleanup.policy", "compact,compact", "compact"),
        ("compression.type", "zstd", "zstd"),
        ("compression.gzip.level", "-1", "-1"),
        ("compression.zstd.level", "-7", "-7"),
    ],
)
def test_accepted(name: str, given: str, kept: str) -> None:
    assert checked(name, given) == kept


@promise("K7")
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", str(LONG_MAX + 1)),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("retention.ms", "1.5"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", str(INT_MAX + 1)),
        ("message.timestamp.after.max.ms", "-1"),
        ("cleanup.policy", "keep"),
        ("cleanup.policy", "delete,keep"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "much"),
        ("message.timestamp.type", "logappendtime"),
        ("headwater.wal.profile", "fast"),
        ("compression.type", "rar"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(INT_MAX + 1)),
        ("segment.ms", "0"),
        ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "-1"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("index.interval.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("unclean.leader.election.enable", "maybe"),
        ("local.retention.ms", "-3"),
        ("follower.replication.throttled.replicas", "0:1,2"),
        ("leader.replication.throttled.replicas", "all"),
        ("remote.storage.enable", "true"),
        ("remote.storage.enable", "yes"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
    ],
)
def test_refused(name: str, given: str) -> None:
    """In the words that Kafka's tools show."""
    with pytest.raises(ConfigError, match=f"^Invalid value .* for configuration {name}: "):
        checked(name, given)


@promise("K7")
def test_unknown_and_absent() -> None:
    with pytest.raises(ConfigError, match=r"Unknown topic config name: no\.such"):
        checked("no.such", "1")
    with pytest.raises(ConfigError, match="more than"):
        checked("leader.replication.throttled.replicas", "x" * (MAX_VALUE_LENGTH + 1))


@promise("K7")
@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if key.inert])
def test_configs_without_effect(name: str) -> None:
    """They take Kafka's values like any other, and their descriptions say that nothing follows."""
    other = {Kind.BOOLEAN: "true", Kind.LIST: "0:1, 1:2"}.get(KEYS[name].kind, "2000000")
    if name != "remote.storage.enable":
        assert checked(name, other) == other.replace(" ", "")
    assert KEYS[name].meaning.startswith("No effect in Headwater. ")
    assert TopicConfig.of({name: other}, {}) == TopicConfig.of({}, {})


@promise("K7")
def test_configs_that_contradict_each_other() -> None:
    check_together({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}, {})
    with pytest.raises(ConfigError, match=r"conflict topic config setting min.compaction.lag.ms \(10\) > "):
        check_together({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, {})


@promise("K7")
@pytest.mark.parametrize("synonym", DEFAULTS)
def test_defaults_of_the_cluster(synonym: str) -> None:
    """A topic's own value counts more than the cluster's default, and that more than Kafka's."""
    key = DEFAULTS[synonym]
    assert value_of(key.name, {}, {}) == key.default
    assert value_of(key.name, {}, {synonym: "a"}) == "a"
    assert value_of(key.name, {key.name: "b"}, {synonym: "a"}) == "b"


@promise("K7")
def test_defaults_of_the_cluster_typed() -> None:
    common = {"log.retention.ms": "5", "log.message.timestamp.type": "LogAppendTime", "max.connections": "7"}
    config = TopicConfig.of({"message.timestamp.type": "CreateTime"}, common)
    assert (config.retention_ms, config.append_time) == (5, False)
    assert TopicConfig.of({}, common).append_time
    with pytest.raises(ConfigError, match="conflict topic config setting"):
        check_together({"max.compaction.lag.ms": "9"}, {"log.cleaner.min.compaction.lag.ms": "10"})


@promise("K7")
def test_typed() -> None:
    """What is not set has its default."""
    assert TopicConfig.of({}, {}) == TopicConfig(
        cleanup=("delete",),
        compression="producer",
        compression_level=-1,
        profile="",
        max_message_bytes=1048588,
        timestamp_after_ms=3_600_000,
        timestamp_before_ms=LONG_MAX,
        append_time=False,
        retention_bytes=-1,
        retention_ms=604_800_000,
        table=True,
        freshness_ms=0,
        table_retention_ms=-1,
        key_schema="none",
        value_schema="none",
        flatten=False,
        separate_types=False,
        backfill_change=False,
        index_columns=(),
    )
    given = {
        "cleanup.policy": "compact,delete",
        "headwater.table.enable": "False",
        "headwater.table.freshness.ms": "5000",
        "headwater.table.retention.ms": "6000",
        "headwater.wal.profile": "latency",
        "max.message.bytes": "7",
        "message.timestamp.after.max.ms": "8",
        "message.timestamp.before.max.ms": "9",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "10",
        "retention.ms": "-1",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "headwater.key.schema": " json ",
        "headwater.value.schema": "subject:orders-value",
        "headwater.table.flatten": "true",
        "headwater.table.types": "separate",
        "headwater.table.backfill.change": "true",
        "headwater.table.index.columns": " value_data.a, key_data ,value_data.a",
    }
    config = TopicConfig.of({name: checked(name, value) for name, value in given.items()}, {})
    assert config == TopicConfig(
        ("compact", "delete"), "zstd", 7, "latency", 7, 8, 9, True, 10, -1, False, 5_000, 6_000,
        "json", "subject:orders-value", True, True, True, ("value_data.a", "key_data"),
    )  # fmt: skip
    assert config.compacted
    assert config.typed
    assert TopicConfig.of({"headwater.key.schema": "auto"}, {}).typed
    assert not TopicConfig.of({}, {}).typed
    assert not TopicConfig.of({}, {}).compacted


@promise("T17")
@pytest.mark.parametrize("value", ["a..b", ".a", "a" * 1_001, ",".join(f"c{i}" for i in range(33))])
def test_columns_to_index(value: str) -> None:
    """A bounded list of names."""
    with pytest.raises(ConfigError, match="column"):
        checked("headwater.table.index.columns", value)


@promise("T7")
@pytest.mark.parametrize("value", ["", "avro", "subject:", "subject:" + "x" * 256, "subject:a\nb", "JSON"])
def test_sources_of_schemas(value: str) -> None:
    """What a topic may say about the schemas of its keys and values."""
    with pytest.raises(ConfigError, match="must be none, auto, json or subject:NAME"):
        checked("headwater.value.schema", value)
