"""A Kafka that links copy from: partitions with gaps, which grow, and lose their last records now and then."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


class Diverged(Exception):
    """The source no longer has what was copied."""


@dataclass(frozen=True)
class Piece:
    """A batch with the offset of its first record, or a gap."""

    start: int
    next: int
    values: tuple[bytes, ...]
    """Empty for a gap."""


@dataclass
class Partition:
    """A partition. A record's value has its partition, its offset and its leader epoch."""

    number: int
    pieces: list[Piece] = field(default_factory=list)
    end: int = 0
    epochs: list[int] = field(default_factory=lambda: [0])
    """The first offset of each leader epoch."""
    lost: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """All records as they were before a truncation, by the leader epoch that it ended."""

    @property
    def epoch(self) -> int:
        return len(self.epochs) - 1

    def grow(self, rng: random.Random) -> None:
        """Add a batch or a gap: aborted records, a marker, or what compaction removed."""
        count = rng.randint(1, 3)
        gap = rng.random() < 0.4 and self.epochs[-1] != self.end  # an epoch begins with a record
        text = f"s{self.number}" + ".{}." + str(self.epoch)
        values = () if gap else tuple(text.format(self.end + i).encode() for i in range(count))
        self.pieces.append(Piece(self.end, self.end + count, values))
        self.end += count

    def truncate(self, rng: random.Random) -> bool:
        """Lose the last records, from one that is there on. Returns whether there was one to lose."""
        batches = [i for i, piece in enumerate(self.pieces) if piece.values and piece.start >= self.epochs[-1]]
        if not batches or self.epochs[-1] == self.end:
            return False
        first = rng.choice(batches[-3:])
        self.lost[self.epoch] = self.records()
        self.end = self.pieces[first].start
        del self.pieces[first:]
        self.epochs.append(self.end)
        return True

    def fetch(self, position: int, last: tuple[int, int] | None) -> list[Piece]:
        """What follows a position. `last` is the offset and the leader epoch of the last record that was copied."""
        if last is not None:
            offset, epoch = last
            if epoch < self.epoch and self.epochs[epoch + 1] <= offset:
                raise Diverged(f"leader epoch {epoch} ends at {self.epochs[epoch + 1]}, record {offset} was copied")
        if position > self.end:
            raise Diverged(f"the partition ends at {self.end}, not at {position}")
        return [
            Piece(max(piece.start, position), piece.next, piece.values[max(0, position - piece.start) :])
            for piece in self.pieces
            if piece.next > position
        ]

    def records(self, epoch: int | None = None) -> dict[int, bytes]:
        """The records by offset: now, or as they were when an epoch ended."""
        if epoch is not None and epoch in self.lost:
            return self.lost[epoch]
        return {piece.start + i: value for piece in self.pieces for i, value in enumerate(piece.values)}


def epoch_of(value: bytes) -> int:
    """The leader epoch of a record of a source."""
    return int(value.rpartition(b".")[2])
