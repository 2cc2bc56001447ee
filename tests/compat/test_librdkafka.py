"""confluent-kafka (librdkafka)."""

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
