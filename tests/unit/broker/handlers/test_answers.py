"""What answers say where something is wrong, as Apache Kafka says it."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.types import Epoch
from tests.support.batches import Rec, batch
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import CREATE, NOW, PRODUCE, create, fetch, produce, recs, run
from tests.unit.broker.handlers.transactions.calls import add_group, end

PROMISES = ("K1", "K3", "K5", "K7", "K10")

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND, DESCRIBE, INIT = 2, 3, 8, 9, 10, 15, 22
API_VERSIONS = 18
DELETE_GROUPS, ALTER, DELETE_OFFSETS, DESCRIBE_TOPICS = 42, 44, 47, 75
GROUP, TRANSACTION, SHARE = range(3)


@promise("K3")
def test_refused_records_are_told() -> None:
    """Which records, and where the log begins once they were looked at; nothing is written."""

    async def test(one: Caller) -> None:
        await create(one, cleanup_policy="compact")
        keyless = await produce(one, batch([Rec(b"x", b"k", NOW), Rec(b"x", None, NOW)]))
        assert (keyless.error_code, keyless.log_start_offset) == (ErrorCode.invalid_record, 0)
        assert [(e.batch_index, "key" in e.batch_index_error_message) for e in keyless.record_errors] == [(1, True)]
        ahead = await produce(one, batch([Rec(b"x", b"k", NOW + 10**9)]))
        assert (ahead.error_code, ahead.log_start_offset) == (ErrorCode.invalid_timestamp, 0)
        assert [e.batch_index for e in ahead.record_errors] == [0]
        for data in (batch(recs(b"x"), crc=1), batch(recs(b"x"), magic=3)):
            broken = await produce(one, data)
            assert (broken.error_code, broken.log_start_offset) == (ErrorCode.corrupt_message, -1)
            assert not broken.record_errors
        assert (await produce(one, batch([Rec(b"x", b"k", NOW)]))).base_offset == 0

    run(test)


@promise("K3")
def test_batches_of_transactions_need_a_transactional_id() -> None:
    """One of them stops the whole request."""

    async def test(one: Caller) -> None:
        await create(one, partitions=2)
        good, bad = batch(recs(b"x")), batch(recs(b"x"), attributes=TRANSACTIONAL_BIT, producer=(7, 0, 0))
        parts = [{"index": 0, "records": good}, {"index": 1, "records": bad}]
        topics = [{"name": "t", "partition_data": parts}]
        answer = await one(PRODUCE, 9, acks=-1, timeout=1_000, topic_data=topics)
        codes = [p.error_code for p in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.transactional_id_authorization_failed] * 2
        assert (await produce(one, good)).base_offset == 0

    run(test)


@promise("K3")
def test_a_partition_named_twice_is_written_once() -> None:
    async def test(one: Caller) -> None:
        await create(one)
        parts = [{"index": 0, "records": batch(recs(value))} for value in (b"first", b"last")]
        topics = [{"name": "t", "partition_data": parts}]
        answer = await one(PRODUCE, 9, acks=-1, timeout=1_000, topic_data=topics)
        [partition] = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (ErrorCode.none, 0)
        found = await fetch(one, 0)
        assert found.high_watermark == 1 and b"last" in bytes(found.records)

    run(test)


@promise("K5")
def test_a_fetch_that_fails_tells_no_offsets() -> None:
    """And says of no aborted transactions where no log was read."""

    async def test(one: Caller) -> None:
        await create(one)
        await produce(one, batch(recs(b"x")))
        beyond = await fetch(one, 2)
        assert beyond.error_code is ErrorCode.offset_out_of_range
        assert (beyond.high_watermark, beyond.last_stable_offset, beyond.log_start_offset) == (-1, -1, -1)
        assert beyond.aborted_transactions is None
        for absent in (await fetch(one, 0, partition=5), await fetch(one, 0, topic="no")):
            assert absent.error_code is ErrorCode.unknown_topic_or_partition
            assert absent.aborted_transactions == ()
        assert (await fetch(one, 0)).aborted_transactions is None

    run(test)


@promise("K5")
@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)])
def test_special_timestamps_have_a_version(timestamp: int, since: int) -> None:
    """UNSUPPORTED_VERSION before it."""

    async def test(one: Caller) -> None:
        await create(one)
        await produce(one, batch(recs(b"x")))
        for version in range(1, 12):
            parts = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
            fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": parts}]}
            answer = await one(LIST_OFFSETS, version, **fields)
            wanted = ErrorCode.none if version >= since else ErrorCode.unsupported_version
            assert answer.topics[0].partitions[0].error_code is wanted

    run(test)


@promise("K5")
def test_offsets_of_the_same_partition_twice() -> None:
    """One answer, INVALID_REQUEST."""

    async def test(one: Caller) -> None:
        await create(one, partitions=2)
        parts = [{"partition_index": i, "timestamp": -1, "current_leader_epoch": -1} for i in (0, 1, 0)]
        answer = await one(LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": "t", "partitions": parts}])
        codes = [(p.partition_index, p.error_code) for p in answer.topics[0].partitions]
        assert codes == [(0, ErrorCode.invalid_request), (1, ErrorCode.none)]

    run(test)


@promise("K4")
@pytest.mark.parametrize(("known", "good"), [((-1, -1), True), ((5, 0), True), ((5, -1), False), ((-1, 5), False)])
def test_a_producer_knows_both_its_id_and_its_epoch(known: tuple[int, int], good: bool) -> None:
    """Or neither."""

    async def test(one: Caller) -> None:
        fields = {"transactional_id": None, "transaction_timeout": 1_000}
        answer = await one(INIT, 4, **fields, producer_id=known[0], producer_epoch=known[1])
        assert answer.error_code is (ErrorCode.none if good else ErrorCode.invalid_request)
        assert (answer.producer_id >= 0) is good

    run(test)


@promise("K2")
@pytest.mark.parametrize(("version", "code"), [(10, "invalid_request"), (11, "invalid_request"), (12, "none")])
def test_metadata_by_topic_id(version: int, code: str) -> None:
    """Ids are taken from version 12 on."""

    async def test(one: Caller) -> None:
        await create(one)
        topic_id: uuid.UUID = one.node.cluster.state.names["t"].id
        answer = await one(METADATA, version, topics=[{"topic_id": topic_id, "name": None}])
        assert [(t.error_code.name, t.topic_id) for t in answer.topics] == [(code, topic_id)]
        named = await one(METADATA, version, topics=[{"topic_id": None, "name": "t"}])
        assert [(t.error_code, t.topic_id) for t in named.topics] == [(ErrorCode.none, topic_id)]

    run(test)


@promise("K10")
def test_a_group_without_a_name_has_offsets_only() -> None:
    """They can be committed, fetched and deleted with the group."""

    async def test(one: Caller) -> None:
        await create(one)
        parts = [{"partition_index": 0, "committed_offset": 4}]
        topics = [{"name": "t", "partitions": parts}, {"name": "t", "partitions": []}]
        fields: dict[str, Any] = {"group_id": "", "member_id": "", "generation_id_or_member_epoch": -1}
        committed = await one(OFFSET_COMMIT, 8, **fields, topics=topics)
        assert [[p.error_code for p in t.partitions] for t in committed.topics] == [[ErrorCode.none]]
        wanted = [{"group_id": "", "topics": [{"name": "t", "partition_indexes": [0]}]}]
        [fetched] = (await one(OFFSET_FETCH, 8, groups=wanted)).groups
        assert fetched.topics[0].partitions[0].committed_offset == 4
        [described] = (await one(DESCRIBE, 6, groups=[""])).groups
        assert (described.error_code, described.group_state) == (ErrorCode.none, "Empty")
        forgotten = await one(DELETE_OFFSETS, 0, group_id="", topics=[])
        assert forgotten.error_code is ErrorCode.invalid_group_id
        deleted = (await one(DELETE_GROUPS, 2, groups_names=["", ""])).results
        assert [(r.group_id, r.error_code) for r in deleted] == [("", ErrorCode.none)]
        [gone] = (await one(DESCRIBE, 6, groups=[""])).groups
        assert (gone.error_code, gone.group_state) == (ErrorCode.group_id_not_found, "Dead")

    run(test)


@promise("K10")
def test_offsets_of_partitions_that_do_not_exist_are_not_deleted() -> None:
    """Those of others are."""

    async def test(one: Caller) -> None:
        await create(one)
        fields: dict[str, Any] = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
        parts = [{"partition_index": 0, "committed_offset": 4}]
        await one(OFFSET_COMMIT, 8, **fields, topics=[{"name": "t", "partitions": parts}])
        asked = [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
        answer = await one(DELETE_OFFSETS, 0, group_id="g", topics=asked)
        codes = [p.error_code for p in answer.topics[0].partitions]
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        wanted = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]
        [fetched] = (await one(OFFSET_FETCH, 8, groups=wanted)).groups
        assert fetched.topics[0].partitions[0].committed_offset == -1

    run(test)


@promise("K8")
def test_keys_of_coordinators() -> None:
    """Any name of a group; of share groups only keys of partitions, and only in the version that knows them."""

    async def test(one: Caller) -> None:
        first = await one(FIND, 1, key="", key_type=GROUP)
        assert (first.error_code, first.error_message) == (ErrorCode.none, "NONE")
        for version, kind, key, code in (
            (4, GROUP, "", ErrorCode.none),
            (5, SHARE, "g:id:0", ErrorCode.invalid_request),
            (6, SHARE, "g", ErrorCode.invalid_request),
            (6, SHARE, "g:id:0", ErrorCode.coordinator_not_available),
            (6, 9, "g", ErrorCode.invalid_request),
        ):
            [found] = (await one(FIND, version, key_type=kind, coordinator_keys=[key])).coordinators
            assert found.error_code is code

    run(test)


@promise("K12")
def test_transactional_ids_are_refused_for_good() -> None:
    """On a cluster of an older level: codes on which Java's producer and librdkafka give up at once, with the
    reason."""

    async def test(one: Caller) -> None:
        for state in [one.node.cluster.state, *(replica.state for replica in one.node.domains.values())]:
            state.level = 1
        told = [await one(FIND, version, key_type=TRANSACTION, key="t") for version in range(1, 4)]
        told += (await one(FIND, 6, key_type=TRANSACTION, coordinator_keys=["t"])).coordinators
        for found in told:
            assert found.error_code is ErrorCode.cluster_authorization_failed
            assert "run `headwater cluster upgrade`" in found.error_message
        for version in range(5):
            answer = await one(INIT, version, transactional_id="t", transaction_timeout=1_000)
            assert answer.error_code is ErrorCode.invalid_transaction_timeout
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        who = (1, 0)
        assert (await end(one, who))[0] is ErrorCode.invalid_producer_id_mapping
        assert await add_group(one, who) is ErrorCode.invalid_producer_id_mapping
        told = await one(API_VERSIONS, 4, client_software_name="x", client_software_version="1")
        assert "transaction.version" not in {feature.name for feature in told.finalized_features}

    run(test)


@promise("K12")
def test_a_broker_that_has_not_joined_refuses_no_transactional_id_for_good() -> None:
    """Its domains have the first level until it has read them."""

    async def test(one: Caller) -> None:
        for replica in one.node.domains.values():
            replica.state.level = 1
        one.node.membership.epoch = Epoch(0)
        told = [await one(FIND, 1, key_type=TRANSACTION, key="t")]
        told += (await one(FIND, 6, key_type=TRANSACTION, coordinator_keys=["t"])).coordinators
        assert {found.error_code for found in told} == {ErrorCode.coordinator_not_available}

    run(test)


@promise("K7")
def test_topics_that_are_not_made() -> None:
    """Configs are looked at before numbers; a failure shows no configs, a rehearsal has an id."""

    async def test(one: Caller) -> None:
        wrong = [{"name": "cleanup.policy", "value": "shred"}]
        both = {"name": "t", "num_partitions": 0, "replication_factor": 1, "configs": wrong}
        [answer] = (await one(CREATE, 7, topics=[both])).topics
        assert (answer.error_code, answer.configs) == (ErrorCode.invalid_config, ())
        [answer] = (await one(CREATE, 7, topics=[{**both, "configs": []}])).topics
        assert (answer.error_code, answer.configs) == (ErrorCode.invalid_partitions, ())
        good = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        [answer] = (await one(CREATE, 7, topics=[good], validate_only=True)).topics
        assert answer.error_code is ErrorCode.none and answer.topic_id is not None
        assert "t" not in one.node.cluster.state.names

    run(test)


@promise("K7")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("no", "1", "unknown_topic_or_partition"),
        ("no", "soon", "invalid_config"),
        ("not/valid", "1", "invalid_topic_exception"),
        ("not/valid", "soon", "invalid_topic_exception"),
    ],
)
def test_configs_of_topics_that_do_not_exist(name: str, value: str, code: str) -> None:
    """The name and the configs are looked at before the topic."""

    async def test(one: Caller) -> None:
        configs = [{"name": "retention.ms", "config_operation": 0, "value": value}]
        resource = {"resource_type": 2, "resource_name": name, "configs": configs}
        [answer] = (await one(ALTER, 1, resources=[resource], validate_only=False)).responses
        assert answer.error_code.name == code

    run(test)


@promise("K2")
def test_what_may_be_done_to_a_topic_that_does_not_exist() -> None:
    """Is told as for others."""

    async def test(one: Caller) -> None:
        await create(one)
        asked = [{"name": "t"}, {"name": "no"}]
        answer = await one(DESCRIBE_TOPICS, 0, topics=asked, response_partition_limit=10, cursor=None)
        told = {t.name: (t.error_code.name, t.topic_authorized_operations) for t in answer.topics}
        assert told == {"t": ("none", told["t"][1]), "no": ("unknown_topic_or_partition", told["t"][1])}
        assert told["t"][1] > 0

    run(test)
