"""Links against a real Apache Kafka: every committed record once, at its offset, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import kafka
from tests.compat.common import unavailable
from tests.faults.linking import QUICK_LINKS, create_link, create_topic, fill, kills, seen, until_copied
from tests.support.running import Running

pytestmark = pytest.mark.long
PARTITIONS = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka."""
    if not kafka.is_installed():
        unavailable(".tools/kafka", "run scripts/setup-tools kafka")
    directory = tmp_path_factory.mktemp("source")
    with kafka.Kafka(directory, settings=kafka.QUICK_GROUPS, heap=("-Xmx512M", "-Xms256M")) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Headwater that copies links."""
    with Running(tmp_path_factory.mktemp("headwater"), settings=QUICK_LINKS) as running:
        yield running


def test_link_processes_that_are_killed_copy_every_committed_record_once(source: str, server: Running) -> None:
    create_topic(source, "orders", PARTITIONS)
    fill(source, "orders", PARTITIONS, 20_000, seed=0)
    create_link(server, "first", source, "--topics", "orders")
    for number in kills(server, 5):
        fill(source, "orders", PARTITIONS, 16_000, seed=number + 1)
    until_copied(server, source, "orders", PARTITIONS)
    assert seen(server.bootstrap, "orders", PARTITIONS) == seen(source, "orders", PARTITIONS)
