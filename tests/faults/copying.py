"""Copiers: programs that read a topic in a group and write each record to another topic, in transactions.

    PROGRAM ID GROUP SOURCE TARGET PARTITIONS SPOIL_EVERY TIMEOUT_MS BOOTSTRAP

A copier is a transactional producer with the id ID and the time-out TIMEOUT_MS, and a member of GROUP. What a poll
gives is one transaction: each record goes to partition KEY modulo PARTITIONS of TARGET, and the offsets of SOURCE are
part of the transaction. One transaction of SPOIL_EVERY is aborted on purpose; its values begin with `!`. A transaction
that fails is aborted, or, if that fails too, ended by a new producer. Then the copier goes back to the committed
position. It ends well when its input does, and says what happens, an event a line:

    ready                   the copier has partitions
    committed COUNT         a transaction with so many records
    spoiled COUNT           a transaction that was aborted on purpose
    undone WHY              something failed, and was undone
    renewed WHY             something failed for good; there is a new producer
    again WHY               a call is repeated

Keys of the source are numbers, and values are the counters of their key.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from harness.jvm import OF_KAFKA, SHORT_LIVED
from harness.kafka import LOGGING
from harness.patience import Patience, eventually
from harness.tools import ROOT, TOOLS
from tests.compat.common import tool, unavailable
from tests.faults.checking import suppress_lost_connections

SOURCE, TARGET, GROUP = "source", "target", "copiers"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 4, 3
KEYS = 20
AHEAD = 400
"""So many records of the source may wait for their copies."""
END_S = 120.0
READ_S = 90.0


def java(main: str, *libraries: str) -> list[str]:
    """The command line of a Java program of `tests/faults/java`."""
    found = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    classes = tool(f"faults/java/{main}.class").parent
    jars = [f"{TOOLS / name / 'libs'}/*" for name in libraries or ("kafka",)]
    return [
        found,
        *(SHORT_LIVED if libraries else OF_KAFKA),
        "-Xmx256m",
        f"-Dlog4j2.configurationFile={LOGGING}",
        "-cp",
        ":".join([*jars, str(classes)]),
        main,
    ]


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.faults.copiers.{module}"]


CLIENTS: Mapping[str, Callable[[], list[str]]] = {
    "java": lambda: java("Copier"),
    "librdkafka": lambda: _python("librdkafka"),
    "franz-go": lambda: [str(tool("compat/franz-copier"))],
    "kafka-python": lambda: _python("kafka_python_copier"),
    "aiokafka": lambda: _python("aiokafka_copier"),
}
ALONE = {"aiokafka"}
"""Clients whose transactions name no member of their group. Two copiers of theirs would copy records twice."""


def waiting(look: Callable[[], bool], what: str, who: object, seconds: float) -> None:
    """As `eventually`, with what is known of somebody when it gives up."""
    try:
        eventually(look, what, seconds)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {who}") from None


class Talking(AbstractContextManager["Talking"]):
    """A program that says an event a line, from outside."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        """What it said and logged."""
        self.heard: Counter[str] = Counter()
        """How often each event was said."""
        self.records: Counter[str] = Counter()
        """How many records the events named."""
        self.last: dict[str, str] = {}
        """What was said last with each event."""
        self._lock = threading.Lock()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.log.open("a") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                event, _, more = line.strip().partition(" ")
                with self._lock:
                    self.last[event] = more
                    self.heard[event] += 1
                    if more.isdecimal():
                        self.records[event] += int(more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def waits_for(self, event: str, times: int = 1, seconds: float = END_S) -> None:
        """Wait until an event was said so often."""
        waiting(lambda: self._said(event, times), f"{event} is said {times} times", self, seconds)

    def _said(self, event: str, times: int) -> bool:
        if self.heard[event] < times and self.process.poll() is not None:
            raise AssertionError(f"{self} ended with {self.process.returncode}")
        return self.heard[event] >= times

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self, seconds: float = END_S) -> None:
        """End its input and wait for its end, which must be a good one."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        waiting(lambda: self.process.poll() is not None, "the program ends", self, seconds)
        self._reader.join(END_S)
        assert self.process.returncode == 0, f"{self} ended with {self.process.returncode}"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self._reader.join(END_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __str__(self) -> str:
        return f"{self.log.name}, heard {dict(self.heard)}, last {self.log.read_text()[-1500:]}"


class Source(AbstractContextManager["Source"]):
    """Writes the source, never far ahead of what was copied."""

    def __init__(self, bootstrap: str, copied: Callable[[], int], topic: str = SOURCE) -> None:
        self.written: Counter[int] = Counter()
        """How many values each key has."""
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._copied = copied
        self._stopping = threading.Event()
        self._failed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if number - self._copied() >= AHEAD:
                self._producer.poll(0.01)
                continue
            key = number % KEYS
            self._producer.produce(
                self._topic, str(self.written[key]), str(key), key % SOURCE_PARTITIONS, on_delivery=self._delivered
            )
            self.written[key] += 1
            number += 1

    def _delivered(self, error: KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self._failed.append(error)

    def finish(self) -> int:
        """Write no more; answers how many records there are."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(END_S)
        assert not left and not self._failed, f"{left} records were not written, {self._failed[:3]}"
        return self.written.total()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


@dataclass(slots=True)
class Copies:
    """The target, as a consumer reads it."""

    values: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The values of each key, in order."""
    places: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """Key and value by partition and offset."""

    def check(self, written: Mapping[int, int]) -> None:
        """Each record of the source is there once, per key in order, and nothing else."""
        spoiled = [place for place, (_, value) in self.places.items() if value.startswith("!")]
        assert not spoiled, f"{len(spoiled)} aborted records are seen, first {spoiled[:5]}"
        for key, count in written.items():
            found = self.values.get(str(key), [])
            if found != [str(number) for number in range(count)]:
                numbers = [int(value) for value in found]
                lost = sorted(set(range(count)) - set(numbers))
                doubled = sorted(number for number, times in Counter(numbers).items() if times > 1)
                raise AssertionError(f"key {key}: {count} written, lost {lost[:5]}, doubled {doubled[:5]}, or disorder")
        assert len(self.values) == len(written)


def read_copies(
    bootstrap: str, topic: str = TARGET, partitions: int = TARGET_PARTITIONS, *, committed: bool = True
) -> Copies:
    """Read a topic from its start to the end that this isolation has."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    copies, patience = Copies(), Patience(READ_S)
    reading = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in reading])
        while reading:
            assert not patience.ended, f"partitions {reading} have no end, {len(copies.places)} records"
            for message in consumer.consume(10_000, timeout=0.2):
                partition, error = message.partition(), message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(partition or 0)
                elif error is not None:
                    with suppress_lost_connections():
                        raise KafkaException(error)
                else:
                    offset, key, value = message.offset(), message.key(), message.value()
                    assert partition is not None and offset is not None and key is not None and value is not None
                    copies.values[key.decode()].append(value.decode())
                    copies.places[partition, offset] = key.decode(), value.decode()
        return copies
    finally:
        consumer.close()


class Seen(AbstractContextManager["Seen"]):
    """Follows the target as a committed reader and counts its records."""

    def __init__(self, bootstrap: str, topic: str = TARGET, partitions: int = TARGET_PARTITIONS) -> None:
        self.count = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            found = self._consumer.consume(1000, timeout=0.1)
            self.count += sum(message.error() is None for message in found)

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
