"""A transaction from its start to its end, in both generations, through any broker."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.errors import StoreUnavailable
from headwater.settings.settings import Settings, Transactions
from headwater.state.commands.transactions import AbortTransaction
from headwater.state.streams.stored.transactions import LAST_EPOCH, MAX_STREAMS
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import create, run
from tests.unit.broker.handlers.transactions.calls import (
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    DESCRIBE,
    LIST,
    OK,
    add,
    add_group,
    end,
    init,
    offset_of,
    stage,
    started,
)

PROMISES = ("K12",)

FENCED, OLD_FENCED = ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch
JOIN, LEAVE = 11, 13
UNKNOWN, STATE = ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_txn_state


def ends_of(node: Caller, topic: str = "t") -> list[int]:
    """The ends of a topic's partitions."""
    view = node.node.broker.by_name(topic)
    assert view is not None
    return [view.replica.state.streams[stream].end for stream in view.topic.streams]


@promise("K12")
def test_the_first_generation_through_another_broker_each_time() -> None:
    """Every request goes to another broker; none of them needs what another one did."""

    async def test(a: Caller, b: Caller, c: Caller) -> None:
        await create(a, partitions=3)
        who = await started(a, version=2)
        assert await add(b, who, {"t": [0, 2]}, version=0) == {("t", 0): OK, ("t", 2): OK}
        assert await add_group(c, who, version=0) is OK
        for node in (a, b, c):
            code = await stage(node, who, 7, version=2)
            assert code in (OK, ErrorCode.not_coordinator)
        assert await offset_of(b) is ErrorCode.unstable_offset_commit
        assert await offset_of(c, stable=False) == -1
        assert await end(b, who, version=1) == (OK, (-1, -1))
        assert await end(c, who, version=1) == (OK, (-1, -1))  # a repeated request
        assert (await end(a, who, commit=False, version=1))[0] is STATE
        assert await offset_of(a) == 7
        assert ends_of(b) == [1, 0, 1]
        assert await add(c, who, {"t": [1]}) == {("t", 1): OK}  # the next transaction has the same epoch
        assert (await end(a, who, commit=False, version=3))[0] is OK
        await c.node.domains[min(c.node.domains)].barrier()
        assert ends_of(c) == [1, 1, 1]

    run(test, 3)


@promise("K12")
def test_the_second_generation() -> None:
    """No request but the commit's itself joins a group, and each end moves on to the next epoch."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        assert await stage(node, who, 3) is OK
        code, after = await end(node, who)
        assert (code, after) == (OK, (who[0], who[1] + 1))
        assert await end(node, who) == (OK, after)  # the answer was lost
        assert await offset_of(node) == 3
        assert (await end(node, who, commit=False))[0] is STATE
        assert (await end(node, after))[0] is STATE  # nothing to commit
        assert await end(node, after, commit=False) == (OK, (who[0], who[1] + 2))
        assert await stage(node, after, 4) is OLD_FENCED
        assert await offset_of(node) == 3

    run(test)


@promise("K12")
def test_who_is_fenced_and_who_is_unknown() -> None:
    """An old epoch is fenced, in the words of the request's version; another producer id is unknown."""

    async def test(node: Caller) -> None:
        await create(node)
        old = await started(node)
        new = await started(node)
        assert new == (old[0], old[1] + 1)
        for version in range(4):
            assert await add(node, old, {"t": [0]}, version=version) == {
                ("t", 0): FENCED if version >= 2 else OLD_FENCED
            }
        for version in range(5):
            assert await add_group(node, old, version=version) is (FENCED if version >= 2 else OLD_FENCED)
        for version in range(6):
            assert (await end(node, old, version=version))[0] is (FENCED if version >= 2 else OLD_FENCED)
            assert await stage(node, old, 1, version=version) is OLD_FENCED
        for other in ((new[0] + 77, new[1]), (-1, -1)):
            assert await add(node, other, {"t": [0]}) == {("t", 0): UNKNOWN}
            assert await add_group(node, other) is UNKNOWN
            assert (await end(node, other))[0] is UNKNOWN
            assert await stage(node, other, 1) is UNKNOWN
        assert (await end(node, new, id="other"))[0] is UNKNOWN

    run(test)


@promise("K12")
def test_what_a_producer_expects_when_it_starts() -> None:
    """The current epoch moves on, the one before repeats the answer, any other is fenced."""

    async def test(node: Caller) -> None:
        first = await started(node)
        second = await started(node, expected=first)
        assert second == (first[0], first[1] + 1)
        assert await init(node, expected=first) == (OK, second)
        third = await started(node, expected=second)
        assert await init(node, expected=first) == (FENCED, (-1, -1))
        assert await init(node, expected=first, version=3) == (OLD_FENCED, (-1, -1))
        assert (await init(node, expected=(third[0] + 50, 0)))[0] is FENCED
        assert (await init(node, expected=(-1, 3)))[0] is ErrorCode.invalid_request
        assert (await init(node, expected=(third[0], -1)))[0] is ErrorCode.invalid_request
        assert (await init(node, None, expected=(-1, 3)))[0] is ErrorCode.invalid_request

    run(test)


@promise("K12")
def test_what_a_producer_may_not_start_with() -> None:
    """Time-outs beyond the limit, no id, two-phase commit."""

    async def test(node: Caller) -> None:
        too_long = ErrorCode.invalid_transaction_timeout
        assert (await init(node, timeout_ms=5_001))[0] is too_long
        assert (await init(node, timeout_ms=0))[0] is too_long
        assert (await init(node, timeout_ms=-5))[0] is too_long
        assert (await init(node, timeout_ms=5_000))[0] is OK
        assert (await init(node, "", timeout_ms=5_000))[0] is ErrorCode.invalid_request
        assert (await init(node, "x" * 1_001, timeout_ms=5_000))[0] is ErrorCode.invalid_request
        refused = ErrorCode.transactional_id_authorization_failed
        assert (await init(node, version=6, timeout_ms=5_000, enable2_pc=True))[0] is refused
        kept = await init(node, version=6, timeout_ms=5_000, keep_prepared_txn=True)
        assert kept == (ErrorCode.unsupported_version, (-1, -1))
        assert (await init(node, version=6, timeout_ms=5_000))[0] is OK
        assert (await init(node, None, timeout_ms=0))[0] is OK

    run(test, settings=Settings(objects="memory://", transactions=Transactions(max_timeout_ms=5_000)))


@promise("K12")
def test_producer_ids_are_not_used_up_by_producers_that_start_again() -> None:
    """An id that was not needed is the next producer's."""

    async def test(node: Caller) -> None:
        first = await started(node)
        for _ in range(5):
            assert (await started(node))[0] == first[0]
        assert (await started(node, "other"))[0] == first[0] + 1
        code, plain = await init(node, None)
        assert (code, plain) == (OK, (first[0] + 2, 0))

    run(test)


@promise("K12")
def test_the_last_epoch_is_followed_by_a_fresh_producer_id() -> None:
    """At an end and at a start; the answer that was lost is repeated."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        found = node.node.domains[min(node.node.domains)].state.transactions.get("tx")
        assert found is not None
        found.epoch = LAST_EPOCH
        last = (who[0], LAST_EPOCH)
        assert await stage(node, last, 1) is OK
        code, after = await end(node, last)
        assert (code, after[1]) == (OK, 0) and after[0] != who[0]
        assert await end(node, last) == (OK, after)
        found.epoch = LAST_EPOCH
        again = await started(node)
        assert again[1] == 0 and again[0] not in (who[0], after[0])

    run(test)


@promise("K12")
def test_one_bad_partition_keeps_the_others_out() -> None:
    """As in Kafka, the good ones are OPERATION_NOT_ATTEMPTED."""

    async def test(node: Caller) -> None:
        await create(node, partitions=2)
        who = await started(node)
        not_tried, missing = ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition
        assert await add(node, who, {"t": [0, 5], "none": [0]}) == {
            ("t", 0): not_tried,
            ("t", 5): missing,
            ("none", 0): missing,
        }
        internal = await add(node, who, {"t": [0], "__consumer_offsets": [0]})
        assert internal == {("t", 0): not_tried, ("__consumer_offsets", 0): ErrorCode.topic_authorization_failed}
        assert (await end(node, who, version=4))[0] is STATE  # nothing was opened
        assert await add(node, who, {"t": [0]}, id="") == {("t", 0): ErrorCode.invalid_request}
        assert await add_group(node, who, id="") is ErrorCode.invalid_request
        assert await add_group(node, who, group="g" * 1_001) is ErrorCode.invalid_group_id
        assert (await end(node, who, id=""))[0] is ErrorCode.invalid_request

    run(test)


@promise("K12")
def test_a_transaction_that_is_full() -> None:
    """A limit of the state is an error that clients do not repeat."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        assert await add(node, who, {"t": [0]}) == {("t", 0): OK}
        found = node.node.domains[min(node.node.domains)].state.transactions.get("tx")
        assert found is not None
        found.streams = dict.fromkeys(range(10_000, 10_000 + MAX_STREAMS))
        assert await add(node, who, {"t": [0]}) == {("t", 0): ErrorCode.policy_violation}

    run(test)


@promise("K12")
def test_brokers_add_and_verify_in_batches() -> None:
    """Versions 4 and 5 are about several transactions, and may only ask."""

    async def test(node: Caller) -> None:
        await create(node, partitions=2)
        one, two = await started(node, "one"), await started(node, "two")
        topics = [{"name": "t", "partitions": [0, 1]}]

        async def ask(*wanted: tuple[str, tuple[int, int], bool]) -> dict[str, list[ErrorCode]]:
            rows = [
                {"transactional_id": id, "producer_id": p, "producer_epoch": e, "verify_only": only, "topics": topics}
                for id, (p, e), only in wanted
            ]
            answer = await node(ADD_PARTITIONS, 5, transactions=rows)
            assert answer.error_code is OK
            return {
                row.transactional_id: [p.partition_error_code for p in row.topic_results[0].results_by_partition]
                for row in answer.results_by_transaction
            }

        abortable = ErrorCode.transaction_abortable
        assert await ask(("one", one, False), ("two", two, True)) == {"one": [OK, OK], "two": [abortable, abortable]}
        asked = await ask(("one", one, True), ("two", (two[0], 9), True), ("three", two, True), ("", two, True))
        assert asked["one"] == [OK, OK] and asked["two"] == [FENCED, FENCED]
        assert asked["three"] == [UNKNOWN, UNKNOWN] and asked[""] == [ErrorCode.invalid_request] * 2

    run(test)


@promise("K12")
def test_offsets_need_their_group_in_the_transaction_before_version_5() -> None:
    """The error is that of the version."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        for version in range(4):
            assert await stage(node, who, 1, version=version) is STATE
        assert await stage(node, who, 1, version=4) is ErrorCode.transaction_abortable
        assert await add_group(node, who) is OK
        assert await stage(node, who, 1, version=4) is OK
        assert await stage(node, who, 1, version=0) is OK
        assert await stage(node, who, 1, group="other", version=4) is ErrorCode.transaction_abortable

    run(test)


@promise("K12")
def test_a_member_that_leaves_meanwhile_stages_nothing() -> None:
    """The group checks the member right before its offsets are queued. Its successor has fetched them already."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        protocols = [{"name": "range", "metadata": b""}]
        timeouts = {"session_timeout": 10_000, "rebalance_timeout": 10_000}
        kind = {"group_id": "g", "protocol_type": "consumer", "protocols": protocols}
        joined = await node(JOIN, 3, member_id="", **kind, **timeouts)
        member = {"generation_id": joined.generation_id, "member_id": joined.member_id, "group_instance_id": None}
        assert await stage(node, who, 1, **member) is OK

        async def slow() -> str:
            left = await node(LEAVE, 2, group_id="g", member_id=joined.member_id)
            assert left.error_code is OK
            return ""

        node.node.broker.lacks_transactions = slow  # type: ignore[method-assign]
        assert await stage(node, who, 2, **member) is ErrorCode.unknown_member_id

    run(test)


@promise("K12")
def test_staged_offsets_and_plain_ones() -> None:
    """An abort drops what is staged; a plain commit that comes later wins; unstable is told only if asked for."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)

        async def commit(offset: int) -> None:
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
            member = {"generation_id_or_member_epoch": -1, "member_id": ""}
            answer = await node(COMMIT_OFFSETS, 8, group_id="g", topics=topics, **member)
            assert answer.topics[0].partitions[0].error_code is OK

        await commit(1)
        assert await stage(node, who, 5) is OK
        unstable = ErrorCode.unstable_offset_commit
        assert await offset_of(node) is unstable and await offset_of(node, topics=None) is unstable
        assert await offset_of(node, stable=False) == 1
        code, who = await end(node, who, commit=False)
        assert code is OK and await offset_of(node) == 1
        assert await stage(node, who, 6) is OK
        await commit(2)
        assert await offset_of(node) == 2
        assert (await end(node, who))[0] is OK
        assert await offset_of(node) == 2

    run(test)


@promise("K12")
def test_a_late_end_after_a_broker_has_aborted() -> None:
    """A commit is fenced, which clients survive; an abort of the second generation counts as done."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        assert await add(node, who, {"t": [0]}) == {("t", 0): OK}
        await node.node.broker.transactions.submit(AbortTransaction("tx", 1, *who, 0))
        assert (await end(node, who))[0] is FENCED
        assert (await end(node, who, version=1))[0] is OLD_FENCED
        assert await end(node, who, commit=False) == (OK, (who[0], who[1] + 1))

    run(test)


@promise("K12")
def test_a_broker_that_does_not_reach_the_ledger() -> None:
    """Clients look for the coordinator again. A producer id of unknown fate is not given again."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)
        assert await stage(node, who, 1) is OK
        broker, away = node.node.broker, ErrorCode.coordinator_not_available
        submit, barrier = broker.transactions.replica.submit, broker.transactions.replica.barrier

        async def lost(*_: object) -> None:
            raise StoreUnavailable("the ledger is away")

        broker.transactions.replica.submit = lost  # type: ignore[assignment, method-assign]
        broker.transactions.replica.barrier = lost  # type: ignore[method-assign]
        assert await init(node) == (away, (-1, -1))
        assert await add(node, who, {"t": [0]}) == {("t", 0): away}
        assert await add_group(node, who) is away
        assert await end(node, who) == (away, (-1, -1))
        assert await stage(node, who, 1) is away
        assert (await node(LIST, 2, duration_filter=-1)).error_code is away
        [state] = (await node(DESCRIBE, 0, transactional_ids=["tx"])).transaction_states
        assert state.error_code is away
        broker.transactions.replica.submit = submit  # type: ignore[method-assign]
        broker.transactions.replica.barrier = barrier  # type: ignore[method-assign]
        assert (await started(node, "other"))[0] == who[0] + 2
        assert await stage(node, who, 1) is OK

    run(test)


@promise("K12")
def test_a_request_that_is_too_large_for_the_ledger() -> None:
    """It is refused for good."""

    async def test(node: Caller) -> None:
        await create(node)
        who = await started(node)

        def too_large(*_: object, **__: object) -> None:
            raise ValueError("the commands have too many bytes")

        replica = node.node.broker.transactions.replica
        enqueue, replica.enqueue = replica.enqueue, too_large  # type: ignore[assignment, method-assign]
        assert await add(node, who, {"t": [0]}) == {("t", 0): ErrorCode.invalid_request}
        replica.enqueue = enqueue  # type: ignore[method-assign]

    run(test)
