"""Apache Kafka's own tools for groups, run unchanged: kafka-consumer-groups and the console consumer."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import confluent_kafka
import pytest

from tests.compat.common import DEADLINE_S, Deadline, new_topic
from tests.compat.kafka_tools import KafkaTools
from tests.compat.librdkafka import Librdkafka
from tests.support.promise import promise

PROMISES = ("K8", "K10")

pytestmark = pytest.mark.long
PARTITIONS, EACH = 2, 10
GROUPS = "consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "consumer.ConsoleConsumer"


@dataclass(frozen=True, slots=True)
class Tools:
    """Kafka's tools against one server, one topic with records and one group."""

    bootstrap: str
    topic: str
    kafka: KafkaTools
    group: str = field(default_factory=lambda: f"tools-{uuid.uuid4().hex[:8]}")

    def run(self, main: str, *arguments: str) -> str:
        """What a tool says on standard output; it must end well."""
        done = self.kafka.run(main, "--bootstrap-server", self.bootstrap, *arguments)
        assert done.code == 0, done.out + done.error
        return done.out

    def groups(self, *arguments: str) -> str:
        return self.run(GROUPS, "--group", self.group, *arguments)

    def consume(self, count: int) -> list[str]:
        """Values that the console consumer gets as a member of the group, in any order."""
        options = ["--topic", self.topic, "--group", self.group, "--from-beginning"]
        limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
        return sorted(self.run(CONSOLE_CONSUMER, *options, *limits).split())

    def offsets(self) -> dict[int, tuple[str, str]]:
        """Partitions with their current offset and lag, as `--describe` shows them."""
        return {int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LAG"]) for row in table(self.groups("--describe"))}

    @contextmanager
    def member(self) -> Iterator[confluent_kafka.Consumer]:
        """A consumer that is in the group and has all partitions."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**settings, "client.id": "the-member"})
        assigned: list[int] = []
        consumer.subscribe([self.topic], on_assign=lambda _, places: assigned.extend(p.partition for p in places))
        deadline = Deadline("the member has its partitions")
        try:
            while sorted(assigned) != list(range(PARTITIONS)):
                deadline.check()
                consumer.poll(0.1)
            yield consumer
        finally:
            consumer.close()


def table(text: str) -> list[dict[str, str]]:
    """Rows of a table whose first line names its columns; other lines before it are left out."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("GROUP"))
    names = lines[start].split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines[start + 1 :] if line.strip()]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture
def tools(bootstrap: str, kafka: KafkaTools) -> Tools:
    """A topic with ten records in each of two partitions."""
    made = Tools(bootstrap, new_topic("tools"), kafka)
    Librdkafka(bootstrap).create_topic(made.topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(PARTITIONS * EACH):
        producer.produce(made.topic, value=b"value-%02d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return made


@promise("K10")
@pytest.mark.timeout(180)
def test_offsets_of_a_group_without_members(tools: Tools) -> None:
    """Read as a group, describe, list, move, forget, delete."""
    values = [f"value-{number:02}" for number in range(PARTITIONS * EACH)]
    assert tools.consume(len(values)) == values
    assert tools.offsets() == {0: ("10", "0"), 1: ("10", "0")}
    assert tools.group in tools.run(GROUPS, "--list").split()

    everywhere = ["--reset-offsets", "--topic", tools.topic]
    planned = tools.groups(*everywhere, "--to-earliest", "--dry-run")
    assert [row["NEW-OFFSET"] for row in table(planned)] == ["0", "0"]
    moved = tools.groups(*everywhere, "--shift-by", "-3", "--execute")
    assert [row["NEW-OFFSET"] for row in table(moved)] == ["7", "7"]
    assert tools.consume(6) == values[-6:]

    tools.groups("--delete-offsets", "--topic", f"{tools.topic}:0")
    assert tools.offsets() == {1: ("10", "0")}
    assert "successful" in tools.groups("--delete")
    assert tools.group not in tools.run(GROUPS, "--list").split()


@promise("K8")
@pytest.mark.timeout(180)
def test_a_group_with_a_member(tools: Tools) -> None:
    """Its member and state are shown; what would pull the rug from under it is refused."""
    with tools.member() as member:
        member.commit(offsets=[confluent_kafka.TopicPartition(tools.topic, 0, 4)], asynchronous=False)
        rows = {int(row["PARTITION"]): row for row in table(tools.groups("--describe"))}
        assert (rows[0]["CURRENT-OFFSET"], rows[0]["LAG"], rows[0]["CLIENT-ID"]) == ("4", "6", "the-member")
        assert (rows[1]["CURRENT-OFFSET"], rows[1]["CLIENT-ID"]) == ("-", "the-member")
        (row,) = table(tools.groups("--describe", "--members"))
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("the-member", str(PARTITIONS))
        assert "Stable" in tools.groups("--describe", "--state")
        assert "GroupNotEmptyException" in tools.groups("--delete")
        refused = tools.groups("--reset-offsets", "--topic", tools.topic, "--to-earliest", "--execute")
        assert "inactive" in refused
        member.poll(0)
    assert tools.offsets()[0] == ("4", "6")
