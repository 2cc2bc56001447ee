"""Members that are kafka-python's consumers."""

import warnings
from typing import Any

from tests.compat.members.common import HEARTBEAT_MS, METADATA_MS, Member, serve

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

POLL_MS = 3_100
"""A join that ends between two polls is lost: kafka-python 3.0.12 looks for its result only while it thinks that it has
to join, and sits there without partitions. So polls are few, and out of step with looks at the metadata."""
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revoked(p.partition for p in revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned(p.partition for p in assigned)


def live(member: Member) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=member.bootstrap,
        group_id=member.group,
        group_instance_id=member.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=member.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=METADATA_MS,
        partition_assignment_strategy=[ASSIGNORS[member.assignor]],
    )
    consumer.subscribe([member.topic], listener=Listener(member))
    while not member.leaving.is_set():
        for place, messages in consumer.poll(timeout_ms=POLL_MS).items():
            for message in messages:
                member.record(place.partition, message.offset)
        if member.ends:
            commit(consumer, member, dict(member.ends))
    consumer.close()


def commit(consumer: kafka.KafkaConsumer, member: Member, ends: dict[int, int]) -> None:
    places = {kafka.TopicPartition(member.topic, p): OffsetAndMetadata(o, "", -1) for p, o in ends.items()}
    try:
        consumer.commit(places)
        member.committed(ends)
    except KafkaError as error:
        member.say("uncommitted", why=repr(error))


if __name__ == "__main__":
    serve(live)
