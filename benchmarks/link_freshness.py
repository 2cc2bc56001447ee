"""How soon a record of the source is seen here: by SQL, from rows that are not settled, and in the Iceberg table.

A record's time begins when the source has acknowledged it. It ends when an answer that has the record is there, so the
time of the question itself counts. SQL is asked again as soon as it has answered; the table is looked at ten times a
second. Records come at a steady rate into one partition, in order.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from benchmarks.report import number
from benchmarks.systems import BenchError
from harness.headwater import Headwater
from harness.patience import eventually
from headwater.gateway.catalog import NAMESPACE

TOPIC = "fresh"
TARGET_SECONDS = 10.0
"""The freshness target of the table. The default is half a minute."""
SETTINGS = f"""
[links]
metadata_ms = 1000

[gateway]
requests_per_second = 1000000

[lake]
freshness_ms = {TARGET_SECONDS * 1000:.0f}
"""
VALUE = b"x" * 1000
WARM_RECORDS = 2_000
PATIENCE = 300.0
COLUMNS = ("a record of the source is seen", "records", "median, s", "99 %, s", "longest, s", "looks", "wanted, s")


class Written:
    """Records that the source has acknowledged, each with the time of that."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self.times: list[float] = []
        """By offset."""

    def produce(self, records: int, rate: float) -> None:
        """Produce at a rate."""
        began = time.monotonic()
        for place in range(records):
            while (wait := began + place / rate - time.monotonic()) > 0:
                self._producer.poll(min(wait, 0.01))
            self._producer.produce(TOPIC, VALUE, partition=0, on_delivery=self._acknowledged)
            self._producer.poll(0)
        if self._producer.flush(60):
            raise BenchError("records did not reach Kafka")

    def _acknowledged(self, error: object, message: object) -> None:
        if error is not None:
            raise BenchError(f"a record did not reach Kafka: {error}")
        self.times.append(time.monotonic())


class Looks:
    """Asks again and again, how many records are seen, until all are."""

    def __init__(self, ask: Callable[[], int], every: float, wanted: int) -> None:
        self._ask = ask
        self._every = every
        self._wanted = wanted
        self.answers: list[tuple[int, float]] = []
        """How many records were seen, and when the answer was there."""
        self._done = ThreadPoolExecutor(1).submit(self._run)

    def _run(self) -> None:
        ended = time.monotonic() + PATIENCE
        while not self.answers or self.answers[-1][0] < self._wanted:
            count = self._ask()
            self.answers.append((count, time.monotonic()))
            if self.answers[-1][1] > ended:
                raise BenchError(f"only {count:,} of {self._wanted:,} records were seen")
            time.sleep(self._every)

    def delays(self, times: list[float], first: int) -> list[float]:
        """How long each record took, from the first of those that count on."""
        self._done.result()
        counts = [count for count, _ in self.answers]
        return [self.answers[bisect_right(counts, place)][1] - times[place] for place in range(first, len(times))]


def measure(directory: Path, source: str, rate: float, seconds: float) -> list[list[str]]:
    """A link, a compactor and a gateway; rows of a table."""
    written, records = Written(source), WARM_RECORDS + int(rate * seconds)
    with Headwater(directory, lake=True, settings=SETTINGS, variables={"HEADWATER_SQL__WARM": "1"}) as own:
        written.produce(WARM_RECORDS, 1e9)
        own.cli("link", "create", TOPIC, "--source", source, "--topics", TOPIC, "--config", str(own.config))
        eventually(lambda: _by_sql(own) == WARM_RECORDS, "the first records are seen", PATIENCE, 0.2)
        own.table("settle", TOPIC, "--timeout", str(int(PATIENCE)))
        by_sql = Looks(lambda: _by_sql(own), 0.0, records)
        in_table = Looks(lambda: _in_table(own), 0.1, records)
        written.produce(records - WARM_RECORDS, rate)
        return [
            _row("by SQL, from rows that are not settled", by_sql, written, "–"),
            _row("in the Iceberg table", in_table, written, f"at most {TARGET_SECONDS:.0f}"),
        ]


def _row(name: str, looks: Looks, written: Written, wanted: str) -> list[str]:
    delays = sorted(looks.delays(written.times, WARM_RECORDS))
    high = delays[int(len(delays) * 0.99)]
    cells = [f"{len(delays):,}", number(statistics.median(delays)), number(high), number(delays[-1])]
    return [name, *cells, f"{len(looks.answers):,}", wanted]


def _by_sql(server: Headwater) -> int:
    """How many records a query sees; 0 while there is no topic."""
    connection = http.client.HTTPConnection(server.gateway, timeout=60)
    try:
        body = json.dumps({"sql": f'SELECT coalesce(max("offset") + 1, 0) FROM {TOPIC}'})
        connection.request("POST", "/v1/sql", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return int(told["rows"][0][0]) if answer.status == 200 else 0
    finally:
        connection.close()


def _in_table(server: Headwater) -> int:
    """How many rows the newest snapshot of the table has."""
    try:
        table = RestCatalog("bench", uri=f"{server.gateway_url}/iceberg").load_table((NAMESPACE, TOPIC))
    except NoSuchTableError:
        return 0
    snapshot = table.current_snapshot()
    found = snapshot.summary if snapshot is not None else None
    return int(found["total-records"] or 0) if found is not None else 0
