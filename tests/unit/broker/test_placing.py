"""Shards are divided among the brokers that serve, each to one of them."""

from __future__ import annotations

from harness.virtual import run
from headwater.app.node import Node
from headwater.broker import placing
from headwater.state.streams.stored.groups import SHARDS
from tests.support.virtual_nodes import NodeWorld


def _division(nodes: list[Node]) -> dict[int, frozenset[int]]:
    state = nodes[0].cluster.state
    return {n: placing.shards_of(state, placing.TRANSACTIONS, SHARDS, n) for n in (1, 2, 3)}


def test_the_shards_of_brokers_are_those_that_are_placed_there() -> None:
    """Also after a broker has left: its shards go to the others, and theirs stay."""

    async def main() -> None:
        world = NodeWorld()
        nodes = [await world.node(number) for number in (1, 2, 3)]
        for node in nodes:
            await node.cluster.barrier()
        before = _division(nodes)
        for shard in range(SHARDS):
            member = placing.place(nodes[0].cluster.state, placing.TRANSACTIONS + shard)
            assert member is not None
            assert [node for node, shards in before.items() if shard in shards] == [member.node]
        await nodes[2].membership.leave()
        await nodes[0].cluster.barrier()
        after = _division(nodes)
        assert after[3] == frozenset()
        assert before[1] < after[1]
        assert before[2] < after[2]
        assert after[1] | after[2] == frozenset(range(SHARDS))
        assert not after[1] & after[2]

    run(main())
