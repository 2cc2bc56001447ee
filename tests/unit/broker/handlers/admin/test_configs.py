"""Configs of topics, brokers, loggers, groups and subscriptions are described and changed as in Apache Kafka."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.configs import inert
from headwater.configs.topics import KEYS
from headwater.settings.settings import Limits, Settings
from headwater.types import Domain
from tests.support.batches import batch
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import (
    BROKER,
    CLIENT_METRICS,
    CREATE,
    DESCRIBE_CONFIGS,
    GROUP,
    LOGGER,
    TOPIC,
    configs_of,
    create,
    fetch,
    produce,
    recs,
    run,
)

PROMISES = ("K7",)

ALTER, INCREMENTAL, LIST = 33, 44, 74
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE = ErrorCode.none
BAD = ErrorCode.invalid_config
INVALID = ErrorCode.invalid_request


async def change(node: Caller, kind: int, name: str, *configs: tuple[str, int, str | None], dry: bool = False) -> Any:
    wanted = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    resources = [{"resource_type": kind, "resource_name": name, "configs": wanted}]
    [answer] = (await node(INCREMENTAL, 1, resources=resources, validate_only=dry)).responses
    return answer


async def replace(node: Caller, kind: int, name: str, *configs: tuple[str, str | None]) -> Any:
    wanted = [{"name": key, "value": value} for key, value in configs]
    resources = [{"resource_type": kind, "resource_name": name, "configs": wanted}]
    [answer] = (await node(ALTER, 2, resources=resources)).responses
    return answer


@promise("K7")
def test_every_topic_config_is_described() -> None:
    """Value, type, source, synonyms, documentation; what has no effect says so."""

    async def test(one: Caller) -> None:
        await create(one, retention_ms="1000")
        shown = await configs_of(one, TOPIC, "t")
        assert shown.keys() == KEYS.keys()
        kept = shown["retention.ms"]
        assert (kept.value, kept.config_source, kept.config_type, kept.read_only) == ("1000", 1, 5, False)
        synonyms = [(s.name, s.value, s.source) for s in kept.synonyms]
        assert synonyms == [("retention.ms", "1000", 1)]
        assert kept.documentation
        other = shown["cleanup.policy"]
        assert (other.value, other.config_source, other.config_type) == ("delete", 5, 7)
        assert shown["flush.messages"].value == "9223372036854775807"
        assert "No effect in Headwater" in shown["flush.messages"].documentation
        assert not any(config.read_only for config in shown.values())
        assert not any(config.is_sensitive for config in shown.values())
        assert set(await configs_of(one, TOPIC, "t", ["retention.ms", "no"])) == {"retention.ms"}
        bare = [{"resource_type": TOPIC, "resource_name": "t", "configuration_keys": []}]
        [result] = (await one(DESCRIBE_CONFIGS, 4, resources=bare)).results
        assert len(result.configs) == len(KEYS), "an empty list asks for all"
        assert not any(config.synonyms or config.documentation for config in result.configs)

    run(test)


@promise("K7")
def test_configs_without_effect_are_kept_and_shown() -> None:
    """Tools find what they have set. Only the replicas in sync are 1 in any case, or all would be under it."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one, segment_ms="5", min_insync_replicas="2")
        assert (await change(one, TOPIC, "t", ("flush.ms", SET, "7"))).error_code is NONE
        assert one.node.cluster.state.names["t"].configs == {
            "segment.ms": "5", "min.insync.replicas": "2", "flush.ms": "7",
        }  # fmt: skip
        shown = await configs_of(two, TOPIC, "t")
        for name, value in (("segment.ms", "5"), ("flush.ms", "7")):
            config = shown[name]
            assert (config.value, config.config_source, config.read_only) == (value, 1, False)
            assert [(s.name, s.value, s.source) for s in config.synonyms] == [(name, value, 1)]
        replicas = shown["min.insync.replicas"]
        assert (replicas.value, replicas.config_source) == ("1", 5) and "whatever is set" in replicas.documentation

    run(test, 2)


@promise("K7")
@pytest.mark.parametrize(
    ("changes", "code", "text", "after"),
    [
        ([("retention.ms", SET, "6")], NONE, None, {"retention.ms": "6"}),
        ([("retention.ms", SET, None)], INVALID, "Null value not supported for : retention.ms", None),
        ([("retention.ms", SET, "")], BAD, "Not a number of type LONG", None),
        ([("retention.ms", DELETE, None)], NONE, None, {}),
        ([("retention.ms", DELETE, "7")], NONE, None, {}),
        ([("retention.ms", SET, "6"), ("retention.ms", DELETE, "")], INVALID, "duplicate config keys", None),
        ([("retention.ms", APPEND, "6")], BAD, "Can't APPEND to key retention.ms because its type is not LIST.", None),
        ([("retention.ms", SUBTRACT, "6")], BAD, "Can't SUBTRACT from key retention.ms", None),
        ([("retention.ms", 9, "6")], INVALID, "Unknown config operation", None),
        ([("no", SET, "6")], BAD, "Unknown topic config name: no", None),
        ([("no", DELETE, "6")], NONE, None, {"retention.ms": "5"}),
        (
            [("cleanup.policy", APPEND, "compact")],
            NONE,
            None,
            {"retention.ms": "5", "cleanup.policy": "delete,compact"},
        ),
        ([("cleanup.policy", APPEND, "delete")], NONE, None, {"retention.ms": "5", "cleanup.policy": "delete"}),
        ([("cleanup.policy", APPEND, "no")], BAD, "String must be one of: compact, delete", None),
        ([("cleanup.policy", SUBTRACT, "no")], NONE, None, {"retention.ms": "5", "cleanup.policy": "delete"}),
        ([("cleanup.policy", SUBTRACT, "delete")], NONE, None, {"retention.ms": "5", "cleanup.policy": ""}),
        ([("compression.type", SET, "rar")], BAD, "uncompressed, zstd, lz4, snappy, gzip, producer", None),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], BAD, "conflict topic", None),
        ([("segment.bytes", SET, "52428800")], NONE, None, {"retention.ms": "5", "segment.bytes": "52428800"}),
        ([("segment.bytes", SET, "5")], BAD, "Value must be at least 1048576", None),
        ([("segment.bytes", DELETE, None)], NONE, None, {"retention.ms": "5"}),
        ([("remote.storage.enable", SET, "true")], BAD, "Tiered Storage functionality is disabled", None),
        ([("headwater.dlq.topic", SET, "t")], BAD, "cannot be its own dead-letter topic", None),
        ([], NONE, None, {"retention.ms": "5"}),
    ],
)
def test_changes_of_topics(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, text: str | None, after: dict[str, str] | None
) -> None:
    """A change that is refused, or only tried, changes nothing."""

    async def test(one: Caller) -> None:
        await create(one, retention_ms="5")
        for dry in (True, False):
            answer = await change(one, TOPIC, "t", *changes, dry=dry)
            assert answer.error_code is code, answer.error_message
            assert (text or "") in (answer.error_message or "")
            wanted = {"retention.ms": "5"} if dry or after is None else after
            assert one.node.cluster.state.names["t"].configs == wanted

    run(test)


@promise("T7")
def test_dead_letter_topics_have_none_themselves() -> None:
    """Whichever of the two is changed, by whichever request, and also for a topic that is created."""

    async def test(one: Caller) -> None:
        await create(one, "letters")
        await create(one, "data", headwater_dlq_topic="letters")
        for name, target, words in (
            ("letters", "data", "Topic 'data' cannot be the dead-letter topic of 'letters': it has one itself"),
            ("letters", "more", "Topic 'letters' cannot have a dead-letter topic: it is that of another topic"),
        ):
            for answer in (
                await change(one, TOPIC, name, ("headwater.dlq.topic", SET, target)),
                await replace(one, TOPIC, name, ("headwater.dlq.topic", target)),
            ):
                assert answer.error_code is BAD and words in (answer.error_message or "")
        configs = [{"name": "headwater.dlq.topic", "value": "data"}]
        wanted = {"name": "n", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        [made] = (await one(CREATE, 7, topics=[wanted])).topics
        assert made.error_code is BAD and "n" not in one.node.cluster.state.names
        assert one.node.cluster.state.names["letters"].configs == {}
        stored = one.node.cluster.state.names["data"].configs
        assert stored["headwater.dlq.setter"].endswith(" User:ANONYMOUS"), "who has set it is asked again later"
        assert (await replace(one, TOPIC, "data", ("headwater.dlq.topic", "letters"))).error_code is NONE
        assert stored["headwater.dlq.setter"].endswith(" User:ANONYMOUS")
        assert (await replace(one, TOPIC, "data", ("retention.ms", "5"))).error_code is NONE
        assert one.node.cluster.state.names["data"].configs == {"retention.ms": "5"}

    run(test)


@promise("K7")
def test_topics_that_cannot_be_changed() -> None:
    async def test(one: Caller) -> None:
        for name, code in (("no", ErrorCode.unknown_topic_or_partition), ("", INVALID)):
            assert (await change(one, TOPIC, name, ("retention.ms", SET, "1"))).error_code is code
        await create(one)
        resource = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
        answers = (await one(INCREMENTAL, 1, resources=[resource, resource])).responses
        assert [a.error_code for a in answers] == [INVALID, INVALID]
        for kind in (0, 99):
            answer = await change(one, kind, "x", ("a", SET, "1"))
            assert (answer.error_code, answer.error_message) == (INVALID, f"Unknown resource type {kind}")

    run(test)


@promise("K7")
def test_replacing_all_configs() -> None:
    """What is not named has its default again."""

    async def test(one: Caller) -> None:
        await create(one, retention_ms="5", max_message_bytes="100")
        state = one.node.cluster.state
        for configs, code in (
            ([("retention.ms", None)], INVALID),
            ([("retention.ms", "5"), ("retention.ms", "6")], INVALID),
            ([("no", "5")], BAD),
        ):
            assert (await replace(one, TOPIC, "t", *configs)).error_code is code
            assert state.names["t"].configs == {"retention.ms": "5", "max.message.bytes": "100"}
        assert (await replace(one, TOPIC, "t", ("retention.ms", "7"))).error_code is NONE
        assert state.names["t"].configs == {"retention.ms": "7"}
        assert (await replace(one, TOPIC, "t")).error_code is NONE
        assert state.names["t"].configs == {}

    run(test)


@promise("K7")
def test_brokers() -> None:
    """Settings under Kafka's names; what is set for one broker counts more than what is set for all."""

    async def test(one: Caller, two: Caller) -> None:
        shown = await configs_of(one, BROKER, "1")
        limit = shown["max.connections"]
        assert (limit.value, limit.config_source, limit.read_only) == ("77", 4, False)
        assert (shown["node.id"].value, shown["node.id"].read_only) == ("1", True)
        assert shown["log.retention.ms"].value == "604800000" and shown["log.retention.ms"].config_source == 5
        assert await configs_of(one, BROKER, "") == {}
        for name, value in (("", "60"), ("1", "50")):
            assert (await change(one, BROKER, name, ("max.connections", SET, value))).error_code is NONE
        limit = (await configs_of(one, BROKER, "1"))["max.connections"]
        assert [(s.value, s.source) for s in limit.synonyms] == [("50", 2), ("60", 3), ("77", 4)]
        assert (limit.value, limit.config_source) == ("50", 2)
        assert (await configs_of(two, BROKER, "2"))["max.connections"].value == "60"
        assert (await configs_of(two, BROKER, ""))["max.connections"].config_source == 3
        for name, config, code in (
            ("1", ("broker.id", SET, "5"), INVALID),
            ("1", ("log.retention.ms", SET, "5"), INVALID),
            ("1", ("max.connections", SET, "x"), INVALID),
            ("1", ("no", SET, "5"), BAD),
            ("2", ("max.connections", SET, "5"), INVALID),
            ("x", ("max.connections", SET, "5"), INVALID),
        ):
            assert (await change(one, BROKER, name, config)).error_code is code, config
        assert (await replace(one, BROKER, "1")).error_code is NONE
        assert (await configs_of(one, BROKER, "1"))["max.connections"].value == "60"
        for name in ("2", "x"):
            wanted = [{"resource_type": BROKER, "resource_name": name, "configuration_keys": None}]
            assert (await one(DESCRIBE_CONFIGS, 4, resources=wanted)).results[0].error_code is INVALID

    run(test, 2, Settings(objects="memory://", limits=Limits(connections=77)))


@promise("K7")
def test_configs_of_brokers_without_effect() -> None:
    """Every name that Apache Kafka has is known, checked by its type and shown. What Kafka changes is kept."""

    async def test(one: Caller) -> None:
        for name, config, code in (
            ("", ("log.cleaner.backoff.ms", SET, "5"), NONE),
            ("1", ("log.cleaner.backoff.ms", SET, "7"), NONE),
            ("1", ("sasl.kerberos.kinit.cmd", SET, "/bin/kinit"), NONE),
            ("1", ("log.cleaner.backoff.ms", SET, "-1"), INVALID),
            ("1", ("log.cleaner.backoff.ms", SET, "soon"), INVALID),
            ("1", ("log.cleaner.io.buffer.load.factor", SET, "x"), INVALID),
            ("1", ("inter.broker.protocol", SET, "x"), BAD),
            ("1", ("controlled.shutdown.enable", SET, "false"), INVALID),
        ):
            assert (await change(one, BROKER, name, config)).error_code is code, config
        shown = await configs_of(one, BROKER, "1")
        backoff = shown["log.cleaner.backoff.ms"]
        assert [(s.value, s.source) for s in backoff.synonyms] == [("7", 2), ("5", 3), ("15000", 5)]
        assert (backoff.value, backoff.read_only) == ("7", False) and "No effect" in backoff.documentation
        assert shown["controlled.shutdown.enable"].read_only and shown["broker.rack"].value == ""
        assert not [name for name in shown if "password" in name], "what has no use is not kept, let alone secrets"

    run(test, 1)


@promise("K7")
def test_configs_without_effect_have_sound_defaults() -> None:
    for key in (*inert.STATIC.values(), *inert.DYNAMIC.values()):
        assert not key.default or key.check(key.default) == key.default, key
    static = {"node.id", "listeners", "max.connections", "log.retention.ms"}
    assert not static & (inert.STATIC.keys() | inert.DYNAMIC.keys())


@promise("K7")
def test_defaults_of_topics() -> None:
    """Set for all brokers, they apply to every topic that does not set the config itself, at once."""

    async def sources(node: Caller, topic: str, name: str) -> list[tuple[str, str, int]]:
        config = (await configs_of(node, TOPIC, topic))[name]
        told = [(s.name, s.value, s.source) for s in config.synonyms]
        assert (config.value, config.config_source) == told[0][1:] and not config.read_only
        return told

    async def test(one: Caller, two: Caller) -> None:
        await create(one, "early")
        await create(one, "own", max_message_bytes="3000", message_timestamp_type="CreateTime")
        size, stamped = "message.max.bytes", "log.message.timestamp.type"
        big = batch(recs(random.Random(1).randbytes(2500)))
        dry = await change(one, BROKER, "", (size, SET, "2000"), dry=True)
        assert dry.error_code is NONE and (await produce(one, big, "early")).error_code is NONE
        defaults = [(size, SET, "2000"), (stamped, SET, "LogAppendTime"), ("log.retention.ms", SET, "5")]
        assert (await change(one, BROKER, "", *defaults, ("compression.type", SET, "zstd"))).error_code is NONE
        await create(two, "late")
        default = (size, "1048588", 5)
        assert await sources(two, "early", "max.message.bytes") == [(size, "2000", 3), default]
        own = ("max.message.bytes", "3000", 1)
        assert await sources(two, "own", "max.message.bytes") == [own, (size, "2000", 3), default]
        assert await sources(two, "late", "retention.ms") == [("log.retention.ms", "5", 3)]
        [made] = (await two(CREATE, 7, topics=[{"name": "dry", "num_partitions": 1, "replication_factor": 1}])).topics
        assert {c.name: c.config_source for c in made.configs}["retention.ms"] == 3
        shown = (await configs_of(two, BROKER, "2"))[size]
        assert [(s.value, s.source) for s in shown.synonyms] == [("2000", 3), ("1048588", 5)] and not shown.read_only
        assert (await configs_of(two, BROKER, ""))[size].value == "2000"
        for topic in ("early", "own", "late"):
            code = NONE if topic == "own" else ErrorCode.message_too_large
            assert (await produce(two, big, topic)).error_code is code
            small = await produce(two, batch(recs(b"y" * 300)), topic)
            kept = (await fetch(two, small.base_offset, topic)).records
            assert kept[22] & 7 == 4, "the default codec, zstd"
            assert bool(kept[22] & 8) is (topic != "own"), "the default kind of timestamps"
        streams = one.node.domains[Domain(1)].state.streams.values()
        named = {t.id: name for name, t in one.node.cluster.state.names.items()}
        assert {named[s.topic] for s in streams if not s.append_time} == {"own"}
        assert (await change(one, BROKER, "", *((name, DELETE, None) for name, _, _ in defaults))).error_code is NONE
        assert (await produce(two, big, "early")).error_code is NONE
        assert not any(s.append_time for s in streams)

    run(test, 2)


@promise("K7")
@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("", ("message.max.bytes", SET, "-1"), INVALID),
        ("", ("compression.type", SET, "rar"), INVALID),
        ("", ("log.cleanup.policy", SET, "shred"), INVALID),
        ("", ("log.segment.bytes", SET, "5"), INVALID),
        ("", ("retention.ms", SET, "5"), BAD),
        ("1", ("log.retention.ms", SET, "5"), INVALID),
    ],
)
def test_defaults_of_topics_that_are_refused(name: str, config: tuple[str, int, str], code: ErrorCode) -> None:
    """Values are those of the topic config; one broker has no defaults of its own. Nothing changes."""

    async def test(one: Caller) -> None:
        assert (await change(one, BROKER, name, config)).error_code is code
        assert one.node.cluster.state.resources.common == {}

    run(test)


@promise("K7")
def test_loggers() -> None:
    """Levels can be changed while a broker runs."""
    logger = logging.getLogger("headwater.broker")
    before = logger.level

    async def test(one: Caller) -> None:
        assert (await change(one, LOGGER, "1", ("headwater.broker", SET, "DEBUG"))).error_code is NONE
        assert logger.level == logging.DEBUG
        shown = (await configs_of(one, LOGGER, "1"))["headwater.broker"]
        assert (shown.value, shown.config_source) == ("DEBUG", 6)
        assert (await change(one, LOGGER, "1", ("headwater.broker", SET, "WARN"), dry=True)).error_code is NONE
        assert logger.level == logging.DEBUG
        assert (await change(one, LOGGER, "1", ("headwater.broker", DELETE, None))).error_code is NONE
        assert logger.level == logging.NOTSET
        for name, config, code in (
            ("1", ("headwater.broker", SET, "LOUD"), BAD),
            ("1", ("no.such", SET, "INFO"), BAD),
            ("1", ("headwater.broker", APPEND, "INFO"), INVALID),
            ("2", ("headwater.broker", SET, "INFO"), INVALID),
            ("", ("headwater.broker", SET, "INFO"), INVALID),
        ):
            assert (await change(one, LOGGER, name, config)).error_code is code
        assert (await replace(one, LOGGER, "1", ("headwater.broker", "INFO"))).error_code is INVALID

    try:
        run(test)
    finally:
        logger.setLevel(before)


@promise("K7", "K14")
def test_groups_and_subscriptions() -> None:
    """Kept in the ledger, so every broker knows them."""

    async def test(one: Caller, two: Caller) -> None:
        timeout = "consumer.session.timeout.ms"
        assert (await change(one, GROUP, "g", (timeout, SET, "50000"))).error_code is NONE
        shown = (await configs_of(two, GROUP, "g"))[timeout]
        assert (shown.value, shown.config_source, shown.config_type) == ("50000", 8, 3)
        assert [(s.name, s.value, s.source) for s in shown.synonyms] == [
            (timeout, "50000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]
        assert (await configs_of(two, GROUP, "other"))[timeout].value == "45000"
        for name, config, code in (
            ("g", (timeout, SET, "5"), BAD),
            ("g", (timeout, SET, None), INVALID),
            ("g", (timeout, APPEND, "5"), BAD),
            ("g", ("no", SET, "5"), BAD),
            ("", (timeout, SET, "50000"), INVALID),
        ):
            assert (await change(one, GROUP, name, config)).error_code is code
        interval = ("interval.ms", SET, "5000")
        assert (await change(one, CLIENT_METRICS, "m", interval, ("metrics", SET, "a."))).error_code is NONE
        shown = await configs_of(two, CLIENT_METRICS, "m")
        assert (shown["interval.ms"].value, shown["interval.ms"].config_source) == ("5000", 7)
        assert (shown["metrics"].value, shown["match"].value) == ("a.", "")
        for name, config, code in (
            ("m", ("interval.ms", SET, "5"), INVALID),
            ("m", ("match", SET, "no=a"), BAD),
            ("m", ("no", SET, "a"), INVALID),
            ("", interval, INVALID),
        ):
            assert (await change(one, CLIENT_METRICS, name, config)).error_code is code
        for kind in (GROUP, CLIENT_METRICS):
            wanted = [{"resource_type": kind, "resource_name": "", "configuration_keys": None}]
            assert (await one(DESCRIBE_CONFIGS, 4, resources=wanted)).results[0].error_code is INVALID

    run(test, 2)


@promise("K6")
def test_list_of_what_has_configs() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        await change(one, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
        await change(one, CLIENT_METRICS, "m", ("interval.ms", SET, "5000"))

        async def names(version: int, *kinds: int) -> list[tuple[int, str]]:
            response = await two(LIST, version, resource_types=kinds)
            assert response.error_code is NONE
            if version == 0:
                return [(CLIENT_METRICS, r.resource_name) for r in response.config_resources]
            return [(r.resource_type, r.resource_name) for r in response.config_resources]

        topics = [(2, "__consumer_offsets"), (2, "__transaction_state"), (2, "t")]
        brokers, groups, metrics = [(4, "1"), (4, "2")], [(32, "g")], [(16, "m")]
        assert await names(0) == metrics
        assert await names(1, GROUP) == groups
        assert await names(1, TOPIC, BROKER) == topics + brokers
        assert await names(1) == [*topics, *brokers, (8, "1"), (8, "2"), *metrics, *groups]
        assert (await two(LIST, 1, resource_types=[99])).error_code is ErrorCode.unsupported_version

    run(test, 2)
