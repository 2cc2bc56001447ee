"""kcat. It has no admin, no timestamps of one's own and only headers that all records share.

So it reads what librdkafka wrote, and what it writes is checked apart.
"""

import io
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.compat import wire
from tests.compat.common import (
    DEADLINE_S,
    PARTITION,
    PARTITIONS,
    Headers,
    Received,
    Record,
    check,
    new_topic,
    unavailable,
)
from tests.compat.contract import ReaderContract, each_codec
from tests.compat.librdkafka import Librdkafka

# Lengths before the bytes, so that no byte of a key or value needs escaping; headers end with the line.
_FORMAT = r"%p %o %T %K %S\n%k%s\n%h\n"
_HEADERS: Headers = (("b", b"1"), ("a", b"2"), ("b", b"3"))


class Kcat:
    def __init__(self, program: str, bootstrap: str) -> None:
        self._command = (program, "-b", bootstrap)

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        (offset,) = set(starts.values())  # It takes one partition or all, and one offset for them.
        partition = [f"-p{only}" for only in starts] if len(starts) == 1 else []
        assert partition or len(starts) == PARTITIONS
        output = io.BytesIO(
            self._run("-C", "-q", "-t", topic, *partition, "-o", str(offset), "-c", str(count), "-f", _FORMAT)
        )
        return [_parse(output, line) for line in output]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        offset = int(answer.removeprefix(f"{topic} [{partition}] offset "))
        return None if offset == -1 else offset

    def write(self, topic: str, codec: str, lines: bytes, *options: str) -> None:
        """Produces lines of key, tab and value as one batch."""
        headers = [f"-H{name}={(value or b'').decode()}" for name, value in _HEADERS]
        settings = ["-K", r"\t", "-z", codec, "-X", "linger.ms=200", *headers, *options]
        self._run("-P", "-t", topic, "-p", str(PARTITION), *settings, stdin=lines)

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


def _parse(output: io.BytesIO, line: bytes) -> Received:
    partition, offset, timestamp, key_length, value_length = map(int, line.split())
    key = None if key_length < 0 else output.read(key_length)
    value = None if value_length < 0 else output.read(value_length)
    assert output.read(1) == b"\n"
    headers = tuple(_parse_header(each) for each in output.readline()[:-1].split(b",") if each)
    return Received(partition, offset, Record(timestamp, key, value, headers))


def _parse_header(text: bytes) -> tuple[str, bytes | None]:
    name, value = text.split(b"=", 1)
    return name.decode(), None if value == b"NULL" else value


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Kcat:
    return Kcat(shutil.which("kcat") or unavailable("kcat", "run scripts/setup-tools"), bootstrap)


@pytest.fixture(scope="module")
def writer(reference: Librdkafka) -> Librdkafka:
    return reference


class TestReader(ReaderContract):
    pass


@pytest.mark.timeout(90)
class TestWriter:
    @each_codec
    def test_another_client_reads_it(self, client: Kcat, reference: Librdkafka, bootstrap: str, codec: str) -> None:
        topic = new_topic("kcat")
        reference.create_topic(topic, PARTITIONS)
        pairs = [(b"key-%d" % i, b"value " * 10) for i in range(50)]
        client.write(topic, codec, b"".join(b"%s\t%s\n" % pair for pair in pairs))
        self._check(reference, topic, [Record(0, key, value, _HEADERS) for key, value in pairs])
        assert wire.fetch_batches(bootstrap, topic, PARTITION) == [wire.Batch(0, 49, codec)]

    @pytest.mark.parametrize(("options", "nothing"), [((), b""), (("-Z",), None)], ids=["empty", "null"])
    def test_empty_and_null(
        self, client: Kcat, reference: Librdkafka, options: tuple[str, ...], nothing: bytes | None
    ) -> None:
        topic = new_topic("kcat")
        reference.create_topic(topic, PARTITIONS)
        client.write(topic, "none", b"\tvalue\nkey\t\n\t\n", *options)
        pairs = [(nothing, b"value"), (b"key", nothing), (nothing, nothing)]
        self._check(reference, topic, [Record(0, key, value, _HEADERS) for key, value in pairs])

    def _check(self, reference: Librdkafka, topic: str, expected: list[Record]) -> None:
        received = reference.read(topic, {PARTITION: 0}, len(expected))
        now = time.time() * 1000
        for each in received:
            assert now - 60_000 < each.record.timestamp <= now
        timeless = [replace(each, record=replace(each.record, timestamp=0)) for each in received]
        check(timeless, expected)
