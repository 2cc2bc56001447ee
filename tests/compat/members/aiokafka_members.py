"""Members that are aiokafka's consumers."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from tests.compat.members.common import HEARTBEAT_MS, METADATA_MS, POLL_S, Member, serve

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revoked(p.partition for p in revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned(p.partition for p in assigned)


async def _live(member: Member) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=member.bootstrap,
        group_id=member.group,
        group_instance_id=member.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=member.session_ms,
        rebalance_timeout_ms=member.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=METADATA_MS,
        partition_assignment_strategy=[ASSIGNORS[member.assignor]],
    )
    consumer.subscribe([member.topic], listener=Listener(member))
    await consumer.start()
    try:
        while not member.leaving.is_set():
            for place, messages in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).items():
                for message in messages:
                    member.record(place.partition, message.offset)
            if member.ends:
                await commit(consumer, member, dict(member.ends))
    finally:
        await consumer.stop()


async def commit(consumer: AIOKafkaConsumer, member: Member, ends: dict[int, int]) -> None:
    try:
        await consumer.commit({TopicPartition(member.topic, p): offset for p, offset in ends.items()})
        member.committed(ends)
    except KafkaError as error:
        member.say("uncommitted", why=repr(error))


def live(member: Member) -> None:
    asyncio.run(_live(member))


if __name__ == "__main__":
    serve(live)
