"""A writer of plain records and of transactions that overlap, for tests that hurt a compactor; and who reads them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException

from demo.readers import Sum, sum_of
from harness.storage import Place
from headwater.clock import SystemClock
from tests.faults.lake_running import READERS, Writer
from tests.support.transactional import Writers, read

SHORT, LONG, DOOMED = "short", "long", "doomed"
ENDS_IN = {SHORT: 1, LONG: 12, DOOMED: 3}
"""Transactional ids, and after how many rounds their transactions end on average. Those of one id only abort."""
RECORDS = 2


class TransactionalWriter(Writer):
    """Beside plain records, transactions of three producers in every partition. What is committed is acknowledged.

    One producer commits and aborts by turns in every round, one has transactions that last over several settles, and
    one never commits.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int, chance: random.Random) -> None:
        super().__init__(bootstrap, topics, partitions, each=1)
        self._chance = chance
        self._clock = SystemClock()
        self._writers = Writers(bootstrap)
        self._numbers = 0
        self._last: dict[str, bool] = {}
        """How the last transaction of each id ended: whether it was committed."""
        self.ends: Counter[str] = Counter()
        """Transactions by how they ended."""

    @property
    def count(self) -> int:
        """How many records are in the log, whatever becomes of their transactions."""
        return super().count + self._numbers

    @property
    def aborted(self) -> int:
        """How many records were aborted. To be asked at the end."""
        return self._numbers + self._sent - super().count

    def round(self) -> None:
        super().round()
        try:
            for topic, partition in self.places():
                for id in ENDS_IN:
                    self._write(id, topic, partition)
            for id, rounds in ENDS_IN.items():
                if self._chance.randrange(rounds) == 0:
                    self._end(id)
        except (KafkaException, AssertionError) as error:  # the test fails when it stops the writer
            self.failures.append(repr(error))
            self._enough.set()

    def _write(self, id: str, topic: str, partition: int) -> None:
        values = [b"%s %012d" % (id.encode(), self._numbers + i) for i in range(RECORDS)]
        self._writers.write(id, topic, partition, *values, timestamp=self._clock.wall_ms())
        self._numbers += RECORDS

    def _end(self, id: str) -> None:
        commit = id != DOOMED and not self._last.get(id, False)
        self._writers.end(id, commit=commit)
        self._last[id] = commit
        self.ends["committed" if commit else "aborted"] += 1

    def finish(self) -> None:
        """Write no more, and end what is open. Acknowledged is then what is committed."""
        self.stop()
        for id in self._writers.open:
            self._end(id)
        for topic, rows in self.acks.items():
            rows += [(p, offset, key, value) for p, offset, _, key, value in self._writers.committed(topic)]


def committed_readers(partitions: int) -> Mapping[str, Callable[[Place], Sum]]:
    """The readers of topics with so many partitions. librdkafka reads with `read_committed`."""

    def committed(place: Place) -> Sum:
        rows = read(place.bootstrap, place.topic, [0] * partitions)
        return sum_of((p, offset, key, value) for p, offset, _, key, value in rows)

    return {**READERS, "librdkafka": committed}
