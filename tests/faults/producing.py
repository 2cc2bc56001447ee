"""An idempotent producer in a process of its own that writes down what was acknowledged.

Values are `NAME:COUNTER` and padding; record n goes to partition n modulo their number. For every acknowledged record
the file gets partition, counter and offset (i32, i32, i64, big endian). It says `ready` once it is connected and begins
when it is told so by a line. `FaultProducer.java` does the same.

    python -m tests.faults.producing BOOTSTRAP TOPIC PARTITIONS NAME COUNT FILE
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import confluent_kafka

ACK = struct.Struct(">iiq")
VALUE_BYTES = 100
GIVE_UP_SECONDS = 100.0


def value(name: str, counter: int) -> bytes:
    return f"{name}:{counter}:".encode().ljust(VALUE_BYTES, b".")


def parse(data: bytes) -> tuple[str, int]:
    name, counter, _ = data.split(b":", 2)
    return name.decode(), int(counter)


@dataclass(slots=True)
class _Acks:
    file: BinaryIO
    pending: list[bytes] = field(default_factory=list)
    failed: str | None = None

    def delivered(
        self, counter: int, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.failed = f"record {counter}: {error}"
            return
        self.pending.append(ACK.pack(message.partition(), counter, message.offset()))
        if len(self.pending) >= 1000:
            self.flush()

    def flush(self) -> None:
        self.file.write(b"".join(self.pending))
        self.file.flush()
        self.pending.clear()


def produce(bootstrap: str, topic: str, partitions: int, name: str, count: int, file: Path) -> str | None:
    """Write `count` records; answers what went wrong, if anything did."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "client.id": name}
    )
    producer.list_topics(topic, timeout=GIVE_UP_SECONDS)
    print("ready", flush=True)
    sys.stdin.readline()
    with file.open("wb") as out:
        acks = _Acks(out)

        def handler(counter: int) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
            return lambda error, message: acks.delivered(counter, error, message)

        for counter in range(count):
            while True:
                try:
                    producer.produce(
                        topic, value(name, counter), partition=counter % partitions, on_delivery=handler(counter)
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if counter % 500 == 0:
                producer.poll(0)
            if acks.failed:
                break
        left = producer.flush(GIVE_UP_SECONDS)
        acks.flush()
        return acks.failed or (f"{left} records were not acknowledged in time" if left else None)


class Producing(AbstractContextManager["Producing"]):
    """A producer's process, from outside."""

    def __init__(
        self, command: Sequence[str], bootstrap: str, topic: str, partitions: int, name: str, count: int, file: Path
    ) -> None:
        self.file = file
        self._errors = file.with_suffix(".stderr")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, bootstrap, topic, str(partitions), name, str(count), str(file)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def connected(self) -> None:
        """Wait until it is."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", self._errors.read_text()[-2000:]

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def finish(self, within: float) -> None:
        """Wait for its end, which must be a good one."""
        assert self._process.wait(timeout=within) == 0, self._errors.read_text()[-2000:]

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    bootstrap, topic, partitions, name, count, file = sys.argv[1:]
    sys.exit(produce(bootstrap, topic, int(partitions), name, int(count), Path(file)))
