"""Coordinators over nodes in virtual time, and requests to them."""

from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from harness.virtual import run
from headwater.app.node import Node
from headwater.settings.settings import Groups
from tests.support.nodes import Caller
from tests.support.virtual_nodes import NodeWorld, topic

COMMIT, FETCH, FIND, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = (
    *(8, 9, 10, 11, 12, 13, 14, 15, 16),
    *(42, 47),
)
CONSUMER_BEAT, CONSUMER_DESCRIBE = 68, 69
SESSION = 10_000
PROMPT = Groups(initial_rebalance_delay_ms=0)


class Coordinators:
    """Nodes, and requests to the right one of them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def of(self, group: str) -> Node:
        member = self.nodes[0].broker.coordinator.place(group)
        assert member is not None
        return next(node for node in self.nodes if node.settings.node == member.node)

    def ask(self, group: str) -> Caller:
        return Caller(self.of(group))

    async def join(self, group: str, member_id: str = "", **given: Any) -> Any:
        facts = {
            "session_timeout": SESSION,
            "rebalance_timeout": 3 * SESSION,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"}],
            **given,
        }
        return await self.ask(group)(JOIN, 3, group_id=group, member_id=member_id, **facts)

    async def sync(self, group: str, member_id: str, generation: int, assignments: dict[str, bytes]) -> Any:
        entered = [{"member_id": name, "assignment": data} for name, data in assignments.items()]
        return await self.ask(group)(
            SYNC, 3, group_id=group, member_id=member_id, generation_id=generation, assignments=entered
        )

    async def stable(self, group: str) -> str:
        """A stable group of one member; its id."""
        joined = await self.join(group)
        assert joined.error_code is ErrorCode.none
        await self.sync(group, joined.member_id, joined.generation_id, {joined.member_id: b"mine"})
        member_id: str = joined.member_id
        return member_id

    async def beat(self, group: str, member_id: str, generation: int) -> ErrorCode:
        answer = await self.ask(group)(BEAT, 3, group_id=group, member_id=member_id, generation_id=generation)
        code: ErrorCode = answer.error_code
        return code

    async def commit(
        self, group: str, offset: int, member_id: str = "", generation: int = -1, at: Node | None = None, **given: Any
    ) -> Any:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note", **given}
        caller = Caller(at) if at is not None else self.ask(group)
        answer = await caller(
            COMMIT,
            8,
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[{"name": "t", "partitions": [partition]}],
        )
        return answer.topics[0].partitions[0].error_code

    async def committed(self, group: str, at: Node | None = None) -> Any:
        caller = Caller(at) if at is not None else self.ask(group)
        wanted = [{"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}]
        answer = await caller(FETCH, 8, groups=wanted, require_stable=True)
        if answer.groups[0].error_code is not ErrorCode.none:
            return answer.groups[0].error_code
        return answer.groups[0].topics[0].partitions[0].committed_offset


def over(count: int, test: Callable[[Coordinators], Awaitable[None]], groups: Groups = PROMPT) -> None:
    """Run a test over so many brokers."""

    async def main() -> None:
        world = NodeWorld()
        nodes = [await world.node(number, groups=groups) for number in range(1, count + 1)]
        await topic(nodes[0])
        for node in nodes:
            await node.cluster.barrier()
        await test(Coordinators(nodes))

    run(main())


async def consumer(world: Coordinators, group: str, member_id: str, epoch: int, **given: Any) -> Any:
    """A heartbeat of KIP-848; one that joins says everything."""
    facts: dict[str, Any] = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    if epoch == 0:
        facts = {"rebalance_timeout": SESSION, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return await world.ask(group)(
        CONSUMER_BEAT, 1, group_id=group, member_id=member_id, member_epoch=epoch, **{**facts, **given}
    )
