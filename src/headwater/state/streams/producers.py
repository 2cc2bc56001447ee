"""Idempotent producers of one stream, judged by the rules of Apache Kafka.

The state keeps the last five batches of a producer, as Kafka does. A client has at most five requests in flight, so a
retried batch is always among the five and is answered with its first offset.
"""

from __future__ import annotations

from collections.abc import Container

from headwater.state.results import Verdict

RECENT_BATCHES = 5
SEQUENCES = 1 << 31
"""Sequence numbers run from 0 to 2^31 - 1, then start again at 0."""

MAX_EXPIRED = 1_000
"""How many expired producers a stream remembers. The oldest is forgotten first."""


def last_sequence(first: int, records: int) -> int:
    """The sequence number of a batch's last record."""
    return (first + records - 1) % SEQUENCES


def is_ahead(sequence: int, of: int) -> bool:
    """Whether a sequence number comes after another one, also where the numbers start over."""
    return 0 < (sequence - of) % SEQUENCES < SEQUENCES // 2


class Producer:
    """The recent batches of one producer in one stream."""

    __slots__ = ("epoch", "last_ms", "recent", "writer")

    def __init__(self, epoch: int, writer: int, last_ms: int, recent: list[int]) -> None:
        self.epoch = epoch
        self.writer = writer
        """The epoch of the process that appended the producer's last batch."""
        self.last_ms = last_ms
        self.recent = recent
        """Flat triples (first sequence, last sequence, first offset), oldest first."""

    def __repr__(self) -> str:
        return f"<Producer epoch {self.epoch}, last sequence {self.recent[-2]}>"


class Producers:
    """The producers of one stream: live and expired."""

    __slots__ = ("_expired", "_live")

    def __init__(self) -> None:
        self._live: dict[int, Producer] = {}
        self._expired: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def oldest_ms(self) -> int:
        """The earliest `last_ms` of all live producers."""
        return min((producer.last_ms for producer in self._live.values()), default=1 << 62)

    def get(self, producer_id: int) -> Producer | None:
        return self._live.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """The producers that are not expired, by id."""
        return list(self._live.items())

    def take(
        self, producer_id: int, epoch: int, first: int, records: int, offset: int, writer: int, shared: bool, ms: int
    ) -> tuple[Verdict, int] | None:
        """Judge a batch. An accepted batch is noted and the result is `None`; otherwise the result is the verdict.

        The verdict on a duplicate comes with the first offset of the batch. `shared` means that more than one process
        has written to this domain: the batches missing in a gap may still arrive through another process.
        """
        known = self._live.get(producer_id)
        if known is None:
            if first != 0 and self._expired.get(producer_id, -1) != epoch:
                return (Verdict.MOVED if shared else Verdict.OUT_OF_ORDER), 0
        elif epoch == known.epoch:
            recent = known.recent
            last = (first + records - 1) % SEQUENCES
            if first == (recent[-2] + 1) % SEQUENCES:
                if len(recent) == RECENT_BATCHES * 3:
                    del recent[:3]
                recent += (first, last, offset)
                known.writer, known.last_ms = writer, ms
                return None
            for i in range(0, len(recent), 3):
                if recent[i] == first and recent[i + 1] == last:
                    return Verdict.DUPLICATE, recent[i + 2]
            return (Verdict.OUT_OF_ORDER if known.writer == writer else Verdict.MOVED), 0
        elif epoch < known.epoch:
            return Verdict.STALE_PRODUCER, 0
        elif first != 0:
            return (Verdict.MOVED if shared else Verdict.OUT_OF_ORDER), 0
        self._live[producer_id] = Producer(epoch, writer, ms, [first, last_sequence(first, records), offset])
        self._expired.pop(producer_id, None)
        return None

    def seen(self, producer_id: int, ms: int) -> None:
        """Note a sign of life that is no batch: the end of a transaction."""
        known = self._live.get(producer_id)
        if known is not None:
            known.last_ms = ms

    def expire(self, before_ms: int, running: Container[int]) -> int:
        """Move producers that have not written since `before_ms` to the expired ones. Returns how many.

        Producers with an open transaction in the stream stay.
        """
        gone = [pid for pid, producer in self._live.items() if producer.last_ms < before_ms and pid not in running]
        for pid in gone:
            self._expired[pid] = self._live.pop(pid).epoch
        while len(self._expired) > MAX_EXPIRED:
            del self._expired[next(iter(self._expired))]
        return len(gone)

    def pack(self) -> tuple[list[tuple[int, int, int, int, list[int]]], list[tuple[int, int]]]:
        """The producers as plain data, for a checkpoint."""
        live = [(pid, p.epoch, p.writer, p.last_ms, p.recent) for pid, p in self._live.items()]
        return live, list(self._expired.items())

    @classmethod
    def unpack(cls, live: list[tuple[int, int, int, int, list[int]]], expired: list[tuple[int, int]]) -> Producers:
        """The inverse of `pack`."""
        self = cls()
        self._live = {pid: Producer(epoch, writer, ms, recent) for pid, epoch, writer, ms, recent in live}
        self._expired = dict(expired)
        return self
