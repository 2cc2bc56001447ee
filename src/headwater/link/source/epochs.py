"""Under which leader epochs the source wrote what was fetched of a partition."""

from __future__ import annotations

from bisect import bisect_left

from headwater.link.source.pieces import NO_EPOCH

MAX_EPOCHS = 64
"""Epochs of a partition that are kept. Older ones are forgotten; a position before them has no known epoch."""


class Epochs:
    """The epochs of one partition, as far as they were seen. Epochs and offsets rise."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        """For each epoch the end of the last piece that was seen of it."""
        self._epochs: list[int] = []
        self._from = 0
        """Positions up to here have no known epoch."""

    def __repr__(self) -> str:
        return f"<Epochs {dict(zip(self._epochs, self._ends, strict=True))} from {self._from}>"

    def note(self, start: int, end: int, epoch: int) -> None:
        """A piece of an epoch was fetched. A piece that does not follow the others makes them forgotten."""
        if epoch == NO_EPOCH:
            return
        if not self._ends or start != self._ends[-1] or epoch < self._epochs[-1]:
            self._ends, self._epochs, self._from = [], [], start
        if self._epochs and epoch == self._epochs[-1]:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._epochs.append(epoch)
        if len(self._ends) > MAX_EPOCHS:
            self._from = self._ends.pop(0)
            self._epochs.pop(0)

    def at(self, position: int) -> int:
        """The epoch of what is directly before a position; `NO_EPOCH` if it was not seen."""
        if not self._ends or not self._from < position <= self._ends[-1]:
            return NO_EPOCH
        return self._epochs[bisect_left(self._ends, position)]
