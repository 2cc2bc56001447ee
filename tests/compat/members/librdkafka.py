"""Members that are confluent-kafka's consumers (librdkafka)."""

from typing import Any

import confluent_kafka

from tests.compat.members.common import HEARTBEAT_MS, METADATA_MS, POLL_S, Member, serve


def settings(member: Member) -> dict[str, Any]:
    own: dict[str, Any] = {
        "bootstrap.servers": member.bootstrap,
        "group.id": member.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": METADATA_MS,
        "group.protocol": member.protocol,
    }
    if member.instance is not None:
        own["group.instance.id"] = member.instance
    if member.protocol == "consumer":
        return {**own, "group.remote.assignor": member.assignor}
    classic = {"session.timeout.ms": member.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
    return {**own, **classic, "partition.assignment.strategy": member.assignor}


def live(member: Member) -> None:
    consumer = confluent_kafka.Consumer(settings(member))
    adding = member.protocol == "consumer" or member.assignor == "cooperative-sticky"

    def assigned(_: Any, partitions: list[Any]) -> None:
        member.assigned((p.partition for p in partitions), added=adding)

    def revoked(_: Any, partitions: list[Any]) -> None:
        member.revoked(p.partition for p in partitions)

    consumer.subscribe([member.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not member.leaving.is_set():
        for message in consumer.consume(500, timeout=POLL_S):
            error = message.error()
            if error is None:
                member.record(message.partition(), message.offset())
            elif not error.retriable() and error.code() != confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise confluent_kafka.KafkaException(error)
        if member.ends:
            commit(consumer, member, dict(member.ends))
    consumer.close()


def commit(consumer: confluent_kafka.Consumer, member: Member, ends: dict[int, int]) -> None:
    places = [confluent_kafka.TopicPartition(member.topic, p, offset) for p, offset in ends.items()]
    try:
        consumer.commit(offsets=places, asynchronous=False)
        member.committed(ends)
    except confluent_kafka.KafkaException as error:
        member.say("uncommitted", why=str(error))


if __name__ == "__main__":
    serve(live)
