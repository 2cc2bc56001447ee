"""A client on three brokers in two zones, with ledgers on etcd and objects in S3.

`make test-cluster` runs all clients, groups and faults on every kind of ledger.
"""

import functools
import gc
from collections.abc import Iterator

import pytest

from harness.cluster import Cluster
from tests.compat.contract import ReaderContract, WriterContract, WrittenOnce, write_sample
from tests.compat.librdkafka import Librdkafka
from tests.compat.test_kafka_python import KafkaPython

PROMISES = ("M1",)

# kafka-python leaves sockets of a consumer that is closed to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Cluster(tmp_path_factory.mktemp("cluster"), "etcd") as cluster:
        yield cluster.bootstrap.split(",")[0]  # any broker names the others


@pytest.fixture(scope="module")
def reference(bootstrap: str) -> Librdkafka:
    return Librdkafka(bootstrap)


@pytest.fixture(scope="module")
def written_by_reference(reference: Librdkafka) -> WrittenOnce:
    return functools.cache(functools.partial(write_sample, reference))


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaPython]:
    yield KafkaPython(bootstrap)
    gc.collect()  # as long as their warnings are ignored


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass
