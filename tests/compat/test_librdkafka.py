"""confluent-kafka (librdkafka)."""

import confluent_kafka
import pytest

from tests.compat.contract import ReaderContract, WriterContract
from tests.compat.librdkafka import Librdkafka


@pytest.fixture(scope="module")
def client(reference: Librdkafka) -> Librdkafka:
    return reference


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass


def test_transactions_are_refused_at_once(bootstrap: str) -> None:
    """K12: until there are transactions, the producer gives up for good instead of waiting for a coordinator."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(600)
    error = refused.value.args[0]
    assert error.fatal() and not error.retriable()
    assert "Transactions are not supported yet" in error.str()
