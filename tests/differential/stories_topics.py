"""Stories about topics, partitions, metadata and configs."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.story import Call, Steps, Story, Told, Until, add, call, story

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOBODY = uuid.UUID("12345678-1234-4234-8234-123456789abc")
"""A topic id that no topic has."""


def create(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    version: int | None = None,
    validate: bool = False,
    **more: Any,
) -> Call:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": [], **more}
    return call("create_topics", version, topics=[topic], timeout=10_000, validate_only=validate)


def existing(name: str, partitions: int = 1, **more: Any) -> Steps:
    """Create a topic and wait until everybody knows it; not recorded. Gives the answer of the creation."""
    answer = yield Until(create(name, partitions, **more), lambda _: True, recorded=False)
    parts = [{"partition_index": p, "timestamp": -1, "current_leader_epoch": -1} for p in range(partitions)]
    ends = call("list_offsets", replica_id=-1, topics=[{"name": name, "partitions": parts}])
    yield Until(ends, lambda a: all(p.error_code.value == 0 for p in a.topics[0].partitions), recorded=False)
    return answer


def gone(name: str) -> Until:
    """Metadata that no longer has the topic."""
    return Until(metadata(name), lambda a: not a.topics[0].partitions)


def grown(name: str, partitions: int) -> Until:
    """Metadata that has so many partitions."""
    return Until(metadata(name), lambda a: len(a.topics[0].partitions) == partitions)


def delete(*names: str, version: int | None = None) -> Call:
    topics = [{"name": name, "topic_id": None} for name in names]
    return call("delete_topics", version, topics=topics, topic_names=names, timeout=10_000)


def metadata(*names: str, version: int | None = None, create: bool = False) -> Call:
    topics = [{"name": name, "topic_id": None} for name in names]
    return call("metadata", version, topics=topics, allow_auto_topic_creation=create)


def grow(name: str, count: int, *, validate: bool = False, version: int | None = None, **more: Any) -> Call:
    topic = {"name": name, "count": count, "assignments": None, **more}
    return call("create_partitions", version, topics=[topic], timeout=10_000, validate_only=validate)


def configs(**values: str | None) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


def describe(kind: int, name: str, *keys: str, version: int | None = None, **more: Any) -> Call:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return call("describe_configs", version, resources=[resource], **more)


def described(name: str, *keys: str, kind: int = TOPIC, **values: str) -> Until:
    """Configs of a topic as soon as some of them have these values."""
    wanted = {(key.replace("_", "."), value) for key, value in values.items()}
    return Until(describe(kind, name, *keys), lambda a: wanted <= {(c.name, c.value) for c in a.results[0].configs})


def alter(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, validate: bool = False) -> Call:
    rows = [{"name": n, "config_operation": operation, "value": value} for n, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    return call("incremental_alter_configs", resources=[resource], validate_only=validate)


# --- topics ------------------------------------------------------------------------------------------


def _topic_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield create(told.name(), 3, version=version)
        yield grown(told.name(), 3)
        yield create(told.name(), 3, version=version)
        yield create(told.name("dry"), 2, version=version, validate=True)
        yield metadata(told.name(), told.name("dry"))
        yield delete(told.name(), told.name("dry"))

    return steps


for _version in range(2, 8):
    add(f"create_topics_v{_version}", _topic_in_version(_version))


def _deleted_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield delete(told.name(), told.name("unknown"), version=version)
        yield gone(told.name())

    return steps


for _version in range(1, 7):
    add(f"delete_topics_v{_version}", _deleted_in_version(_version))


def _bad_topic(title: str, **topic: Any) -> None:
    def steps(told: Told) -> Steps:
        wanted = {**topic}
        wanted["name"] = wanted.get("name", told.name())
        answer = yield create(**wanted)
        if answer.topics[0].error_code.value == 0:
            yield grown(wanted["name"], answer.topics[0].num_partitions)
        yield create(**wanted, validate=True)
        if answer.topics[0].name.startswith(told.prefix):
            yield metadata(told.name())

    add(f"create_topic_{title}", steps)


_bad_topic("without_partitions", partitions=0)
_bad_topic("with_negative_partitions", partitions=-2)
_bad_topic("with_default_partitions", partitions=-1, replicas=-1)
_bad_topic("with_no_replicas", replicas=0)
_bad_topic("with_negative_replicas", replicas=-2)
_bad_topic("with_default_replicas", replicas=-1)
_bad_topic("with_an_empty_name", name="")
_bad_topic("named_dot", name=".")
_bad_topic("named_two_dots", name="..")
_bad_topic("with_a_slash", name="a/b")
_bad_topic("with_a_space", name="a b")
_bad_topic("with_a_long_name", name="n" * 250)
_bad_topic("with_an_unknown_config", configs=configs(no_such_config="1"))
_bad_topic("with_a_word_for_a_number", configs=configs(retention_ms="soon"))
_bad_topic("with_a_null_config", configs=configs(retention_ms=None))
_bad_topic("with_a_bad_policy", configs=configs(cleanup_policy="shred"))
_bad_topic("with_a_bad_timestamp_type", configs=configs(message_timestamp_type="Sometime"))
_bad_topic("with_a_config_below_its_range", configs=configs(max_message_bytes="-1"))
_bad_topic("with_retention_below_its_range", configs=configs(retention_ms="-2"))
_bad_topic("with_a_bad_codec", configs=configs(compression_type="rar"))
_bad_topic("with_a_config_twice", configs=configs(retention_ms="1000") * 2)
_bad_topic("with_good_configs", configs=configs(retention_ms="1000", cleanup_policy="compact,delete"))
_bad_topic("with_assignments", partitions=-1, replicas=-1, assignments=[{"partition_index": 0, "broker_ids": [1]}])
_bad_topic("with_assignments_and_a_count", assignments=[{"partition_index": 0, "broker_ids": [1]}])
_bad_topic(
    "with_a_gap_in_assignments", partitions=-1, replicas=-1, assignments=[{"partition_index": 1, "broker_ids": [1]}]
)
_bad_topic(
    "assigned_to_an_unknown_broker",
    partitions=-1, replicas=-1, assignments=[{"partition_index": 0, "broker_ids": [77]}],
)  # fmt: skip


@story
def create_the_same_topic_twice_at_once(told: Told) -> Steps:
    topic = {"name": told.name(), "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    yield call("create_topics", topics=[topic, topic], timeout=10_000, validate_only=False)
    yield metadata(told.name())


@story
def create_several_topics_of_which_one_is_bad(told: Told) -> Steps:
    rows = [(told.name("a"), 1), (told.name("b"), 0), (told.name("c"), 2)]
    topics = [
        {"name": n, "num_partitions": p, "replication_factor": 1, "assignments": [], "configs": []} for n, p in rows
    ]
    yield call("create_topics", topics=topics, timeout=10_000, validate_only=False)
    yield grown(told.name("c"), 2)
    yield metadata(*(name for name, _ in rows))


@story
def delete_by_topic_id(told: Told) -> Steps:
    created = yield from existing(told.name())
    known = created.topics[0].topic_id
    yield call("delete_topics", topics=[{"name": None, "topic_id": NOBODY}], timeout=10_000)
    yield call("delete_topics", topics=[{"name": None, "topic_id": known}], timeout=10_000)
    yield gone(told.name())
    yield call("delete_topics", topics=[{"name": None, "topic_id": known}], timeout=10_000)


@story
def delete_by_name_and_id_at_once(told: Told) -> Steps:
    created = yield from existing(told.name())
    both = {"name": told.name(), "topic_id": created.topics[0].topic_id}
    yield call("delete_topics", topics=[both], timeout=10_000)


@story
def delete_the_same_topic_twice_at_once(told: Told) -> Steps:
    yield from existing(told.name())
    yield delete(told.name(), told.name())


@story
def a_recreated_topic_has_another_id(told: Told) -> Steps:
    yield from existing(told.name())
    yield metadata(told.name())
    yield delete(told.name())
    yield gone(told.name())
    yield from existing(told.name(), 2)
    yield metadata(told.name())


# --- partitions --------------------------------------------------------------------------------------


def _grown_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        yield grow(told.name(), 4, version=version, validate=True)
        yield grow(told.name(), 4, version=version)
        yield grown(told.name(), 4)
        yield grow(told.name(), 4, version=version)
        yield grow(told.name(), 3, version=version)
        yield metadata(told.name())

    return steps


for _version in range(4):
    add(f"create_partitions_v{_version}", _grown_in_version(_version))


@story
def create_partitions_refusals(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    yield grow(told.name("unknown"), 4)
    yield grow(told.name(), 0)
    yield grow(told.name(), -1)
    yield grow(told.name(), 3, assignments=[])
    yield grow(told.name(), 3, assignments=[{"broker_ids": [77]}])
    yield grow(told.name(), 4, assignments=[{"broker_ids": [1]}])
    yield grow(told.name(), 3, assignments=[{"broker_ids": [1, 1]}])
    yield grow(told.name(), 3, assignments=[{"broker_ids": []}])
    topic = {"name": told.name(), "count": 3, "assignments": None}
    yield call("create_partitions", topics=[topic, topic], timeout=10_000, validate_only=False)
    yield metadata(told.name())


# --- metadata ----------------------------------------------------------------------------------------


def _metadata_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), 2)
        yield metadata(told.name(), *[told.name("unknown")] * (version >= 4), version=version)
        if version >= 1:
            yield call("metadata", version, topics=[], allow_auto_topic_creation=False)
        yield metadata("not/valid", version=max(version, 4))

    return steps


for _version in range(14):
    add(f"metadata_v{_version}", _metadata_in_version(_version))


@story
def metadata_of_everything_names_the_topic(told: Told) -> Steps:
    yield from existing(told.name(), 2)
    yield call("metadata", topics=None, allow_auto_topic_creation=False)


@story
def quorums_of_other_topics_are_unknown(told: Told) -> Steps:
    for name, partition in (("__cluster_metadata", 1), (told.name(), 0)):
        yield call("describe_quorum", topics=[{"topic_name": name, "partitions": [{"partition_index": partition}]}])


@story
def metadata_by_topic_id(told: Told) -> Steps:
    created = yield from existing(told.name(), 2)
    for version in (10, 12, 13):
        for topic in (created.topics[0].topic_id, NOBODY):
            yield call("metadata", version, topics=[{"name": None, "topic_id": topic}], allow_auto_topic_creation=False)


@story
def metadata_creates_topics_when_asked(told: Told) -> Steps:
    yield Until(metadata(told.name("auto"), create=True), lambda _: True, recorded=False)
    yield grown(told.name("auto"), 1)
    yield delete(told.name("auto"))


@story
def describe_topic_partitions_in_pages(told: Told) -> Steps:
    yield from existing(told.name("a"), 3)
    yield from existing(told.name("b"), 2)
    topics = [{"name": told.name(n)} for n in ("a", "b", "unknown")]
    yield call("describe_topic_partitions", topics=topics, response_partition_limit=10, cursor=None)
    yield call("describe_topic_partitions", topics=topics, response_partition_limit=2, cursor=None)
    cursor = {"topic_name": told.name("a"), "partition_index": 2}
    yield call("describe_topic_partitions", topics=topics, response_partition_limit=2, cursor=cursor)
    cursor = {"topic_name": told.name("b"), "partition_index": 0}
    yield call("describe_topic_partitions", topics=topics, response_partition_limit=0, cursor=cursor)


# --- configs -----------------------------------------------------------------------------------------


def _described_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), configs=configs(retention_ms="5000"))
        keys = ("retention.ms", "cleanup.policy", "no.such.config")
        for synonyms in (False, True):
            yield describe(TOPIC, told.name(), *keys, version=version, include_synonyms=synonyms)

    return steps


for _version in range(1, 5):
    add(f"describe_configs_v{_version}", _described_in_version(_version))


@story
def describe_configs_refusals(told: Told) -> Steps:
    yield describe(TOPIC, told.name("unknown"))
    yield describe(TOPIC, "not/valid")
    yield describe(TOPIC, "")
    yield describe(BROKER, "not a number")
    yield describe(BROKER, "4711")
    yield describe(99, told.name())


@story
def describe_configs_with_an_empty_list_of_keys(told: Told) -> Steps:
    yield from existing(told.name())
    resource = {"resource_type": TOPIC, "resource_name": told.name(), "configuration_keys": []}
    yield call("describe_configs", resources=[resource], include_synonyms=False, include_documentation=False)


@story
def configs_about_files_and_replicas(told: Told) -> Steps:
    made = configs(segment_bytes="2000000", segment_ms="7", flush_messages="9", min_insync_replicas="2")
    yield create(told.name(), configs=made)
    yield described(told.name(), segment_ms="7")
    for name, values in {
        "segment.bytes": ("1048576", "1048575", "2147483648"),
        "segment.ms": ("1", "0"),
        "segment.index.bytes": ("4", "3"),
        "segment.jitter.ms": ("0", "-1"),
        "flush.messages": ("1", "0"),
        "flush.ms": ("0", "-1"),
        "index.interval.bytes": ("0", "-1"),
        "file.delete.delay.ms": ("0", "-1"),
        "local.retention.ms": ("-2", "-3"),
        "local.retention.bytes": ("-2", "-3"),
        "min.insync.replicas": ("1", "0"),
        "preallocate": ("true", "yes"),
        "unclean.leader.election.enable": ("true", "1"),
        "remote.log.copy.disable": ("true", "1"),
        "remote.storage.enable": ("true", "false"),
        "follower.replication.throttled.replicas": ("0:1,1:1", "*", "0:1,2", "all", ""),
    }.items():
        for value in values:
            yield alter(told.name(), (name, SET, value), validate=True)
    yield alter(told.name(), ("leader.replication.throttled.replicas", APPEND, "0:1"))
    yield described(told.name(), leader_replication_throttled_replicas="0:1")


@story
def defaults_of_topics_are_checked(told: Told) -> Steps:
    """Only tried: other stories look at topics without configs of their own at the same time."""
    for name, values in {
        "log.retention.ms": ("5", "-1", "x"),
        "log.retention.bytes": ("5",),
        "message.max.bytes": ("0", "-1"),
        "compression.type": ("zstd", "rar"),
        "log.message.timestamp.type": ("LogAppendTime", "never"),
        "log.cleanup.policy": ("compact,delete", "shred"),
        "log.segment.bytes": ("2000000", "5"),
        "log.flush.interval.messages": ("1", "0"),
    }.items():
        for value in values:
            yield alter("", (name, SET, value), kind=BROKER, validate=True)
    yield alter("", ("log.cleanup.policy", APPEND, "compact"), kind=BROKER, validate=True)
    yield alter("", ("log.retention.ms", APPEND, "5"), kind=BROKER, validate=True)
    yield alter("", ("log.retention.ms", DELETE, None), kind=BROKER, validate=True)


@story
def set_and_remove_configs(told: Told) -> Steps:
    yield from existing(told.name(), configs=configs(retention_ms="5000"))
    keys = ("retention.ms", "cleanup.policy", "max.message.bytes")
    yield alter(told.name(), ("retention.ms", SET, "7000"), ("max.message.bytes", SET, "2000"), validate=True)
    yield describe(TOPIC, told.name(), *keys)
    yield alter(told.name(), ("retention.ms", SET, "7000"), ("max.message.bytes", SET, "2000"))
    yield described(told.name(), *keys, retention_ms="7000")
    yield alter(told.name(), ("retention.ms", DELETE, None))
    yield alter(told.name(), ("retention.ms", DELETE, None))
    yield described(told.name(), *keys, retention_ms="604800000")


@story
def append_to_and_subtract_from_a_list_config(told: Told) -> Steps:
    yield from existing(told.name())
    yield alter(told.name(), ("cleanup.policy", APPEND, "compact"))
    yield described(told.name(), "cleanup.policy", cleanup_policy="delete,compact")
    yield alter(told.name(), ("cleanup.policy", APPEND, "compact"))
    yield alter(told.name(), ("cleanup.policy", SUBTRACT, "delete"))
    yield described(told.name(), "cleanup.policy", cleanup_policy="compact")
    yield alter(told.name(), ("cleanup.policy", SUBTRACT, "delete"))
    yield alter(told.name(), ("cleanup.policy", SUBTRACT, "compact"))
    yield described(told.name(), "cleanup.policy", cleanup_policy="")


def _bad_change(name: str, *changes: tuple[str, int, str | None]) -> None:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        yield alter(told.name(), *changes, validate=True)
        yield alter(told.name(), *changes)
        yield describe(TOPIC, told.name(), "retention.ms", "cleanup.policy")

    add(f"alter_configs_{name}", steps)


_bad_change("unknown_name", ("no.such.config", SET, "1"))
_bad_change("remove_an_unknown_name", ("no.such.config", DELETE, None))
_bad_change("empty_name", ("", SET, "1"))
_bad_change("bad_number", ("retention.ms", SET, "soon"))
_bad_change("null_value", ("retention.ms", SET, None))
_bad_change("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
_bad_change("append_to_a_number", ("retention.ms", APPEND, "1"))
_bad_change("unknown_operation", ("retention.ms", 9, "1"))
_bad_change("one_good_one_bad", ("retention.ms", SET, "9000"), ("cleanup.policy", SET, "shred"))
_bad_change("nothing_at_all")


@story
def alter_configs_of_unknown_things(told: Told) -> Steps:
    yield alter(told.name("unknown"), ("retention.ms", SET, "1"))
    yield alter("not/valid", ("retention.ms", SET, "1"))
    yield alter("", ("retention.ms", SET, "1"))
    yield alter(told.name(), ("retention.ms", SET, "1"), kind=99)
    yield alter("4711", ("log.retention.ms", SET, "1"), kind=BROKER)
    yield alter("word", ("log.retention.ms", SET, "1"), kind=BROKER)


@story
def alter_the_same_resource_twice_at_once(told: Told) -> Steps:
    yield from existing(told.name())
    rows = [{"name": "retention.ms", "config_operation": SET, "value": "1"}]
    resource = {"resource_type": TOPIC, "resource_name": told.name(), "configs": rows}
    yield call("incremental_alter_configs", resources=[resource, resource], validate_only=False)
    yield describe(TOPIC, told.name(), "retention.ms")


def _replaced_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name(), configs=configs(retention_ms="5000", max_message_bytes="2000"))

        def replace(**values: str | None) -> Call:
            resource = {"resource_type": TOPIC, "resource_name": told.name(), "configs": configs(**values)}
            return call("alter_configs", version, resources=[resource], validate_only=False)

        yield replace(retention_ms="6000")
        yield described(told.name(), "retention.ms", "max.message.bytes", retention_ms="6000")
        yield replace(retention_ms="soon")
        yield replace(no_such_config="1")
        yield replace(retention_ms=None)
        yield replace()
        yield described(told.name(), "retention.ms", "max.message.bytes", retention_ms="604800000")

    return steps


for _version in range(3):
    add(f"alter_configs_v{_version}", _replaced_in_version(_version))


@story
def group_configs(told: Told) -> Steps:
    group = told.name("g")
    keys = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    yield describe(GROUP, group, *keys)
    yield alter(group, ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP)
    yield described(group, *keys, kind=GROUP, consumer_session_timeout_ms="50000")
    yield alter(group, ("consumer.session.timeout.ms", SET, "1"), kind=GROUP)
    yield alter(group, ("consumer.session.timeout.ms", SET, "99999999"), kind=GROUP)
    yield alter(group, ("no.such.config", SET, "1"), kind=GROUP)
    yield alter("", ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP)
    yield alter(group, ("consumer.session.timeout.ms", DELETE, None), kind=GROUP)
    yield described(group, *keys, kind=GROUP, consumer_session_timeout_ms="45000")
