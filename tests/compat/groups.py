"""Drives members of groups that live in programs of other clients, and checks who gets what, and how often.

The programs and what they say are described in `members/common.py`.
"""

import json
import os
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from harness.patience import Patience
from tests.compat.common import DEADLINE_S, new_topic
from tests.compat.librdkafka import Librdkafka

PATIENCE_S = 90.0
"""How long a group may take to settle, time-outs of sessions included."""

SESSION_MS = 6_000 if "HEADWATER_TEST_BOOTSTRAP" in os.environ else 4_000
"""As short as the server takes: Apache Kafka by default, ours by its settings in `conftest.py`."""

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How the members of a group work together."""

    assignor: str
    protocol: str = "classic"
    session_ms: int = SESSION_MS


@dataclass(slots=True)
class Seen:
    """What one member has said so far."""

    assignment: list[int] = field(default_factory=list)
    changes: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    uncommitted: list[str] = field(default_factory=list)
    left: bool = False
    failed: str | None = None


class Group:
    """One group over one topic, as its members tell of it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.topic = new_topic("group")
        self.id = f"g-{uuid.uuid4().hex[:12]}"
        self.members: dict[str, Seen] = {}
        self.records: Counter[Place] = Counter()
        self._news = threading.Condition()

    def heard(self, said: Mapping[str, Any]) -> None:
        with self._news:
            seen = self.members.get(said["member"])
            if seen is None:
                return  # the last words of one who is dead
            match said["event"]:
                case "assignment":
                    seen.assignment = list(said["partitions"])
                    seen.changes += 1
                case "record":
                    self.records[said["partition"], said["offset"]] += 1
                case "committed":
                    seen.committed.update({int(p): offset for p, offset in said["offsets"].items()})
                case "uncommitted":
                    seen.uncommitted.append(said["why"])
                case "left":
                    seen.left = True
                case "failed":
                    seen.failed = said["why"]
            self._news.notify_all()

    def wait(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        patience = Patience(seconds)
        with self._news:
            while not holds():
                failed = {name: seen.failed for name, seen in self.members.items() if seen.failed}
                assert not failed, f"{what}: {failed}"
                if not self._news.wait(patience.left) and patience.ended:
                    raise TimeoutError(f"{what}: {self.members}")

    def settled(self, members: Iterable[str], partitions: int) -> None:
        """Wait until these members have all partitions, each one of them once, in equal shares."""
        names = list(members)

        def holds() -> bool:
            shares = [self.members[name].assignment for name in names]
            sizes = [len(share) for share in shares]
            return sorted(p for share in shares for p in share) == list(range(partitions)) and (
                max(sizes) - min(sizes) <= 1
            )

        self.wait(holds, f"{names} share {partitions} partitions")

    def got(self, places: Sequence[Place]) -> None:
        """Wait until every one of these records was seen and committed by somebody."""

        def holds() -> bool:
            ends: dict[int, int] = {}
            for seen in self.members.values():
                for partition, offset in seen.committed.items():
                    ends[partition] = max(offset, ends.get(partition, 0))
            return all(self.records[place] and ends.get(place[0], 0) > place[1] for place in places)

        self.wait(holds, f"{len(places)} records are seen and committed")


class Host(AbstractContextManager["Host"]):
    """A process with members of any number of groups in it."""

    def __init__(self, command: Sequence[str], bootstrap: str, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [*command, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        self._groups: dict[str, Group] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self, group: Group, member: str, instance: str | None = None) -> None:
        name = f"{group.id}/{member}"
        self._groups[name] = group
        group.members[name] = Seen()
        asked = {"group": group.id, "topic": group.topic, "instance": instance, **asdict(group.kind)}
        self._ask(do="start", member=name, **asked)

    def leave(self, group: Group, member: str) -> None:
        """Ask a member to go, and wait until it has."""
        name = f"{group.id}/{member}"
        self._ask(do="leave", member=name)
        group.wait(lambda: group.members[name].left, f"{member} leaves")
        group.members[name].assignment = []

    def kill(self) -> None:
        """SIGKILL; its members are gone without a word."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=DEADLINE_S)
        self._reader.join(timeout=DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, **request: object) -> None:
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # what else there is was logged by the client
                said = json.loads(line)
                self._groups[said["member"]].heard(said)


class Topic:
    """Writes records into all partitions of a group's topic, and makes more partitions."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self._servers: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.name = name
        self.partitions = partitions
        self.written: list[Place] = []
        Librdkafka(bootstrap).create_topic(name, partitions)

    def write(self, each: int = 10) -> list[Place]:
        """So many records into each partition; answers where they are."""
        places: list[Place] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            places.append((partition, offset))

        producer = confluent_kafka.Producer({**self._servers, "topic.metadata.refresh.interval.ms": 500})
        for number in range(each * self.partitions):
            producer.produce(self.name, value=b"%d" % number, partition=number % self.partitions, on_delivery=delivered)
        assert producer.flush(DEADLINE_S) == 0
        assert len(places) == each * self.partitions
        self.written += places
        return places

    def grow(self, partitions: int) -> None:
        admin = AdminClient(self._servers)
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(timeout=DEADLINE_S)
        self.partitions = partitions

    def committed(self, group: str) -> dict[int, int]:
        """The group's offsets, as an administrator sees them."""
        asked = [confluent_kafka.TopicPartition(self.name, p) for p in range(self.partitions)]
        consumer = confluent_kafka.Consumer({**self._servers, "group.id": group})
        try:
            return {found.partition: found.offset for found in consumer.committed(asked, timeout=DEADLINE_S)}
        finally:
            consumer.close()
