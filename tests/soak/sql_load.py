"""What the soak of SQL writes, and what the writers know of their own records.

The topic `stress` has a partition for each way into the log: two with most of the load, one of transactions, one of
bulk appends between records of a producer, and one with a reservation that stays open. The topic `aged` has one
partition, whose oldest rows leave the table by its retention.
"""

from __future__ import annotations

import asyncio
import bisect
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pyarrow as pa
from pyarrow import parquet

from headwater.app.session import ledger_session
from headwater.settings.settings import load
from headwater.state.commands.tables import Release, Reserve
from headwater.state.results import Done
from headwater.types import Domain
from tests.faults.lake_running import LakeRunning

STRESS, AGED = "stress", "aged"
BUSY, TRANSACTIONS, BULK, RESERVED = (0, 1), 2, 3, 4
Place = tuple[str, int]
PLACES: tuple[Place, ...] = (*((STRESS, partition) for partition in range(5)), (AGED, 0))
TABLE_RETENTION_MS = 30_000
CONFIGS: Mapping[str, Mapping[str, str]] = {
    STRESS: {"headwater.table.freshness.ms": "3000", "retention.ms": "20000"},
    AGED: {
        "headwater.table.freshness.ms": "3000",
        "retention.ms": "10000",
        "headwater.table.retention.ms": str(TABLE_RETENTION_MS),
    },
}
VALUE_BYTES = 4_000
VALUES = 64
PACE_SECONDS = 0.02
LAG_SECONDS = 1.0
"""A producer that is later than this does not catch up with its pace."""
AGED_OF_TEN = 1
BEFORE_RESERVED, RESERVED_OFFSETS = 20, 5
RESERVED_PACE_SECONDS = 5.0
"""Records behind the reservation cannot settle, so each keeps its whole WAL object. There are few."""
TRANSACTION_RECORDS, TRANSACTION_PACE_SECONDS, ABORTED = 20, 0.1, 0.3
BULK_ROWS, BULK_PACE_SECONDS = 3_000, 5.0
HOUR_MS = 3_600_000
FLUSH_SECONDS = 120.0


class Known:
    """What the writers of one partition know of it."""

    def __init__(self, *, whole: bool = False) -> None:
        self.acked = 0
        """The offset behind the last record that was acknowledged (and committed)."""
        self.held: int | None = None
        """While a reservation may be open: the offset up to which records are certainly in front of it."""
        self.ceiling: int | None = 0
        """No row that is shown reaches this offset. None: not known."""
        self._whole = whole
        self._lock = threading.Lock()
        self._ranges: list[list[int]] = []

    def __repr__(self) -> str:
        return f"<Known: floor {self.floor}, ceiling {self.ceiling}, {len(self._ranges)} ranges>"

    @property
    def floor(self) -> int:
        """A query that is asked now shows everything that was written below this offset."""
        held = self.held
        return self.acked if held is None else held

    def note(self, first: int, last: int) -> None:
        """These offsets have records that were acknowledged (and committed)."""
        with self._lock:
            ranges = self._ranges
            if ranges and not self._whole and ranges[-1][1] + 1 == first:
                ranges[-1][1] = last
            else:
                bisect.insort(ranges, [first, last])
            self.acked = max(self.acked, last + 1)

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The number and the sum of the offsets of records from one offset to another.

        In a partition of transactions, one of which the high offset shows a part only does not count.
        """
        count = total = 0
        with self._lock:
            for first, last in self._ranges:
                first, last = max(first, low), last if self._whole and last > high else min(last, high)
                if first <= last <= high:
                    count += last - first + 1
                    total += (first + last) * (last - first + 1) // 2
        return count, total


class Load(AbstractContextManager["Load"]):
    """All writers, in threads. `finish` ends them; then everything is acknowledged and no reservation is open."""

    def __init__(self, server: LakeRunning, megabytes: float, seed: int) -> None:
        self._server = server
        self._rate = megabytes * 1e6
        self._chance = random.Random(seed)
        self._values = [self._chance.randbytes(VALUE_BYTES) for _ in range(VALUES)]
        self._stop, self._release = threading.Event(), threading.Event()
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []
        self._times: list[tuple[int, int]] = []
        self.known = {place: Known(whole=place == (STRESS, TRANSACTIONS)) for place in PLACES}
        self.known[STRESS, BULK].ceiling = None
        self.sent_bytes = 0
        self.began = time.monotonic()
        self.committed = self.aborted = self.bulks = 0
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for topic, configs in CONFIGS.items():
            self._server.create(topic, sum(place[0] == topic for place in PLACES), **configs)
        self._fill_reserved()
        work = (self._reserve, self._produce, self._transact, self._append)
        self._threads = [threading.Thread(target=self._guarded, args=[one], daemon=True) for one in work]
        self._threads[0].start()
        if not self._ready.wait(FLUSH_SECONDS) or self.failures:
            raise RuntimeError(f"nothing could be reserved: {self.failures}")
        self.began = time.monotonic()
        for thread in self._threads[1:]:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join()
        self._release.set()
        self._threads[0].join()

    def finish(self) -> None:
        """Write no more, and release the reservation."""
        self.__exit__()
        reserved = self.known[STRESS, RESERVED]
        reserved.held = reserved.ceiling = None

    @property
    def rate(self) -> float:
        """Megabytes a second so far."""
        return self.sent_bytes / 1e6 / (time.monotonic() - self.began)

    def kept_from(self, ms: int) -> int:
        """The first offset of `aged` that was sent at a time or later."""
        at = bisect.bisect_left(self._times, (ms, 0))
        return self._times[at][1] if at < len(self._times) else self.known[AGED, 0].ceiling or 0

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(f"{work.__name__}: {error!r}")
            raise
        finally:
            self._ready.set()

    # --- the producer ----------------------------------------------------------------------------------------

    def _producer(self, **more: Any) -> confluent_kafka.Producer:
        own = {"enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.kbytes": 65_536}
        return confluent_kafka.Producer({"bootstrap.servers": self._server.bootstrap, **own, **more})

    def _noted(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.known[message.topic(), message.partition()].note(message.offset(), message.offset())

    def _send(self, producer: confluent_kafka.Producer, place: Place, ms: int) -> None:
        known = self.known[place]
        if known.ceiling is not None and known.held is None:
            known.ceiling += 1
        value = self._values[self._chance.randrange(VALUES)]
        while True:
            try:
                producer.produce(place[0], value, partition=place[1], timestamp=ms, on_delivery=self._noted)
                break
            except BufferError:
                producer.poll(0.01)
        self.sent_bytes += VALUE_BYTES

    def _fill_reserved(self) -> None:
        """Records in front of the reservation."""
        producer = self._producer()
        for _ in range(BEFORE_RESERVED):
            self._send(producer, (STRESS, RESERVED), _now_ms())
        if producer.flush(FLUSH_SECONDS):
            raise RuntimeError("the first records were not acknowledged")
        self.known[STRESS, RESERVED].held = BEFORE_RESERVED

    def _produce(self) -> None:
        producer, number, behind = self._producer(), 0, time.monotonic()
        target = self.began
        while not self._stop.wait(PACE_SECONDS) and not self.failures:
            now, ms = time.monotonic(), _now_ms()
            target = max(target, now - LAG_SECONDS)
            aged = self.known[AGED, 0]
            self._times.append((ms, aged.ceiling or 0))
            while target < now and not self._stop.is_set():
                number += 1
                busy = (AGED, 0) if number % 10 < AGED_OF_TEN else (STRESS, BUSY[number % 2])
                self._send(producer, busy, ms)
                target += VALUE_BYTES / self._rate
            self._send(producer, (STRESS, BULK), ms)
            if now - behind > RESERVED_PACE_SECONDS:
                self._send(producer, (STRESS, RESERVED), ms)
                behind = now
            producer.poll(0)
        if left := producer.flush(FLUSH_SECONDS):
            self.failures.append(f"{left} records were not acknowledged")

    # --- transactions ----------------------------------------------------------------------------------------

    def _transact(self) -> None:
        producer, known = self._producer(**{"transactional.id": "soak"}), self.known[STRESS, TRANSACTIONS]
        chance = random.Random(self._chance.random())
        offsets: list[int] = []

        def noted(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                offsets.append(message.offset())

        producer.init_transactions(FLUSH_SECONDS)
        while not self._stop.wait(TRANSACTION_PACE_SECONDS):
            offsets.clear()
            producer.begin_transaction()
            for _ in range(TRANSACTION_RECORDS):
                producer.produce(STRESS, self._values[0], partition=TRANSACTIONS, on_delivery=noted)
            producer.flush(FLUSH_SECONDS)
            if sorted(offsets) != list(range(offsets[0], offsets[0] + TRANSACTION_RECORDS)):
                raise RuntimeError(f"a transaction has the offsets {offsets}")
            if chance.random() < ABORTED:
                producer.abort_transaction(FLUSH_SECONDS)
                self.aborted += 1
                continue
            known.ceiling = offsets[-1] + 1
            producer.commit_transaction(FLUSH_SECONDS)
            known.note(offsets[0], offsets[-1])
            self.committed += 1

    # --- bulk appends ----------------------------------------------------------------------------------------

    def _append(self) -> None:
        file, known = self._server.directory / "bulk.parquet", self.known[STRESS, BULK]
        parquet.write_table(_bulk_rows(), file)
        while not self._stop.wait(BULK_PACE_SECONDS):
            known.held = known.acked
            words = (str(file), "--partition", str(BULK), "--output", "json")
            said = self._server.table("append", STRESS, *words)
            [part] = said["partitions"]
            first, last = part["first_offset"], part["last_offset"]
            if part["records"] != BULK_ROWS or last - first + 1 != BULK_ROWS:
                raise RuntimeError(f"a bulk append is not one range: {said}")
            known.note(first, last)
            known.held = None
            self.bulks += 1

    def _reserve(self) -> None:
        """Reserve offsets, and release them in the end. They become a gap."""
        asyncio.run(self._reserving(self._server.config))

    async def _reserving(self, config: Path) -> None:
        async with ledger_session(load(str(config), environment={}), member=True) as found:
            topic = found.topic(STRESS)
            replica = found.domains[Domain(topic.domain)]
            wanted = Reserve(topic.id, [(topic.streams[RESERVED], RESERVED_OFFSETS)], HOUR_MS)
            [done] = await replica.submit([wanted])
            if not isinstance(done, Done):
                raise RuntimeError(str(done))
            self._ready.set()
            while not self._release.is_set():
                await asyncio.sleep(0.1)
            [released] = await replica.submit([Release(done.value)])
            if not isinstance(released, Done):
                raise RuntimeError(str(released))


def _bulk_rows() -> pa.Table:
    return pa.table(
        {"key": [f"bulk-{i}" for i in range(BULK_ROWS)], "value": [b"b" * 200 for _ in range(BULK_ROWS)]},
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
