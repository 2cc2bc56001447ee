"""Batches of idempotent producers that arrive before their predecessors.

When a partition moves to another broker, batches of a client may arrive here while the other broker still commits
earlier ones. Such a batch is held for a moment; after that `apply` decides.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable

from headwater.clock import Clock
from headwater.log.batch import Batch
from headwater.log.write.part import Part
from headwater.replica.replica import Replica
from headwater.state.streams.producers import SEQUENCES, is_ahead, last_sequence
from headwater.state.streams.state import StreamsState

LOOK_SECONDS = 0.01


class Holding:
    """Decides which batches wait, and releases them in order."""

    def __init__(
        self,
        replica: Replica[StreamsState],
        clock: Clock,
        hold_seconds: float,
        release: Callable[[Part], None],
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._seconds = hold_seconds
        self._release = release
        self._tails: dict[tuple[int, int], list[int]] = {}
        """Per stream and producer: epoch, next sequence, and how many batches are under way here."""
        self._held: dict[tuple[int, int], list[tuple[float, Part]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.held = 0

    @property
    def looks(self) -> bool:
        """Whether batches must be checked when they arrive and when they are decided."""
        return bool(self._held or self._tails) or self._replica.state.writer_count > 1

    def hold(self, part: Part) -> bool:
        """Whether the batch waits. If not, it counts as under way until `decided` is called."""
        if not self._held and self._replica.state.writer_count < 2:
            return False  # no other writer could commit the missing batches, so `apply` can decide now
        batch = part.batch
        key = (part.stream, batch.producer_id)
        if key not in self._held and not self._gap(part):
            self._under_way(part)
            return False
        waiting = self._held.setdefault(key, [])
        insort(
            waiting,
            (self._clock.monotonic() + self._seconds, part),
            key=lambda item: (item[1].batch.producer_epoch, item[1].batch.base_sequence),
        )
        self.held += 1
        if key in self._held and not self._gap(part):
            self._look()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        return True

    def _under_way(self, part: Part) -> None:
        batch = part.batch
        key = (part.stream, batch.producer_id)
        following = (last_sequence(batch.base_sequence, batch.offsets) + 1) % SEQUENCES
        tail = self._tails.get(key)
        if tail is None:
            self._tails[key] = [batch.producer_epoch, following, 1]
        else:
            if batch.producer_epoch > tail[0]:
                tail[0], tail[1] = batch.producer_epoch, following
            elif batch.producer_epoch == tail[0] and is_ahead(following, tail[1]):
                tail[1] = following  # a retry of an earlier batch must not move it back
            tail[2] += 1

    def decided(self, part: Part) -> None:
        """Note that a batch that was under way has its outcome."""
        if not self._tails:
            return
        key = (part.stream, part.batch.producer_id)
        tail = self._tails.get(key)
        if tail is not None:
            tail[2] -= 1
            if not tail[2]:
                del self._tails[key]

    def withdraw(self, part: Part) -> bool:
        """Drop a batch; returns whether it was held."""
        key = (part.stream, part.batch.producer_id)
        waiting = self._held.get(key, [])
        for i, (_, held) in enumerate(waiting):
            if held is part:
                del waiting[i]
                if not waiting:
                    del self._held[key]
                return True
        return False

    def _gap(self, part: Part) -> bool:
        """Whether earlier batches of this producer are missing, which another broker may still commit.

        Nobody can commit batches of a transaction that has ended, and those of the next one need not wait behind them.
        """
        return self._misses(part) and not self._is_fenced(part.batch)

    def _is_fenced(self, batch: Batch) -> bool:
        found = self._replica.state.transactions.of_producer(batch.producer_id) if batch.transactional else None
        return found is not None and found.epoch > batch.producer_epoch

    def _misses(self, part: Part) -> bool:
        batch = part.batch
        tail = self._tails.get((part.stream, batch.producer_id))
        if tail is not None and tail[0] == batch.producer_epoch:
            return is_ahead(batch.base_sequence, tail[1])
        state = self._replica.state
        stream = state.streams.get(part.stream)
        if stream is None or state.writer_count < 2:
            return False
        known = stream.producers.get(batch.producer_id) if stream.producers is not None else None
        if known is None or known.epoch < batch.producer_epoch:
            return batch.base_sequence > 0
        expected = (known.recent[-2] + 1) % SEQUENCES
        return known.epoch == batch.producer_epoch and is_ahead(batch.base_sequence, expected)

    def _look(self) -> None:
        """Release batches whose predecessors have arrived, and batches that have waited long enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        for key in list(self._held):
            waiting = self._held[key]
            while waiting and (waiting[0][0] <= now or not self._gap(waiting[0][1])):
                _, part = waiting.pop(0)
                self._under_way(part)
                self._release(part)
            if not waiting:
                del self._held[key]
        if self._held:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def release_all(self) -> None:
        """Release all held batches."""
        for waiting in list(self._held.values()):
            for _, part in waiting:
                self._under_way(part)
                self._release(part)
        self._held.clear()
