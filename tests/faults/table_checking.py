"""Whether a topic's tables on a cluster hold exactly the log. The readers are not ours."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog.rest import RestCatalog

from demo.readers import CATALOG, NAMESPACE, sum_of
from harness.cluster import Cluster
from harness.storage import Access, Place
from tests.faults.checking import Log
from tests.faults.lake_running import READERS, Row
from tests.faults.producing import value


def check_tables(cluster: Cluster, topic: str, log: Log) -> None:
    """Settle what is left; then everybody finds the log's records, each once, where the log has it."""
    cluster.settle(topic)
    place, wanted = place_of(cluster, topic), sum_of(rows_of(log))
    found = {name: read(place) for name, read in READERS.items()}
    assert found == dict.fromkeys(READERS, wanted), f"{topic}: the log has {wanted}, found {found}"


def place_of(cluster: Cluster, topic: str) -> Place:
    """Where a topic can be read, as the REST catalog tells."""
    access = Access.of(cluster.stores.environment)
    uri = f"http://{cluster.gateway}/iceberg"
    table = RestCatalog(CATALOG, uri=uri, **access.of_iceberg).load_table((NAMESPACE, topic))
    return Place(topic, cluster.bootstrap, uri, table.location(), access)


def rows_of(log: Log) -> Iterator[Row]:
    """The records of a log that `Load` has written."""
    for name, places in log.places.items():
        for counter, (partition, offset) in places.items():
            yield partition, offset, None, value(name, counter)
