"""Topics with transactions of every kind, settled while some of them are open, and what log and tables show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from demo.readers import PLAIN as READERS
from demo.readers import sum_of
from harness.headwater import Headwater
from harness.storage import Place
from tests.engines.everyone import START_MS
from tests.faults.raw import Raw
from tests.support.transactional import CALL_SECONDS, PLAIN, Record, Writers, read

TOPIC, STAMPED = "payments", "payments-stamped"
"""The records of the second have the times at which they were appended."""
PARTITIONS = 3
LONG, SHORT, DOOMED = "long", "short", "doomed"
"""Transactional ids: one whose transaction lasts over several settles, one that is committed, one that is aborted."""
LATER = START_MS + 1_000_000
"""The time of records that are aborted: no look-up by time may find it."""
ISOLATIONS = ("read_committed", "read_uncommitted")
CONFIGS = {"retention.ms": "-1", "headwater.table.freshness.ms": "3600000"}
"""The records are years old, and nobody settles them before the test does."""
TABLES = [name for name in READERS if not name.startswith("Kafka")]
TWO = ("delta-rs", "pyiceberg, REST catalog")
"""One reader of each kind of table."""


class Payments:
    """Writes and settles in rounds."""

    def __init__(self, server: Headwater) -> None:
        self._server = server
        self._writers = Writers(server.bootstrap)
        self._places: dict[str, Place] = {}
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        """Where each partition is settled."""
        server.create(TOPIC, PARTITIONS, **CONFIGS)
        server.create(STAMPED, 1, **CONFIGS, **{"message.timestamp.type": "LogAppendTime"})

    def committed(self, topic: str) -> list[Record]:
        return self._writers.committed(topic)

    def place(self, topic: str) -> Place:
        if topic not in self._places:
            self._places[topic] = self._server.place(topic)
        return self._places[topic]

    def run(self) -> None:
        """All of it; log and tables are compared after every settle."""
        first = {0: self._overlapping()}
        self._settled(first)
        first[1] = self._long_goes_on()
        self._settled(first)
        self._last_ones()
        self._settled({})
        self._settle(STAMPED)

    def _write(self, name: str, partition: int, *values: bytes, late: bool = False) -> list[int]:
        time = LATER if late else START_MS + 10 * len(self.committed(TOPIC))
        return self._writers.write(name, TOPIC, partition, *values, timestamp=time)

    def _overlapping(self) -> int:
        """Transactions among each other and among plain records. The first offset of one that stays open."""
        for partition in (0, 1):
            self._write(PLAIN, partition, b"p1", b"p2")
        [first, _] = self._write(LONG, 0, b"l1", b"l2")
        for partition in (0, 1):
            self._write(SHORT, partition, b"s1", b"s2", b"s3")
            self._write(DOOMED, partition, b"d1", b"d2", late=True)
            self._write(PLAIN, partition, b"p3")
            self._write(SHORT, partition, b"s4")
        self._writers.write(SHORT, STAMPED, 0, b"s1", b"s2")
        self._writers.write(PLAIN, STAMPED, 0, b"p1")
        self._writers.write(DOOMED, STAMPED, 0, b"d1", b"d2")
        self._writers.end(SHORT, commit=True)
        self._writers.end(DOOMED, commit=False)
        self._write(PLAIN, 0, b"p4")
        return first

    def _long_goes_on(self) -> int:
        """A range in which all is aborted, a partition with nothing else, and more of the one that is open."""
        for partition in (1, 2):
            self._write(DOOMED, partition, *[b"gone"] * 5, late=True)
        self._writers.end(DOOMED, commit=False)
        [first, _] = self._write(LONG, 1, b"l3", b"l4")
        self._write(SHORT, 1, b"s5")
        self._writers.end(SHORT, commit=True)
        self._write(PLAIN, 1, b"p5")
        return first

    def _last_ones(self) -> None:
        self._write(DOOMED, 0, b"d3", late=True)
        self._writers.end(LONG, commit=True)
        self._writers.end(DOOMED, commit=False)
        self._write(SHORT, 0, b"s6")
        self._writers.end(SHORT, commit=False)
        self._writers.write(PLAIN, STAMPED, 0, b"p2")
        self._writers.write(DOOMED, STAMPED, 0, b"d3")
        self._writers.end(DOOMED, commit=False)

    def _settle(self, topic: str) -> Any:
        return self._server.table("settle", topic, "--timeout", "240", "--output", "json")

    def _settled(self, held: Mapping[int, int]) -> None:
        """Settle. It stops in each partition at the first record of an open transaction, and says so."""
        said = self._settle(TOPIC)
        self._ends |= {one["partition"]: one["to"] for one in said["partitions"]}
        with Raw(self._server.port) as connection:
            ends = {partition: connection.end_of(TOPIC, partition) for partition in range(PARTITIONS)}
        assert self._ends == ends | held
        assert (said["pending_records"], said["held_records"]) == (0, sum(ends[p] - held[p] for p in held))
        wanted = [record for record in self.committed(TOPIC) if record[1] < self._ends[record[0]]]
        check_tables(self.place(TOPIC), wanted, TWO)
        assert read(self._server.bootstrap, TOPIC, [0] * PARTITIONS) == wanted


def check_tables(place: Place, wanted: Iterable[Record], readers: Iterable[str] = TABLES) -> None:
    """Both tables hold exactly these records."""
    expected = sum_of((partition, offset, key, value) for partition, offset, _, key, value in wanted)
    assert {name: READERS[name](place) for name in readers} == dict.fromkeys(readers, expected)


def check_log(place: Place, wanted: list[Record], partitions: int) -> None:
    """Consumers of both isolations get these records and nothing else, from any offset on."""
    for isolation in ISOLATIONS:
        for start in (0, 5):
            found = read(place.bootstrap, place.topic, [start] * partitions, isolation)
            assert found == [record for record in wanted if record[1] >= start]


def check_times(place: Place, wanted: list[Record], partitions: int) -> None:
    """The first record at or after a time, and the one with the largest time, are among these records."""
    times = sorted({record[2] for record in wanted})
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "x"})
    for stamp in (0, *times, times[-1] + 1):
        expected = dict.fromkeys(range(partitions), -1)
        for partition, offset, time, *_ in reversed(wanted):
            if time >= stamp:
                expected[partition] = offset
        asked = [TopicPartition(place.topic, p, stamp) for p in range(partitions)]
        found = {p.partition: p.offset for p in consumer.offsets_for_times(asked, timeout=CALL_SECONDS)}
        assert found == expected
    consumer.close()
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    places: Any = {TopicPartition(place.topic, p): OffsetSpec.max_timestamp() for p in range(partitions)}
    for place_of, answer in admin.list_offsets(places, request_timeout=CALL_SECONDS).items():
        own = [(offset, time) for partition, offset, time, *_ in wanted if partition == place_of.partition]
        largest = max((time for _, time in own), default=-1)
        told = answer.result()
        expected_place = next((one for one in own if one[1] == largest), (-1, -1))
        assert (told.offset, told.timestamp) == expected_place
