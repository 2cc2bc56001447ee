"""Topic configs: checked strictly, kept in a canonical form, typed (K7)."""

import pytest

from headwater.config import Housekeeping, Settings
from headwater.errors import ConfigError
from headwater.metadata.config_keys import INT_MAX, LONG_MAX, MAX_VALUE_LENGTH, Kind
from headwater.metadata.topic_configs import KEYS, TopicConfig, changed, check_together, checked, facts, settable


@pytest.mark.parametrize("name", KEYS)
def test_defaults_are_valid(name: str) -> None:
    """K7: every config has a sound default and a word on what it does."""
    key = KEYS[name]
    assert checked(name, key.default) == key.default
    assert key.doc.endswith(".")


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
    """K7"""
    assert checked(name, given) == kept


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
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
    ],
)
def test_refused(name: str, given: str) -> None:
    """K7: in the words that Kafka's tools show."""
    with pytest.raises(ConfigError, match=f"^Invalid value .* for configuration {name}: "):
        checked(name, given)


def test_unknown_and_absent() -> None:
    """K7"""
    with pytest.raises(ConfigError, match=r"Unknown topic config name: no\.such"):
        checked("no.such", "1")
    with pytest.raises(ConfigError, match="more than"):
        checked("leader.replication.throttled.replicas", "x" * (MAX_VALUE_LENGTH + 1))


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if key.fixed])
def test_what_cannot_be_changed(name: str) -> None:
    """K7: it can be set to what it is, and to nothing else."""
    key = KEYS[name]
    assert changed(name, key.default, {}) == key.default
    other = {Kind.BOOLEAN: "true", Kind.LIST: "*"}.get(key.kind, "2000000")
    with pytest.raises(ConfigError, match=f"{name} is read-only here, with the value '{key.default}'"):
        changed(name, other, {})
    assert changed(name, other, {name: other}) == other, "what follows from settings is true"
    assert settable({name: other, "retention.ms": "1"}) == {"retention.ms": "1"}


def test_what_follows_from_settings() -> None:
    """K7: defaults are those of the default settings, so that the docs are true."""
    assert facts(Settings()) == {name: KEYS[name].default for name in facts(Settings())}
    assert facts(Settings(housekeeping=Housekeeping(dead_object_grace_ms=7)))["file.delete.delay.ms"] == "7"


def test_configs_that_contradict_each_other() -> None:
    """K7"""
    check_together({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"})
    with pytest.raises(ConfigError, match=r"conflict topic config setting min.compaction.lag.ms \(10\) > "):
        check_together({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_typed() -> None:
    """K7: what is not set has its default."""
    assert TopicConfig.of({}) == TopicConfig(
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
    }
    config = TopicConfig.of({name: checked(name, value) for name, value in given.items()})
    assert config == TopicConfig(
        ("compact", "delete"), "zstd", 7, "latency", 7, 8, 9, True, 10, -1, False, 5_000, 6_000
    )
    assert config.compacted
    assert not TopicConfig.of({}).compacted
