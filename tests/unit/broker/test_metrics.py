"""What `/metrics` says of transactions."""

import asyncio

from harness.virtual import run
from headwater.app.node import Node
from headwater.broker.metrics import of_transactions
from headwater.state.commands.base import Tick
from headwater.state.commands.streams import AppendUnits, Mode, Unit, UnitChunk
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    InitTransaction,
    JoinTransaction,
    TransactionsCommand,
)
from headwater.state.results import Appended, Judgement, Transacted
from headwater.state.streams.stored.transactions import LAST_EPOCH
from tests.support.virtual_nodes import ONE, NodeWorld, topic

PROMISES = ("O2",)

MINUTE = 60_000


def gauges(node: Node) -> dict[str, float]:
    """The metrics with one sample, by their names without the prefix."""
    found = {metric.name.removeprefix("headwater_"): metric.samples for metric in of_transactions(node.broker)}
    return {name: samples[0][1] for name, samples in found.items() if len(samples) == 1}


def ends(node: Node) -> dict[str, float]:
    [found] = [m for m in of_transactions(node.broker) if m.name == "headwater_transactions_ended_total"]
    return {labels["kind"]: count for labels, count in found.samples if count}


async def do(node: Node, command: TransactionsCommand) -> Transacted:
    [result] = await node.domains[ONE].submit([command])
    assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
    return result


async def append(node: Node, stream: int, producer: int, epoch: int, records: int, sequence: int) -> None:
    """Enter an object with a batch of a transaction into the ledger."""
    chunk = UnitChunk(stream, 93, [(100, records, 5)], [(producer, epoch, 0)], bytes([Mode.JOINS]))
    command = AppendUnits(sequence, 1_000, 0, "local", [Unit([], [chunk])])
    [result] = await node.domains[ONE].submit([command])
    assert isinstance(result, Appended) and result.chunks[0].verdicts is None, result


def test_open_transactions() -> None:
    """Every broker tells the gauges of the whole domain."""

    async def told() -> None:
        world = NodeWorld()
        one, two = await world.node(1), await world.node(2)
        quiet = {"transactional_ids": 0.0, "transactions_open": 0.0, "transactions_oldest_seconds": 0.0}
        assert gauges(one) == {**quiet, "stable_lag": 0.0}
        [stream, other] = (await topic(one, partitions=2)).streams
        for name, producer in (("a", 70), ("b", 80)):
            await do(one, InitTransaction(name, MINUTE, producer, -1, -1))
        await append(one, stream, 70, 0, records=3, sequence=1)
        await asyncio.sleep(5)
        await append(one, stream, 80, 0, records=4, sequence=2)
        await append(one, other, 80, 0, records=2, sequence=3)
        await one.domains[ONE].submit([Tick()])
        await two.domains[ONE].barrier()
        for node in (one, two):
            found = gauges(node)
            assert 5 <= found.pop("transactions_oldest_seconds") < 7
            assert found == {"transactional_ids": 2, "transactions_open": 2, "stable_lag": 7}
        await do(one, EndTransaction("a", 70, 0, commit=True, bump=True, fresh=0))
        found = gauges(one)
        assert found.pop("transactions_oldest_seconds") < 2
        assert found == {"transactional_ids": 2, "transactions_open": 1, "stable_lag": 5}
        for node in (two, one):
            await node.stop()

    run(told())


def test_ends_are_counted_once() -> None:
    """Not again for a repeated request, not by the other brokers, and not for an abort without a transaction."""

    async def told() -> None:
        world = NodeWorld()
        one, two = await world.node(1), await world.node(2)
        [stream] = (await topic(one)).streams
        await two.cluster.barrier()
        await do(one, InitTransaction("a", MINUTE, 70, -1, -1))
        epoch = 0

        async def begin() -> None:
            await do(one, JoinTransaction("a", 70, epoch, (stream,), ()))

        await begin()
        for node in (one, two, one):
            await do(node, EndTransaction("a", 70, epoch, commit=True, bump=True, fresh=0))
        assert (ends(one), ends(two)) == ({"committed": 1}, {})
        epoch += 1
        await begin()
        for node in (two, one):
            await do(node, EndTransaction("a", 70, epoch, commit=False, bump=True, fresh=0))
        assert (ends(one), ends(two)) == ({"committed": 1}, {"aborted": 1})
        epoch += 1
        await do(one, EndTransaction("a", 70, epoch, commit=False, bump=True, fresh=0))
        assert (ends(one), ends(two)) == ({"committed": 1}, {"aborted": 1}), "there was no transaction"
        epoch += 1
        await begin()
        found = one.domains[ONE].state.transactions.get("a")
        assert found is not None
        await do(one, AbortTransaction("a", found.number, 70, epoch, 0))
        epoch += 1
        await begin()
        for _ in range(2):
            await do(two, InitTransaction("a", MINUTE, 0, 70, epoch))
        assert ends(one) == {"committed": 1, "timed_out": 1}
        assert ends(two) == {"aborted": 1, "fenced": 1}
        found.epoch, epoch = LAST_EPOCH, LAST_EPOCH
        await begin()
        for fresh in (-1, 99):
            end = EndTransaction("a", 70, epoch, commit=True, bump=True, fresh=fresh)
            [result] = await one.domains[ONE].submit([end])
            assert (isinstance(result, Transacted) and result.judgement is Judgement.DONE) == (fresh >= 0)
        assert ends(one) == {"committed": 2, "timed_out": 1}, "an end that needed another producer id was none"
        three = await world.node(3)
        assert ends(three) == {}, "what was there before a broker started is not its own"
        for node in (three, two, one):
            await node.stop()

    run(told())
