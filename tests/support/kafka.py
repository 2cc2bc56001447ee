"""An Apache Kafka for tests: the reference that Headwater is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.systems import KAFKA_LIBS, Kafka, java

QUICK_GROUPS = """\
group.initial.rebalance.delay.ms=0
group.consumer.assignment.interval.ms=0
group.consumer.assignor.offload.enable=false
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
"""
"""Groups start and are assigned at once, and the first of them waits for few internal partitions."""


def kafka_is_installed() -> bool:
    """Whether scripts/setup-tools has fetched it."""
    return any(KAFKA_LIBS.glob("kafka-clients-*.jar"))


class TestingKafka(Kafka):
    """One node with a small heap and groups that do not wait for more members."""

    __test__ = False
    SETTINGS: ClassVar[str] = Kafka.SETTINGS + QUICK_GROUPS

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "kafka")

    def command(self) -> list[str]:
        return java(("-Xmx512M", "-Xms256M"), "kafka.Kafka", str(self._settings), server=True)
