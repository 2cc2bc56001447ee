"""Log directories, producers, elections, reassignments, features, as Apache Kafka answers."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from headwater.settings.settings import Settings, Transactions
from headwater.state.machine import LEVEL
from tests.support.batches import batch
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import create, produce, recs, run

PROMISES = ("K6",)

API_VERSIONS, TRIM, MOVE_DIRS, DIRS, ELECT, REASSIGN, REASSIGNMENTS = 18, 21, 34, 35, 43, 45, 46
QUORUM, FEATURES, DESCRIBE_CLUSTER, PRODUCERS, TOPIC_PARTITIONS = 55, 57, 60, 61, 75
NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_topic_or_partition


@promise("K6")
def test_log_directories_of_all_brokers_hold_every_partition_once() -> None:
    """Each partition with its bytes, told by the broker that clients use for it."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one, partitions=20)
        data = batch(recs(b"a" * 1000))
        for partition in range(20):
            await produce(one, data, partition=partition)
        sizes: dict[int, int] = {}
        for node in (one, two):
            response = await node(DIRS, 5, topics=None)
            [directory] = response.results
            assert (response.error_code, directory.error_code) == (0, NONE)
            assert (directory.total_bytes, directory.usable_bytes) == (-1, -1), "memory has no size"
            [topic] = directory.topics
            found = {p.partition_index: p.partition_size for p in topic.partitions}
            assert found.keys().isdisjoint(sizes) and found
            assert not any(p.is_future_key or p.offset_lag for p in topic.partitions)
            sizes |= found
        assert sizes.keys() == set(range(20))
        [size] = set(sizes.values())
        assert len(data) <= size < 2 * len(data)
        asked = [{"topic": "t", "partitions": [0, 99]}, {"topic": "no", "partitions": [0]}]
        some = [p for n in (one, two) for t in (await n(DIRS, 4, topics=asked)).results[0].topics for p in t.partitions]
        assert [p.partition_index for p in some] == [0], "what does not exist is left out"
        assert (await one(DIRS, 1, topics=[])).results[0].topics == ()

    run(test, 2)


@promise("K6")
def test_a_local_directory_says_how_much_room_it_has(tmp_path: object) -> None:
    async def test(one: Caller) -> None:
        [directory] = (await one(DIRS, 4, topics=None)).results
        assert directory.log_dir == f"file://{tmp_path}"
        assert directory.total_bytes > directory.usable_bytes > 0

    run(test, settings=Settings(objects=f"file://{tmp_path}"))


@promise("K6")
def test_replicas_have_no_other_directory_to_move_to() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        here = (await one(DIRS, 4, topics=None)).results[0].log_dir

        async def move(path: str, topic: str, partition: int) -> ErrorCode:
            wanted = [{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]
            return (await one(MOVE_DIRS, 2, dirs=wanted)).results[0].partitions[0].error_code  # type: ignore[no-any-return]

        assert await move(here, "t", 0) is NONE
        assert await move(here, "t", 7) is UNKNOWN
        assert await move(here, "no", 0) is UNKNOWN
        assert await move("/elsewhere", "t", 0) is ErrorCode.log_dir_not_found

    run(test)


@promise("K6")
def test_producers_of_a_partition() -> None:
    async def test(one: Caller, two: Caller) -> None:
        await create(one, partitions=2)
        for first in (0, 2):
            await produce(one, batch(recs(b"a", b"b"), producer=(4000, 3, first)))
        await produce(one, batch(recs(b"c")))
        wanted = [{"name": "t", "partition_indexes": [0, 1, 2]}, {"name": "no", "partition_indexes": [0]}]
        known, unknown, bad = (
            await two(PRODUCERS, 0, topics=[*wanted, {"name": "?", "partition_indexes": [0]}])
        ).topics
        [only] = known.partitions[0].active_producers
        assert (only.producer_id, only.producer_epoch, only.last_sequence) == (4000, 3, 3)
        assert (only.coordinator_epoch, only.current_txn_start_offset) == (-1, -1)
        assert only.last_timestamp > 0
        assert [p.error_code for p in known.partitions] == [NONE, NONE, UNKNOWN]
        assert known.partitions[1].active_producers == ()
        assert unknown.partitions[0].error_code is UNKNOWN
        assert bad.partitions[0].error_code is ErrorCode.invalid_topic_exception

    run(test, 2)


@promise("K6")
def test_nothing_needs_an_election() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        wanted = [{"topic": "t", "partitions": [0, 7]}, {"topic": "no", "partitions": [0]}]
        for version, kind in ((0, 0), (2, 0), (2, 1)):
            response = await one(ELECT, version, election_type=kind, topic_partitions=wanted, timeout=1000)
            codes = [p.error_code for t in response.replica_election_results for p in t.partition_result]
            assert codes == [ErrorCode.election_not_needed, UNKNOWN, UNKNOWN]
        everything = await one(ELECT, 2, election_type=0, topic_partitions=None, timeout=1000)
        assert [(t.topic, t.partition_result) for t in everything.replica_election_results] == [("t", ())]
        wrong = await one(ELECT, 2, election_type=5, topic_partitions=wanted, timeout=1000)
        assert wrong.error_code is ErrorCode.invalid_request
        codes = [p.error_code for t in wrong.replica_election_results for p in t.partition_result]
        assert codes == [ErrorCode.invalid_request] * 3

    run(test)


@promise("K6")
def test_reassignments() -> None:
    """What is so already is taken, a move is refused, and none is ever under way."""

    async def test(one: Caller, two: Caller) -> None:
        await create(one)
        stream = one.node.cluster.state.names["t"].streams[0]
        leader = one.node.broker.routing.leader(stream)
        other = 3 - leader

        async def reassign(replicas: list[int] | None, topic: str = "t", partition: int = 0, **more: bool) -> ErrorCode:
            wanted = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
            version = 1 if more else 0
            response = await one(REASSIGN, version, timeout=1000, topics=wanted, **more)
            assert response.error_code is NONE
            return response.responses[0].partitions[0].error_code  # type: ignore[no-any-return]

        assert await reassign([leader]) is NONE
        assert await reassign([leader], partition=7) is UNKNOWN
        assert await reassign([leader], topic="no") is UNKNOWN
        assert await reassign(None) is ErrorCode.no_reassignment_in_progress
        for replicas in ([], [9], [-1], [leader, leader], [other], [leader, other], [other, leader]):
            assert await reassign(replicas) is ErrorCode.invalid_replica_assignment, replicas
        factor = await reassign([leader, other], allow_replication_factor_change=False)
        assert factor is ErrorCode.invalid_replication_factor
        assert (await one(REASSIGNMENTS, 0, timeout=1000, topics=None)).topics == ()
        asked = [{"name": "t", "partition_indexes": [0]}]
        assert (await one(REASSIGNMENTS, 0, timeout=1000, topics=asked)).topics == ()

    run(test, 2)


@promise("K6")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_feature_level_only_rises(version: int) -> None:
    """Validated as in Kafka, all updates or none."""

    async def test(one: Caller) -> None:
        async def update(name: str, level: int, kind: int = 1) -> ErrorCode:
            wanted = {"feature": name, "max_version_level": level, "upgrade_type": kind}
            response = await one(FEATURES, version, timeout=1000, feature_updates=[wanted])
            assert (response.error_code is NONE) == (response.error_message is None)
            return response.error_code  # type: ignore[no-any-return]

        invalid = ErrorCode.invalid_update_version
        assert await update("headwater.level", LEVEL) is NONE
        for level in (-1, 0, LEVEL - 1, 99):
            assert await update("headwater.level", level) is invalid
        assert await update("metadata.version", 7) is invalid
        if version:
            assert await update("headwater.level", LEVEL, kind=7) is invalid
        told = await one(API_VERSIONS, 4, client_software_name="test", client_software_version="1")
        versions = {"headwater.level": LEVEL, "group.version": 1, "metadata.version": 30, "transaction.version": 2}
        assert {f.name: (f.min_version, f.max_version) for f in told.supported_features} == {
            name: (1 if name == "headwater.level" else version, version) for name, version in versions.items()
        }
        assert {f.name: f.max_version_level for f in told.finalized_features} == versions
        assert await update("metadata.version", 30) is NONE
        for level in (29, 31):
            assert await update("metadata.version", level) is invalid
        assert await update("transaction.version", 2) is NONE
        assert await update("transaction.version", 1) is invalid
        assert told.finalized_features_epoch > 0

    run(test)


@promise("K12")
def test_only_the_first_generation_of_transactions_may_be_offered() -> None:
    """By a setting; clients then keep to it."""

    async def test(one: Caller) -> None:
        told = await one(API_VERSIONS, 4, client_software_name="test", client_software_version="1")
        assert {f.name: f.max_version_level for f in told.finalized_features}["transaction.version"] == 1

    run(test, settings=Settings(objects="memory://", transactions=Transactions(version=1)))


@promise("K2")
def test_endpoints_that_are_not_brokers() -> None:
    """Refused as by a broker of Kafka."""

    async def test(one: Caller) -> None:
        controllers = await one(DESCRIBE_CLUSTER, 2, endpoint_type=2)
        assert controllers.error_code is ErrorCode.mismatched_endpoint_type
        assert (await one(DESCRIBE_CLUSTER, 2, endpoint_type=3)).error_code is ErrorCode.unsupported_endpoint_type

    run(test)


@promise("K2")
def test_partitions_of_impossible_topics() -> None:
    async def test(one: Caller) -> None:
        wanted = [{"name": "a b"}, {"name": "no"}]
        answer = await one(TOPIC_PARTITIONS, 0, topics=wanted, response_partition_limit=10)
        assert [t.error_code for t in answer.topics] == [ErrorCode.invalid_topic_exception, UNKNOWN]

    run(test)


@promise("K6")
def test_records_of_a_compacted_topic_cannot_be_deleted() -> None:
    """Unless it deletes old ones anyway."""

    async def test(one: Caller) -> None:
        await create(one, "compacted", cleanup_policy="compact")
        await create(one, "both", cleanup_policy="compact,delete")
        for name, code in (("compacted", ErrorCode.policy_violation), ("both", NONE)):
            wanted = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
            [topic] = (await one(TRIM, 2, timeout=1000, topics=wanted)).topics
            assert topic.partitions[0].error_code is code

    run(test)


@promise("K6")
def test_the_quorum_is_the_ledger() -> None:
    """The high watermark is the ledger's head, the voters are the live brokers, all at that head."""

    async def test(one: Caller, two: Caller) -> None:
        wanted = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        before = await two(QUORUM, 2, topics=wanted)
        await create(one)
        answer = await two(QUORUM, 2, topics=wanted)
        [[quorum], [earlier]] = [told.topics[0].partitions for told in (answer, before)]
        assert (answer.error_code, quorum.error_code, quorum.leader_id) == (NONE, NONE, 1)
        assert earlier.high_watermark < quorum.high_watermark == two.node.cluster.state.position
        assert [(v.replica_id, v.log_end_offset) for v in quorum.current_voters] == [
            (node, quorum.high_watermark) for node in (1, 2)
        ]
        assert all(v.last_caught_up_timestamp > 0 for v in quorum.current_voters) and quorum.observers == ()
        assert [(n.node_id, [x.name for x in n.listeners]) for n in answer.nodes] == [
            (node, ["PLAINTEXT", "OUTSIDE"]) for node in (1, 2)
        ]
        for name, partitions in (("t", [0]), ("__cluster_metadata", [0, 1])):
            asked = [{"topic_name": name, "partitions": [{"partition_index": index} for index in partitions]}]
            [topic] = (await one(QUORUM, 2, topics=asked)).topics
            assert {p.error_code for p in topic.partitions} == {ErrorCode.unknown_topic_or_partition}

    run(test, 2)
