"""Reading a topic record by record, from a position that can be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from headwater.errors import BadInput
from headwater.sdk.records import Record

WAIT_SECONDS = 5.0
"""How long one request waits for new records."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records from some offsets on, and where to go on."""

    records: list[Record]
    positions: Mapping[int, int]
    """By partition, the offset after the last one that was looked at."""


class Source(Protocol):
    """What a consumer reads."""

    def begin(self) -> Mapping[int, int]:
        """By partition, where to begin."""

    def ends(self) -> Mapping[int, int]:
        """By partition, where committed records end now."""

    def read(self, positions: Mapping[int, int], wait: float) -> Page:
        """Records from these offsets on. Waits a while if there are none."""

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commit offsets of the group."""


class Consumer:
    """An iterator of records. Records of a partition come in order. Use it in one thread."""

    def __init__(self, source: Source, *, group: str | None, follow: bool) -> None:
        self._source = source
        self._group = group
        self._follow = follow
        self._waiting: deque[Record] = deque()
        self._read: dict[int, int] = {}
        """By partition, where the next page begins."""
        self.positions: dict[int, int] = {}
        """By partition, the offset after the last record that was returned."""
        self._ends: Mapping[int, int] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Consumer at {self.positions}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if not self.positions and not self._closed:
            self.positions = dict(self._source.begin())
            self._read = dict(self.positions)
            self._ends = None if self._follow else self._source.ends()
        while not self._waiting:
            if self._closed or self._done():
                raise StopIteration
            self._fill()
        record = self._waiting.popleft()
        self.positions[record.partition] = record.offset + 1
        return record

    def poll(self) -> list[Record]:
        """The records of the next answer of the server; empty if none arrived in a while."""
        if not self.positions and not self._closed:
            self.positions = dict(self._source.begin())
            self._read = dict(self.positions)
        if not self._waiting and not self._closed:
            self._fill()
        records = list(self._waiting)
        self._waiting.clear()
        for record in records:
            self.positions[record.partition] = record.offset + 1
        return records

    def commit(self) -> None:
        """Commit the records that were returned so far. A consumer of the group goes on behind them."""
        if self._group is None:
            raise BadInput("this consumer has no group, so it has nothing to commit to: consume(…, group=…)")
        if self.positions:
            self._source.commit(dict(self.positions))

    def close(self) -> None:
        """Return no more records."""
        self._closed = True
        self._waiting.clear()

    def _fill(self) -> None:
        """Read a page. Positions of partitions without waiting records move over gaps at once, but never beyond the
        end: a record there was not returned, and must not be committed."""
        wanted = self._read
        if self._ends is not None:
            wanted = {p: at for p, at in self._read.items() if at < self._ends.get(p, 0)}
        page = self._source.read(wanted, WAIT_SECONDS if self._ends is None else 0.0)
        ends = self._ends
        records = [r for r in page.records if ends is None or r.offset < ends.get(r.partition, 0)]
        self._waiting.extend(records)
        for partition, reached in page.positions.items():
            self._read[partition] = reached if ends is None else min(reached, ends.get(partition, 0))
        for partition in wanted.keys() - {record.partition for record in records}:
            self.positions[partition] = self._read[partition]

    def _done(self) -> bool:
        return self._ends is not None and all(at >= self._ends.get(p, 0) for p, at in self._read.items())
