"""What tests of gateways share."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harness.patience import Patience
from tests.support.running import Running


def consumed(server: Running, topic: str, partition: int, count: int) -> list[Any]:
    """Records of a partition, as Kafka's consumer reads them."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Any] = []
    patience = Patience(60)
    while len(found) < count and not patience.ended:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found
