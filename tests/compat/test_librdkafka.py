"""confluent-kafka (librdkafka)."""

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.common import new_topic
from tests.compat.contract import ReaderContract, WriterContract
from tests.compat.librdkafka import Librdkafka
from tests.support.promise import promise


@pytest.fixture(scope="module")
def client(reference: Librdkafka) -> Librdkafka:
    return reference


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass


@promise("K12")
def test_offsets_in_transactions(bootstrap: str) -> None:
    """Committed with the transaction, dropped with it, and refused to a producer that another one replaced."""
    topic = new_topic("offsets")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, 1)]).values()
    made.result()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(600)

    def stage(offset: int) -> None:
        producer.begin_transaction()
        places = [confluent_kafka.TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 600)

    def committed() -> int:
        [found] = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 600)
        return int(found.offset)

    stage(10)
    producer.commit_transaction(600)
    assert committed() == 10
    stage(11)
    producer.abort_transaction(600)
    assert committed() == 10
    confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic}).init_transactions(600)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        stage(12)
        producer.commit_transaction(600)
    assert refused.value.args[0].fatal()
    assert committed() == 10
    consumer.close()
