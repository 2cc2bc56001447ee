"""The log of one partition of a source, as Apache Kafka keeps it: with transactions, markers, compaction and deletions.

`fetch` answers as Kafka answers readers of committed records. `committed` is the reference: record by record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.client.model import Fetched
from headwater.client.records import Record, decode_batches
from headwater.log.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.support.batches import Rec, batch, record

ABORT, COMMIT = 0, 1


def at_offset(data: bytes, offset: int, epoch: int) -> bytes:
    """A batch with its offset and leader epoch set."""
    return struct.pack(">q", offset) + data[8:12] + struct.pack(">i", epoch) + data[16:]


def sparse_batch(
    records: Sequence[tuple[int, Rec]],
    offsets: int,
    *,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch with records at some of its offsets, as compaction leaves it; each record with its offset delta."""
    base = records[0][1].timestamp if records else 0
    body = b"".join(record(delta, one, base) for delta, one in records)
    return batch(
        [one for _, one in records],
        producer=producer,
        codec=codec,
        attributes=attributes,
        last_delta=offsets - 1,
        body=body,
    )


def marker(producer: int, kind: int) -> bytes:
    """A control batch: the end of a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return batch([Rec(value, key)], attributes=TRANSACTIONAL_BIT | CONTROL_BIT, producer=(producer, 0, -1))


@dataclass(slots=True)
class _Kept:
    """A batch of the log."""

    start: int
    next: int
    data: bytes
    producer: int
    """The producer of a batch of a transaction, else -1."""
    marker: bool


@dataclass(slots=True)
class SourceLog:
    """One partition."""

    log_start: int = 0
    end: int = 0
    epoch: int = 0
    batches: list[_Kept] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    """The first offset of every open transaction, by producer."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset and offset of the marker."""

    def append(
        self,
        records: Sequence[tuple[int, Rec]],
        offsets: int,
        *,
        producer: int = -1,
        transactional: bool = False,
        codec: int = 0,
    ) -> None:
        """Append a batch over a number of offsets, with records at some of them."""
        data = sparse_batch(
            records,
            offsets,
            codec=codec,
            attributes=TRANSACTIONAL_BIT if transactional else 0,
            producer=(producer, 0, 0) if producer >= 0 else (-1, -1, -1),
        )
        if transactional:
            self.open.setdefault(producer, self.end)
        self._keep(data, offsets, producer if transactional else -1, is_marker=False)

    def finish(self, producer: int, kind: int) -> None:
        """End the open transaction of a producer."""
        first = self.open.pop(producer)
        if kind == ABORT:
            self.aborted.append((producer, first, self.end))
        self._keep(marker(producer, kind), 1, producer, is_marker=True)

    def skip(self, offsets: int) -> None:
        """Leave a hole, where compaction removed whole batches."""
        self.end += offsets

    def delete_before(self, offset: int) -> None:
        """Move the start of the log, maybe into a batch."""
        self.log_start = max(self.log_start, min(offset, self.stable))

    @property
    def stable(self) -> int:
        """The first open transaction, or the end."""
        return min([self.end, *self.open.values()])

    def fetch(self, position: int, max_bytes: int) -> Fetched:
        """What a reader of committed records gets: the first batch whole, the last one maybe cut short."""
        data = b""
        for one in self.batches:
            if one.next > position and one.start < self.stable:
                data += one.data if not data else one.data[: max(0, max_bytes - len(data))]
                if len(data) >= max_bytes:
                    break
        aborted = tuple((p, first) for p, first, last in self.aborted if last >= position)
        return Fetched(data, self.end, self.log_start, aborted, self.stable)

    def committed(self, position: int) -> list[Record]:
        """The records that a reader of committed records gets from a position on."""
        found: list[Record] = []
        for one in self.batches:
            if one.marker or one.start >= self.stable or self._is_aborted(one):
                continue
            [decoded] = decode_batches(one.data)
            found += [r for r in decoded.records if r.offset >= position]
        return found

    def _is_aborted(self, one: _Kept) -> bool:
        return any(one.producer == p and first <= one.start < last for p, first, last in self.aborted)

    def _keep(self, data: bytes, offsets: int, producer: int, *, is_marker: bool) -> None:
        kept = at_offset(data, self.end, self.epoch)
        self.batches.append(_Kept(self.end, self.end + offsets, kept, producer, is_marker))
        self.end += offsets
