"""The broker that watches a transactional id aborts what takes too long, by its own clock, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kio.schema.errors import ErrorCode

from harness.virtual import run
from headwater.app.node import Node
from headwater.errors import StoreUnavailable
from headwater.ledger.contract import MAX_RECORD_BYTES
from headwater.settings.settings import Groups
from headwater.state.commands.transactions import JoinTransaction
from headwater.state.results import Judgement
from headwater.state.streams.stored.transactions import LAST_EPOCH, MAX_ID, Phase, Transaction
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, NodeWorld, topic
from tests.unit.broker.handlers.transactions.calls import COMMIT_OFFSETS, FIND, OK, add, end, offset_of, stage, started

PROMISES = ("K12",)

TRANSACTION = 1
TIMEOUT_MS = 10_000


def over(count: int, test: Callable[..., Awaitable[None]], groups: Groups | None = None) -> None:
    """Run a test over so many brokers in virtual time."""

    async def main() -> None:
        world = NodeWorld()
        nodes = [await world.node(number, groups=groups or Groups()) for number in range(1, count + 1)]
        await topic(nodes[0], partitions=2)
        for node in nodes:
            await node.cluster.barrier()
        await test(*nodes)

    run(main())


def transaction(node: Node, id: str = "tx") -> Transaction:
    found = node.domains[ONE].state.transactions.get(id)
    assert found is not None
    return found


async def opened(node: Node, id: str = "tx") -> tuple[int, int]:
    """A producer with an open transaction."""
    who = await started(Caller(node), id, timeout_ms=TIMEOUT_MS)
    assert await add(Caller(node), who, {"t": [0]}, id) == {("t", 0): OK}
    return who


def placed(node: Node, id: str = "tx") -> int:
    member = node.broker.transactions.place(id)
    assert member is not None
    return member.node


@promise("K12")
def test_a_transaction_past_its_timeout_is_aborted_once() -> None:
    """With the next epoch, and only by the broker that watches it."""

    async def test(*nodes: Node) -> None:
        who = await opened(nodes[0])
        await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
        assert transaction(nodes[0]).open
        await asyncio.sleep(3)
        found = transaction(nodes[1])
        assert (found.phase, found.epoch) == (Phase.ABORTED, who[1] + 1)
        counts = {node.settings.node: node.broker.transactions.timed_out for node in nodes}
        assert counts == {node.settings.node: int(node.settings.node == placed(node)) for node in nodes}
        await asyncio.sleep(60)
        assert transaction(nodes[1]).epoch == who[1] + 1
        assert (await end(Caller(nodes[0]), who))[0] is ErrorCode.producer_fenced

    over(3, test)


@promise("K12")
def test_the_next_transaction_has_its_own_time() -> None:
    """In the first generation it has the same epoch; its number tells it apart."""

    async def test(node: Node) -> None:
        who = await opened(node)
        await asyncio.sleep(8)
        assert (await end(Caller(node), who, version=3))[0] is OK
        assert await add(Caller(node), who, {"t": [1]}) == {("t", 1): OK}
        await asyncio.sleep(8)
        assert transaction(node).open and transaction(node).number == 2
        await asyncio.sleep(4)
        assert transaction(node).phase is Phase.ABORTED

    over(1, test)


@promise("K12")
def test_whoever_takes_over_measures_anew() -> None:
    """No broker knows how long another one has watched, and none of them trusts a wall clock."""

    async def test(*nodes: Node) -> None:
        who = await opened(nodes[0])
        watching = next(node for node in nodes if node.settings.node == placed(node))
        await asyncio.sleep(8)
        await watching.stop()
        [left] = [node for node in nodes if node is not watching]
        await left.cluster.barrier()
        assert placed(left) == left.settings.node
        await asyncio.sleep(8)
        assert transaction(left).open
        await asyncio.sleep(4)
        assert (transaction(left).phase, transaction(left).epoch) == (Phase.ABORTED, who[1] + 1)

    over(2, test)


@promise("K12")
def test_at_the_last_epoch_a_timeout_takes_a_fresh_producer_id() -> None:
    """Otherwise it takes none."""

    async def test(node: Node) -> None:
        who = await opened(node, "a")
        last = await opened(node, "b")
        transaction(node, "b").epoch = LAST_EPOCH
        await asyncio.sleep(TIMEOUT_MS / 1000 + 2)
        assert (transaction(node, "a").producer, transaction(node, "a").epoch) == (who[0], who[1] + 1)
        after = transaction(node, "b")
        assert (after.producer, after.epoch, after.previous_producer) == (last[0] + 1, 0, last[0])
        assert (await started(Caller(node), "c"))[0] == last[0] + 2

    over(1, test)


@promise("K12")
def test_transactions_with_long_ids_time_out_too() -> None:
    """The aborts of a round are divided into as many records as they need."""

    async def test(node: Node) -> None:
        watcher, ids = node.broker.transactions, ["\U0001f300" * (MAX_ID - 5) + f"{number:05}" for number in range(300)]
        for id in ids:
            who = await watcher.init(id, TIMEOUT_MS, (-1, -1))
            joined = await watcher.submit(JoinTransaction(id, who.producer, who.epoch, (), ("g",)))
            assert joined.judgement is Judgement.DONE
        assert sum(len(id.encode()) for id in ids) > MAX_RECORD_BYTES
        await asyncio.sleep(TIMEOUT_MS / 1000 + 2)
        assert {transaction(node, id).phase for id in ids} == {Phase.ABORTED}

    over(1, test)


@promise("K12")
def test_timeouts_wait_while_the_ledger_is_away() -> None:
    """The duty goes on, and aborts when the ledger is back."""

    async def test(node: Node) -> None:
        await opened(node)
        watcher, failures = node.broker.transactions, []
        submit = watcher.replica.submit

        async def away(*_: object) -> None:
            failures.append(1)
            raise StoreUnavailable("the ledger is away")

        watcher.replica.submit = away  # type: ignore[assignment, method-assign]
        await asyncio.sleep(TIMEOUT_MS / 1000 + 5)
        assert transaction(node).open and len(failures) >= 3
        watcher.replica.submit = submit  # type: ignore[method-assign]
        await asyncio.sleep(2)
        assert transaction(node).phase is Phase.ABORTED
        assert all(report.restarts == 0 for report in node.background.reports())

    over(1, test)


@promise("K12")
def test_all_brokers_name_the_same_one() -> None:
    """FindCoordinator in its versions with one key and with several; ids are spread over brokers."""

    async def test(*nodes: Node) -> None:
        ids = [f"tx-{number}" for number in range(40)]
        told = []
        for node in nodes:
            answer = await Caller(node)(FIND, 6, key_type=TRANSACTION, coordinator_keys=ids)
            assert {found.error_code for found in answer.coordinators} == {OK}
            told.append([found.node_id for found in answer.coordinators])
            for version in (1, 2, 3):
                found = await Caller(node)(FIND, version, key_type=TRANSACTION, key=ids[0])
                assert (found.error_code, found.node_id) == (OK, told[0][0])
        assert told[0] == told[1] == told[2] and set(told[0]) == {1, 2, 3}

    over(3, test)


@promise("K12")
def test_staged_offsets_outlive_the_expiry_of_groups() -> None:
    """Neither the group nor an offset with a staged successor is forgotten while its transaction is open."""

    async def test(node: Node) -> None:
        caller = Caller(node)
        who = await started(caller, timeout_ms=900_000)
        committed = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
        await caller(COMMIT_OFFSETS, 8, group_id="old", topics=committed, **nobody)
        for group in ("old", "new"):
            assert await stage(caller, who, 5, group=group) is OK
        await asyncio.sleep(700)
        assert await offset_of(caller, "old", stable=False) == 1
        assert (await end(caller, who))[0] is OK
        for group in ("old", "new"):
            assert await offset_of(caller, group) == 5

    over(1, test, Groups(offset_retention_ms=100_000))
