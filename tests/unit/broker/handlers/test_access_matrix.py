"""Every API without the permission it needs answers Kafka's code and leaks nothing; with it, it does its work."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.handlers.groups.consumer_groups import HIDDEN_TOPICS
from headwater.broker.registry import APIS
from headwater.configs.topics import DLQ_SETTER, DLQ_TOPIC, KEY_SCHEMA, VALUE_SCHEMA
from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.settings.settings import Groups, Security, Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation, Pattern, Permission
from headwater.state.commands.access import Acl, DropAcls, PutAcls
from headwater.wire.messages import encode_response
from tests.support.batches import Rec, batch
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.unit.broker.calling import create

PROMISES = ("S2",)

HERE, NOWHERE = "topic-one", "topic-two"
"""Names of the same length, one of a topic that exists."""
NAMES = {"topic": (HERE, NOWHERE)}
SETTING = (Operation.CREATE, Operation.ALTER_CONFIGS)
SETTINGS = Settings(
    objects="memory://",
    security=Security(acls=True, super_users="User:root"),
    groups=Groups(consumer_assignment_interval_ms=0),
)
TOPIC, CLUSTER, TRANSACTION = AclResource.TOPIC, AclResource.CLUSTER, AclResource.TRANSACTIONAL_ID
GROUP, GROUP_FAILED = AclResource.GROUP, ErrorCode.group_authorization_failed
TOPIC_FAILED, CLUSTER_FAILED = ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed
TRANSACTION_FAILED = ErrorCode.transactional_id_authorization_failed
NO_MAPPING = ErrorCode.invalid_producer_id_mapping
Grant = tuple[Operation, AclResource]
TRANSACTIONAL = batch([Rec(b"x")], attributes=TRANSACTIONAL_BIT, producer=(7, 0, 0))
"""A batch of a producer that no transactional id has."""


@dataclass(frozen=True)
class Row:
    """An API's request about a topic, the permissions each of which is enough, and what is said without."""

    version: int
    fields: Callable[[str], dict[str, Any]]
    grants: Sequence[Grant]
    denied: ErrorCode
    code: Callable[[Any], ErrorCode]
    label: str = ""
    also: Sequence[Grant] = ()
    """What else the request needs, about the topic that exists."""
    then: ErrorCode = ErrorCode.none
    """What is said to those who may ask."""


def _acl_filter(name: str) -> dict[str, Any]:
    return {"resource_type_filter": 2, "resource_name_filter": name, "pattern_type_filter": 3, "principal_filter": None,
            "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip


def _resource(name: str, kind: int = 2) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


def _partition(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "topic": name, "partitions": [{"partition_index": 0, "partition": 0, **fields}]}]


V3 = "v3_and_below_"


def _txn(prefix: str = "", **fields: Any) -> dict[str, Any]:
    """The fields of a producer that nobody has started."""
    return {f"{prefix}transactional_id": "tx", f"{prefix}producer_id": 7, f"{prefix}producer_epoch": 0, **fields}


def _added(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


def _staged(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


MATRIX: dict[int, list[Row]] = {
    0: [
        Row(9, lambda t: {"acks": -1, "timeout": 5000, "topic_data": [
            {"name": t, "partition_data": [{"index": 0, "records": batch([Rec(b"x")])}]}]},
            [(Operation.WRITE, TOPIC)], TOPIC_FAILED, lambda r: r.responses[0].partition_responses[0].error_code),
        Row(9, lambda t: {"acks": -1, "timeout": 5000, "transactional_id": "tx", "topic_data": [
            {"name": t, "partition_data": [{"index": 0, "records": TRANSACTIONAL}]}]},
            [(Operation.WRITE, TRANSACTION)], ErrorCode.transactional_id_authorization_failed,
            lambda r: r.responses[0].partition_responses[0].error_code, "transactional", [(Operation.WRITE, TOPIC)],
            ErrorCode.invalid_producer_id_mapping),
    ],
    1: [Row(11, lambda t: {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1,
                           "topics": _partition(t, fetch_offset=0, partition_max_bytes=1000)},
            [(Operation.READ, TOPIC)], TOPIC_FAILED, lambda r: r.responses[0].partitions[0].error_code)],
    2: [Row(7, lambda t: {"topics": _partition(t, timestamp=-1)}, [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED,
            lambda r: r.topics[0].partitions[0].error_code)],
    3: [Row(12, lambda t: {"topics": [{"name": t, "topic_id": None}], "allow_auto_topic_creation": False},
            [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED, lambda r: r.topics[0].error_code)],
    8: [
        Row(8, lambda g: {"group_id": g, "generation_id_or_member_epoch": -1, "member_id": "",
                          "topics": [{"name": HERE, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]},
            [(Operation.READ, GROUP)], GROUP_FAILED, lambda r: r.topics[0].partitions[0].error_code,
            also=[(Operation.READ, TOPIC)]),
        Row(8, lambda t: {"group_id": HERE, "generation_id_or_member_epoch": -1, "member_id": "",
                          "topics": [{"name": t, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]},
            [(Operation.READ, TOPIC)], TOPIC_FAILED, lambda r: r.topics[0].partitions[0].error_code, "topic",
            also=[(Operation.READ, GROUP)]),
    ],
    9: [
        Row(8, lambda g: {"groups": [{"group_id": g, "topics": None}]}, [(Operation.DESCRIBE, GROUP)], GROUP_FAILED,
            lambda r: r.groups[0].error_code),
        Row(8, lambda t: {"groups": [{"group_id": HERE, "topics": [{"name": t, "partition_indexes": [0]}]}]},
            [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED, lambda r: r.groups[0].topics[0].partitions[0].error_code,
            "topic", also=[(Operation.DESCRIBE, GROUP)]),
    ],
    10: [
        Row(4, lambda g: {"key_type": 0, "coordinator_keys": [g]}, [(Operation.DESCRIBE, GROUP)], GROUP_FAILED,
            lambda r: r.coordinators[0].error_code),
        Row(4, lambda t: {"key_type": 1, "coordinator_keys": ["tx"]}, [(Operation.DESCRIBE, TRANSACTION)],
            ErrorCode.transactional_id_authorization_failed, lambda r: r.coordinators[0].error_code, "transactional"),
    ],
    11: [Row(5, lambda g: {"group_id": g, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
                           "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]},
             [(Operation.READ, GROUP)], GROUP_FAILED, lambda r: r.error_code, then=ErrorCode.member_id_required)],
    12: [Row(3, lambda g: {"group_id": g, "generation_id": 1, "member_id": "m"}, [(Operation.READ, GROUP)],
             GROUP_FAILED, lambda r: r.error_code, then=ErrorCode.unknown_member_id)],
    13: [Row(3, lambda g: {"group_id": g, "members": []}, [(Operation.READ, GROUP)], GROUP_FAILED,
             lambda r: r.error_code)],
    14: [Row(3, lambda g: {"group_id": g, "generation_id": 1, "member_id": "m", "assignments": []},
             [(Operation.READ, GROUP)], GROUP_FAILED, lambda r: r.error_code, then=ErrorCode.unknown_member_id)],
    15: [Row(5, lambda g: {"groups": [g]}, [(Operation.DESCRIBE, GROUP)], GROUP_FAILED,
             lambda r: r.groups[0].error_code)],
    42: [Row(2, lambda g: {"groups_names": [g]}, [(Operation.DELETE, GROUP)], GROUP_FAILED,
             lambda r: r.results[0].error_code, then=ErrorCode.group_id_not_found)],
    47: [Row(0, lambda g: {"group_id": g, "topics": []}, [(Operation.DELETE, GROUP)], GROUP_FAILED,
             lambda r: r.error_code, then=ErrorCode.group_id_not_found)],
    68: [
        Row(1, lambda g: {"group_id": g, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000,
                          "subscribed_topic_names": [HERE], "topic_partitions": []},
            [(Operation.READ, GROUP)], GROUP_FAILED, lambda r: r.error_code, also=[(Operation.DESCRIBE, TOPIC)]),
        Row(1, lambda t: {"group_id": HERE, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000,
                          "subscribed_topic_names": [t], "topic_partitions": []},
            [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED, lambda r: r.error_code, "topic",
            also=[(Operation.READ, GROUP)]),
    ],
    69: [Row(1, lambda g: {"group_ids": [g]}, [(Operation.DESCRIBE, GROUP)], GROUP_FAILED,
             lambda r: r.groups[0].error_code, then=ErrorCode.group_id_not_found)],
    34: [Row(2, lambda t: {"dirs": [{"path": "nowhere", "topics": [{"name": t, "partitions": [0]}]}]},
             [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED, lambda r: r.results[0].partitions[0].error_code,
             then=ErrorCode.log_dir_not_found)],
    35: [Row(4, lambda t: {"topics": None}, [(Operation.DESCRIBE, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    43: [Row(2, lambda t: {"election_type": 0, "topic_partitions": []}, [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED,
             lambda r: r.error_code)],
    45: [Row(0, lambda t: {"topics": []}, [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    46: [Row(0, lambda t: {"topics": None}, [(Operation.DESCRIBE, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    48: [Row(1, lambda t: {"components": [], "strict": False}, [(Operation.DESCRIBE_CONFIGS, CLUSTER)],
             CLUSTER_FAILED, lambda r: r.error_code)],
    49: [Row(1, lambda t: {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [
            {"key": "producer_byte_rate", "value": 1.0, "remove": False}]}], "validate_only": True},
             [(Operation.ALTER_CONFIGS, CLUSTER)], CLUSTER_FAILED, lambda r: r.entries[0].error_code)],
    55: [Row(2, lambda t: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
             [(Operation.DESCRIBE, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    57: [Row(1, lambda t: {"feature_updates": [], "validate_only": True}, [(Operation.ALTER, CLUSTER)],
             CLUSTER_FAILED, lambda r: r.error_code)],
    61: [Row(0, lambda t: {"topics": [{"name": t, "partition_indexes": [0]}]}, [(Operation.READ, TOPIC)],
             TOPIC_FAILED, lambda r: r.topics[0].partitions[0].error_code)],
    74: [Row(1, lambda t: {"resource_types": []}, [(Operation.DESCRIBE_CONFIGS, CLUSTER)], CLUSTER_FAILED,
             lambda r: r.error_code)],
    19: [Row(7, lambda t: {"topics": [{"name": t, "num_partitions": 1, "replication_factor": 1}], "timeout": 1000},
             [(Operation.CREATE, TOPIC), (Operation.CREATE, CLUSTER)], TOPIC_FAILED, lambda r: r.topics[0].error_code)],
    20: [Row(6, lambda t: {"topics": [{"name": t, "topic_id": None}], "timeout": 1000},
             [(Operation.DELETE, TOPIC), (Operation.DELETE, CLUSTER)], TOPIC_FAILED,
             lambda r: r.responses[0].error_code)],
    21: [Row(2, lambda t: {"topics": _partition(t, offset=0), "timeout": 1000}, [(Operation.DELETE, TOPIC)],
             TOPIC_FAILED, lambda r: r.topics[0].partitions[0].error_code)],
    22: [
        Row(4, lambda t: {"transactional_id": None, "transaction_timeout": 0},
            [(Operation.IDEMPOTENT_WRITE, CLUSTER), (Operation.WRITE, TOPIC)], CLUSTER_FAILED, lambda r: r.error_code),
        Row(4, lambda t: {"transactional_id": "tx", "transaction_timeout": 0}, [(Operation.WRITE, TRANSACTION)],
            ErrorCode.transactional_id_authorization_failed, lambda r: r.error_code, "transactional"),
    ],
    24: [
        Row(3, lambda t: _txn(V3, v3_and_below_topics=[{"name": HERE, "partitions": [0]}]),
            [(Operation.WRITE, TRANSACTION)], TRANSACTION_FAILED, _added, also=[(Operation.WRITE, TOPIC)],
            then=NO_MAPPING),
        Row(3, lambda t: _txn(V3, v3_and_below_topics=[{"name": t, "partitions": [0]}]),
            [(Operation.WRITE, TOPIC)], TOPIC_FAILED, _added, "topic", also=[(Operation.WRITE, TRANSACTION)],
            then=NO_MAPPING),
        Row(4, lambda t: {"transactions": []}, [(Operation.CLUSTER_ACTION, CLUSTER)], CLUSTER_FAILED,
            lambda r: r.error_code, "brokers"),
    ],
    25: [
        Row(4, lambda g: _txn(group_id=HERE), [(Operation.WRITE, TRANSACTION)], TRANSACTION_FAILED,
            lambda r: r.error_code, also=[(Operation.READ, GROUP)], then=NO_MAPPING),
        Row(4, lambda g: _txn(group_id=g), [(Operation.READ, GROUP)], GROUP_FAILED,
            lambda r: r.error_code, "group", also=[(Operation.WRITE, TRANSACTION)], then=NO_MAPPING),
    ],
    26: [Row(5, lambda t: _txn(committed=True), [(Operation.WRITE, TRANSACTION)], TRANSACTION_FAILED,
             lambda r: r.error_code, then=NO_MAPPING)],
    28: [
        Row(5, lambda t: _txn(group_id=HERE, topics=_partition(t, committed_offset=1)),
            [(Operation.WRITE, TRANSACTION)], TRANSACTION_FAILED, _staged,
            also=[(Operation.READ, GROUP), (Operation.READ, TOPIC)], then=NO_MAPPING),
        Row(5, lambda g: _txn(group_id=g, topics=_partition(HERE, committed_offset=1)), [(Operation.READ, GROUP)],
            GROUP_FAILED, _staged, "group", also=[(Operation.WRITE, TRANSACTION), (Operation.READ, TOPIC)],
            then=NO_MAPPING),
        Row(5, lambda t: _txn(group_id=HERE, topics=_partition(t, committed_offset=1)), [(Operation.READ, TOPIC)],
            TOPIC_FAILED, _staged, "topic", also=[(Operation.WRITE, TRANSACTION), (Operation.READ, GROUP)],
            then=NO_MAPPING),
    ],
    65: [Row(0, lambda t: {"transactional_ids": ["tx"]}, [(Operation.DESCRIBE, TRANSACTION)], TRANSACTION_FAILED,
             lambda r: r.transaction_states[0].error_code, then=ErrorCode.transactional_id_not_found)],
    23: [Row(4, lambda t: {"topics": _partition(t, leader_epoch=0, current_leader_epoch=-1)},
             [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED, lambda r: r.topics[0].partitions[0].error_code)],
    29: [Row(3, _acl_filter, [(Operation.DESCRIBE, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    30: [Row(3, lambda t: {"creations": [{"resource_type": 2, "resource_name": t, "resource_pattern_type": 3,
                                          "principal": "User:z", "host": "*", "operation": 3, "permission_type": 3}]},
             [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED, lambda r: r.results[0].error_code)],
    31: [Row(3, lambda t: {"filters": [_acl_filter(t)]}, [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED,
             lambda r: r.filter_results[0].error_code)],
    32: [
        Row(4, lambda t: {"resources": [{**_resource(t), "configuration_keys": None}]},
            [(Operation.DESCRIBE_CONFIGS, TOPIC)], TOPIC_FAILED, lambda r: r.results[0].error_code),
        Row(4, lambda t: {"resources": [{**_resource("1", 4), "configuration_keys": None}]},
            [(Operation.DESCRIBE_CONFIGS, CLUSTER)], CLUSTER_FAILED, lambda r: r.results[0].error_code, "broker"),
    ],
    33: [Row(2, lambda t: {"resources": [{**_resource(t), "configs": []}], "validate_only": True},
             [(Operation.ALTER_CONFIGS, TOPIC)], TOPIC_FAILED, lambda r: r.responses[0].error_code)],
    37: [Row(3, lambda t: {"topics": [{"name": t, "count": 2, "assignments": None}], "timeout": 1000,
                           "validate_only": True},
             [(Operation.ALTER, TOPIC)], TOPIC_FAILED, lambda r: r.results[0].error_code)],
    44: [Row(1, lambda t: {"resources": [{**_resource(t), "configs": []}], "validate_only": True},
             [(Operation.ALTER_CONFIGS, TOPIC)], TOPIC_FAILED, lambda r: r.responses[0].error_code)],
    50: [Row(0, lambda t: {"users": None}, [(Operation.DESCRIBE, CLUSTER)], CLUSTER_FAILED, lambda r: r.error_code)],
    51: [Row(0, lambda t: {"deletions": [], "upsertions": [
            {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}]},
             [(Operation.ALTER, CLUSTER)], CLUSTER_FAILED, lambda r: r.results[0].error_code)],
    75: [Row(0, lambda t: {"topics": [{"name": t}], "response_partition_limit": 10, "cursor": None},
             [(Operation.DESCRIBE, TOPIC)], TOPIC_FAILED, lambda r: r.topics[0].error_code)],
}  # fmt: skip

FOR_EVERYBODY = {
    16: "it shows the groups that may be described; see the test of that",
    66: "it shows the transactional ids that may be described; see the test of that",
    17: "it comes before it is known who it is",
    18: "clients ask before they log in",
    36: "it comes before it is known who it is",
    71: "clients tell about themselves; Kafka wants no permission for that",
    72: "clients tell about themselves; Kafka wants no permission for that",
    60: "whoever may connect may know where the brokers are; see the test of authorized operations",
}

ROWS = [
    pytest.param(key, row, id=f"{APIS[key].name if key in APIS else key}{row.label and '-' + row.label}")
    for key, rows in MATRIX.items()
    for row in rows
]


def run(test: Callable[..., Awaitable[None]], settings: Settings = SETTINGS) -> None:
    async def main() -> None:
        async with cluster(1, settings) as [root]:
            root.principal = "User:root"
            guest = Caller(root.node)
            guest.principal = "User:guest"
            created = await root(19, 7, topics=[{"name": HERE, "num_partitions": 1, "replication_factor": 1}])
            assert created.topics[0].error_code is ErrorCode.none
            async with asyncio.timeout(30):
                await test(root, guest)

    asyncio.run(main())


def rule(
    grant: Grant, permission: Permission = Permission.ALLOW, name: str = HERE, principal: str = "User:guest"
) -> Acl:
    operation, kind = grant
    names = {CLUSTER: THE_CLUSTER, TRANSACTION: "tx"}
    return Acl(kind, names.get(kind, name), Pattern.LITERAL, principal, "*", operation, permission)


async def put(node: Caller, *acls: Acl) -> None:
    await node.node.cluster.submit([PutAcls(acls)])


async def drop(node: Caller, *acls: Acl) -> None:
    await node.node.cluster.submit([DropAcls(acls)])


@promise("S2")
def test_every_api_is_in_the_matrix() -> None:
    """An API that is added without saying who may call it fails here."""
    assert set(APIS) == set(MATRIX) | set(FOR_EVERYBODY)


@promise("S2")
@pytest.mark.parametrize(("key", "row"), ROWS)
def test_each_missing_permission(key: int, row: Row) -> None:
    """No rule, somebody else's rule, another operation's, or one that denies: always the same code."""

    async def test(root: Caller, guest: Caller) -> None:
        async def asked() -> ErrorCode:
            return row.code(await guest(key, row.version, **row.fields(HERE)))

        await put(root, *map(rule, row.also))
        assert await asked() is row.denied
        others = [rule(grant, principal="User:other") for grant in row.grants]
        unrelated = [rule((Operation.ALTER_CONFIGS, CLUSTER)), rule((Operation.CLUSTER_ACTION, CLUSTER))]
        if row.grants[0] == (Operation.CLUSTER_ACTION, CLUSTER):
            unrelated = unrelated[:1]
        if row.grants[0] in [(Operation.DESCRIBE_CONFIGS, CLUSTER), (Operation.ALTER_CONFIGS, CLUSTER)]:
            unrelated = unrelated[1:]  # ALTER_CONFIGS allows that too
        await put(root, *others, *unrelated)
        assert await asked() is row.denied
        for grant in row.grants:
            await put(root, rule(grant), rule(grant, Permission.DENY))
            assert await asked() is row.denied
            await drop(root, rule(grant), rule(grant, Permission.DENY))
        assert await asked() is row.denied

    run(test)


@promise("S2")
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("key", "row"), ROWS)
def test_each_permission_is_enough(key: int, row: Row, which: int) -> None:
    """What was refused goes with exactly the permission that the matrix names."""

    async def test(root: Caller, guest: Caller) -> None:
        await put(root, rule(row.grants[which % len(row.grants)]), *map(rule, row.also))
        code = row.code(await guest(key, row.version, **row.fields(HERE)))
        expected = {
            (19, ""): ErrorCode.topic_already_exists,
            (22, "transactional"): ErrorCode.invalid_transaction_timeout,
        }
        assert code is expected.get((key, row.label), row.then)

    run(test)


@promise("S2")
@pytest.mark.parametrize(("key", "row"), ROWS)
def test_what_is_forbidden_looks_the_same_whether_it_exists_or_not(key: int, row: Row) -> None:
    """Byte for byte, but for the name that was asked for."""

    async def test(root: Caller, guest: Caller) -> None:
        async def frame(name: str) -> bytes:
            guest_answer: Any = await guest.values(key, row.version, **row.fields(name))
            told = b"".join(encode_response(key, row.version, 7, guest_answer))
            return told.replace(HERE.encode(), b"?").replace(NOWHERE.encode(), b"?")

        assert await frame(HERE) == await frame(NOWHERE)

    run(test)


@promise("S2")
@pytest.mark.parametrize(
    ("config", "value", "needs"),
    [
        (DLQ_TOPIC, "letters", [("topic", Operation.READ), ("letters", Operation.WRITE)]),
        (VALUE_SCHEMA, "subject:secret-value", [("secret", Operation.READ)]),
        (KEY_SCHEMA, "subject:secret-value", [("secret", Operation.WRITE)]),
        (VALUE_SCHEMA, "subject:secret", [(THE_CLUSTER, Operation.DESCRIBE)]),
    ],
)
def test_what_a_config_makes_the_server_do_needs_its_rights(
    config: str, value: str, needs: list[tuple[str, Operation]]
) -> None:
    """By each of the three APIs that set configs of topics, and if they only check."""

    async def test(root: Caller, guest: Caller) -> None:
        await put(root, *[rule((one, TOPIC), name=name) for one in SETTING for name in (HERE, NOWHERE)])
        if config == DLQ_TOPIC:
            await create(root, value)
        state, given = root.node.cluster.state, {"name": config, "value": value}

        async def asked(*, dry: bool) -> list[ErrorCode]:
            at = {"resource_type": 2, "resource_name": HERE, "configs": [given]}
            made = {"name": NOWHERE, "num_partitions": 1, "replication_factor": 1, "configs": [given]}
            changed = {**at, "configs": [{**given, "config_operation": 0}]}
            found = [(await guest(44, 1, resources=[changed], validate_only=dry)).responses[0].error_code]
            if not dry:
                await root(33, 2, resources=[{**at, "configs": []}], validate_only=False)
            found.append((await guest(33, 2, resources=[at], validate_only=dry)).responses[0].error_code)
            return [*found, (await guest(19, 7, topics=[made], timeout=1000, validate_only=dry)).topics[0].error_code]

        for name, operation in needs:
            for dry in (True, False):
                assert await asked(dry=dry) == [TOPIC_FAILED] * 3
            assert state.names[HERE].configs == {} and NOWHERE not in state.names
            kind = CLUSTER if name == THE_CLUSTER else TOPIC
            await put(root, *[rule((operation, kind), name=one) for one in NAMES.get(name, (name,))])
        for dry in (True, False):
            assert await asked(dry=dry) == [ErrorCode.none] * 3
        kept = {config: value, **({DLQ_SETTER: f"{guest.host} User:guest"} if config == DLQ_TOPIC else {})}
        assert state.names[HERE].configs == state.names[NOWHERE].configs == kept

    run(test)


@promise("K9", "S2")
def test_a_regular_expression_shows_nothing() -> None:
    """Neither an assignment nor the description of a group tells of a topic that may not be described."""

    async def test(root: Caller, guest: Caller) -> None:
        beat = {"group_id": "g", "member_epoch": 0, "rebalance_timeout": 1000, "subscribed_topic_names": [],
                "subscribed_topic_regex": "topic-.*", "topic_partitions": []}  # fmt: skip

        async def given(who: Caller, name: str, **fields: Any) -> list[Any]:
            answer = await who(68, 1, **{**beat, "member_id": name, **fields})
            assert answer.error_code is ErrorCode.none, answer.error_message
            return list(answer.assignment.topic_partitions)

        async def described(who: Caller) -> Any:
            [group] = (await who(69, 1, group_ids=["g"], include_authorized_operations=True)).groups
            return group

        await put(root, rule((Operation.READ, GROUP), name="g"))
        assert await given(guest, "low") == []
        assert (await described(guest)).error_code is ErrorCode.none
        assert len(await given(root, "high")) == 1
        assert await given(guest, "low") == []
        hidden = await described(guest)
        assert (hidden.error_code, hidden.members, hidden.group_state) == (TOPIC_FAILED, (), "")
        assert hidden.error_message == HIDDEN_TOPICS and HERE not in str(hidden)
        assert {m.member_id for m in (await described(root)).members} == {"low", "high"}
        await root(68, 1, **{**beat, "member_id": "high", "member_epoch": -1})
        await put(root, rule((Operation.DESCRIBE, TOPIC)))
        assert (await described(guest)).error_code is ErrorCode.none
        assert len(await given(guest, "low")) == 1
        await drop(root, rule((Operation.DESCRIBE, TOPIC)))
        assert await given(guest, "low") == []

    run(test)


@promise("K2", "S2")
def test_lists_of_topics_show_only_what_may_be_described() -> None:
    """Metadata and DescribeTopicPartitions of everything hide the rest."""

    async def test(root: Caller, guest: Caller) -> None:
        await root(19, 7, topics=[{"name": "mine", "num_partitions": 1, "replication_factor": 1}])
        assert (await guest(3, 12, topics=None)).topics == ()
        assert (await guest(75, 0, topics=[], response_partition_limit=10, cursor=None)).topics == ()
        await put(root, rule((Operation.WRITE, TOPIC), name="mine"))
        assert [t.name for t in (await guest(3, 12, topics=None)).topics] == ["mine"]
        told = await guest(75, 0, topics=[], response_partition_limit=10, cursor=None)
        assert [t.name for t in told.topics] == ["mine"]
        shown = (await root(3, 12, topics=None)).topics
        assert len([t for t in shown if not t.is_internal]) == 2

    run(test)


@promise("K2", "S2")
def test_by_id_a_forbidden_topic_tells_no_name() -> None:
    """Ids are no secret, names are."""

    async def test(root: Caller, guest: Caller) -> None:
        topic = root.node.cluster.state.names[HERE].id
        told = (await guest(3, 12, topics=[{"name": None, "topic_id": topic}])).topics[0]
        assert (told.error_code, told.name) == (TOPIC_FAILED, None)
        unknown = (await guest(3, 12, topics=[{"name": None, "topic_id": uuid.uuid4()}])).topics[0]
        assert unknown.error_code is ErrorCode.unknown_topic_id
        fetched = await guest(
            1, 16, max_wait=0, min_bytes=1, max_bytes=1000, session_epoch=-1,
            topics=[{"topic_id": topic, "partitions": [{"partition": 0, "fetch_offset": 0}]}],
        )  # fmt: skip
        assert fetched.responses[0].partitions[0].error_code is TOPIC_FAILED
        assert not fetched.responses[0].partitions[0].records
        produced = await guest(0, 13, acks=-1, timeout=5000, topic_data=[
            {"topic_id": topic, "partition_data": [{"index": 0, "records": batch([Rec(b"x")])}]}])  # fmt: skip
        assert produced.responses[0].partition_responses[0].error_code is TOPIC_FAILED
        deleted = (await guest(20, 6, topics=[{"name": None, "topic_id": topic}], timeout=1000)).responses[0]
        assert (deleted.error_code, deleted.name, deleted.topic_id) == (TOPIC_FAILED, None, topic)
        await put(root, rule((Operation.DESCRIBE, TOPIC)))
        deleted = (await guest(20, 6, topics=[{"name": None, "topic_id": topic}], timeout=1000)).responses[0]
        assert (deleted.error_code, deleted.name) == (TOPIC_FAILED, HERE)
        assert HERE in root.node.cluster.state.names

    run(test)


@promise("K2", "S2")
def test_creating_on_the_way_needs_create() -> None:
    """DESCRIBE alone creates nothing; CREATE on the topic or the cluster does."""

    async def test(root: Caller, guest: Caller) -> None:
        await put(root, rule((Operation.DESCRIBE, TOPIC), name="new"))

        async def ask() -> ErrorCode:
            answer = await guest(3, 12, topics=[{"name": "new", "topic_id": None}], allow_auto_topic_creation=True)
            return answer.topics[0].error_code

        assert await ask() is TOPIC_FAILED
        assert "new" not in root.node.cluster.state.names
        await put(root, rule((Operation.CREATE, TOPIC), name="new"))
        assert await ask() is ErrorCode.unknown_topic_or_partition
        assert await ask() is ErrorCode.none

    run(test)


@promise("S2")
def test_authorized_operations() -> None:
    """Told where they are asked for, and only to those who may know."""

    async def test(root: Caller, guest: Caller) -> None:
        fields = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        topics = [{"name": HERE, "topic_id": None}]
        told = await guest(3, 10, topics=topics, allow_auto_topic_creation=False, **fields)
        assert told.cluster_authorized_operations == 0
        assert (await guest(60, 1, include_cluster_authorized_operations=True, endpoint_type=1)
                ).cluster_authorized_operations == 0  # fmt: skip
        await put(root, rule((Operation.READ, TOPIC)), rule((Operation.DESCRIBE, CLUSTER)))
        told = await guest(3, 10, topics=topics, allow_auto_topic_creation=False, **fields)
        assert told.topics[0].topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
        assert told.cluster_authorized_operations == 1 << Operation.DESCRIBE
        unasked = await guest(3, 10, topics=topics, allow_auto_topic_creation=False)
        assert unasked.topics[0].topic_authorized_operations == -(1 << 31)
        assert unasked.cluster_authorized_operations == -(1 << 31)
        everything = await root(60, 1, include_cluster_authorized_operations=True, endpoint_type=1)
        assert everything.cluster_authorized_operations == sum(
            1 << o for o in Operation if o in (5, 7, 8, 9, 10, 11, 12)
        )

    run(test)


@promise("K7", "S2")
def test_configs_of_a_new_topic_are_told_to_those_who_may_know() -> None:
    """Whoever may create but not describe configs gets the topic without them."""

    async def test(root: Caller, guest: Caller) -> None:
        await put(root, rule((Operation.CREATE, CLUSTER)))
        answer = await guest(19, 7, topics=[{"name": "n", "num_partitions": 3, "replication_factor": 1}])
        made = answer.topics[0]
        assert made.error_code is ErrorCode.none and made.topic_config_error_code == TOPIC_FAILED.value
        assert made.num_partitions == -1 and not made.configs

    run(test)


@promise("S2")
def test_acls_over_the_protocol() -> None:
    """Create, describe with every kind of filter, delete; bad ones are refused on their own."""

    async def test(root: Caller, guest: Caller) -> None:
        def creation(**changes: Any) -> dict[str, Any]:
            return {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 4, "principal": "User:guest",
                    "host": "*", "operation": 3, "permission_type": 3, **changes}  # fmt: skip

        bad = [
            creation(resource_name=""),
            creation(operation=1),
            creation(resource_type=4),
            creation(permission_type=9),
        ]
        results = (await root(30, 3, creations=[creation(), *bad, creation(resource_name="b", operation=4)])).results
        assert [r.error_code for r in results] == [ErrorCode.none, *[ErrorCode.invalid_request] * 4, ErrorCode.none]
        everything = {**_acl_filter("a"), "resource_type_filter": 1, "resource_name_filter": None,
                      "pattern_type_filter": 1}  # fmt: skip
        told = (await root(29, 3, **everything)).resources
        assert [(t.resource_name, t.pattern_type, t.acls[0].operation) for t in told] == [("a", 4, 3), ("b", 4, 4)]
        match = {**everything, "resource_type_filter": 2, "resource_name_filter": "abc", "pattern_type_filter": 2}
        assert [t.resource_name for t in (await root(29, 3, **match)).resources] == ["a"]
        assert (await root(29, 3, **{**everything, "operation": 99})).error_code is ErrorCode.invalid_request
        gone = (await root(31, 3, filters=[match, {**everything, "pattern_type_filter": 0}])).filter_results
        assert [g.error_code for g in gone] == [ErrorCode.none, ErrorCode.invalid_request]
        assert [m.resource_name for m in gone[0].matching_acls] == ["a"]
        assert [t.resource_name for t in (await root(29, 3, **everything)).resources] == ["b"]

    run(test)


@promise("S1")
def test_users_over_the_protocol() -> None:
    """Created, described without any secret, changed, deleted; what Kafka refuses is refused."""

    async def test(root: Caller, guest: Caller) -> None:
        def new(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
            return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
                    "salted_password": b"a-salted-password"}  # fmt: skip

        async def alter(deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]) -> list[ErrorCode]:
            answer = await root(51, 0, deletions=deletions, upsertions=upsertions)
            return [result.error_code for result in answer.results]

        twice = [new("twice"), new("twice", 2)]
        bad = [new(""), new("x", 9), new("y", 1, 4095), new("z", 2, 16385)]
        assert await alter([], [new("a"), new("b", 2, 8192)]) == [ErrorCode.none] * 2
        assert await alter([], twice) == [ErrorCode.duplicate_resource]
        assert await alter([], bad) == [
            ErrorCode.unacceptable_credential,
            ErrorCode.unsupported_sasl_mechanism,
            ErrorCode.unacceptable_credential,
            ErrorCode.unacceptable_credential,
        ]
        told = await root(50, 0, users=None)
        assert [(r.user, [(c.mechanism, c.iterations) for c in r.credential_infos]) for r in told.results] == [
            ("a", [(1, 4096)]),
            ("b", [(2, 8192)]),
        ]
        asked = await root(50, 0, users=[{"name": "a"}, {"name": "b"}, {"name": "b"}, {"name": "c"}])
        assert [r.error_code for r in asked.results] == [
            ErrorCode.none,
            ErrorCode.duplicate_resource,
            ErrorCode.resource_not_found,
        ]
        assert await alter([{"name": "a", "mechanism": 1}, {"name": "b", "mechanism": 1}], []) == [
            ErrorCode.none,
            ErrorCode.resource_not_found,
        ]
        assert list(root.node.cluster.state.access.users) == ["b"]

    run(test)


@promise("S2")
def test_requests_that_change_too_much_change_nothing() -> None:
    """Rules, filters and users of one request are bounded."""

    async def test(root: Caller, guest: Caller) -> None:
        new = {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "principal": "User:z", "host": "*",
               "operation": 3, "permission_type": 3}  # fmt: skip
        created = await root(30, 3, creations=[{**new, "resource_name": f"t{i}"} for i in range(10_001)])
        assert {r.error_code for r in created.results} == {ErrorCode.invalid_request}
        deleted = await root(31, 3, filters=[_acl_filter("a")] * 1_001)
        assert {r.error_code for r in deleted.filter_results} == {ErrorCode.invalid_request}
        user = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
        altered = await root(51, 0, deletions=[], upsertions=[{"name": f"u{i}", **user} for i in range(1_001)])
        assert {r.error_code for r in altered.results} == {ErrorCode.invalid_request}
        access = root.node.cluster.state.access
        assert not list(access.acls()) and not access.users
        many = await root(30, 3, creations=[{**new, "resource_name": f"t{i}" * 100} for i in range(500)])
        assert {r.error_code for r in many.results} == {ErrorCode.none} and len(list(access.acls())) == 500

    run(test)


@promise("S2")
def test_without_rules_switched_on_there_are_none() -> None:
    """As Kafka without an authorizer: everything goes, and rules cannot be made."""

    async def test(root: Caller, guest: Caller) -> None:
        for key, row in [(key, rows[0]) for key, rows in MATRIX.items()]:
            code = row.code(await guest(key, row.version, **row.fields(NOWHERE)))
            assert code not in (TOPIC_FAILED, CLUSTER_FAILED)
            if key in (29, 30, 31):
                assert code is ErrorCode.security_disabled

    run(test, Settings(objects="memory://"))


@promise("K8", "S2")
def test_lists_of_groups_show_only_what_may_be_described() -> None:
    async def test(root: Caller, guest: Caller) -> None:
        for group in ("mine", "theirs"):
            topics = [{"name": HERE, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            await root(8, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)

        async def listed(who: Caller) -> list[str]:
            return sorted(g.group_id for g in (await who(16, 5, states_filter=[], types_filter=[])).groups)

        assert await listed(guest) == []
        await put(root, rule((Operation.DESCRIBE, GROUP), name="mine"))
        assert await listed(guest) == ["mine"]
        everything = await guest(9, 8, groups=[{"group_id": "mine", "topics": None}])
        assert everything.groups[0].topics == ()
        await put(root, rule((Operation.DESCRIBE, TOPIC)))
        everything = await guest(9, 8, groups=[{"group_id": "mine", "topics": None}])
        assert [t.name for t in everything.groups[0].topics] == [HERE]
        await put(root, rule((Operation.DESCRIBE, CLUSTER)))
        assert await listed(guest) == await listed(root) == ["mine", "theirs"]

    run(test)


@promise("K12", "S2")
def test_lists_of_transactions_show_only_what_may_be_described() -> None:
    """Neither ids nor topics that the caller may not describe."""

    async def test(root: Caller, guest: Caller) -> None:
        for id in ("tx", "theirs"):
            made = await root(22, 4, transactional_id=id, transaction_timeout=1000)
            topics = [{"name": HERE, "partitions": [0]}]
            who = {f"{V3}producer_id": made.producer_id, f"{V3}producer_epoch": made.producer_epoch}
            joined = await root(24, 3, **{f"{V3}transactional_id": id, f"{V3}topics": topics, **who})
            assert _added(joined) is ErrorCode.none

        async def listed(who: Caller) -> list[str]:
            return sorted(x.transactional_id for x in (await who(66, 2)).transaction_states)

        async def topics_of(who: Caller) -> list[str]:
            [state] = (await who(65, 0, transactional_ids=["tx"])).transaction_states
            return [topic.topic for topic in state.topics]

        assert await listed(guest) == [] and await listed(root) == ["theirs", "tx"]
        await put(root, rule((Operation.DESCRIBE, TRANSACTION)))
        assert await listed(guest) == ["tx"]
        assert await topics_of(guest) == [] and await topics_of(root) == [HERE]
        await put(root, rule((Operation.DESCRIBE, TOPIC)))
        assert await topics_of(guest) == [HERE]

    run(test)
