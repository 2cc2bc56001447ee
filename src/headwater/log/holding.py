"""Batches of idempotent producers that came before their predecessors.

When a partition moves to another broker, a client's batches may arrive here while earlier ones are still on their way
through the other broker. Such a batch is held for a moment; after that `apply` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.clock import Clock
from headwater.log.parts import Part
from headwater.metadata.producers import SEQUENCES, last_sequence
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState

LOOK_SECONDS = 0.01


class Holding:
    """Decides which batches wait, and lets them go in order."""

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
        """Whether any batch has to be looked at, on its way in or out."""
        return bool(self._held or self._tails) or self._replica.state.writer_count > 1

    def hold(self, part: Part) -> bool:
        """Whether the batch waits. If not, it counts as under way until `decided`."""
        if not self._held and self._replica.state.writer_count < 2:
            return False  # nobody else could bring what is missing, and `apply` knows all that came before
        batch = part.batch
        key = (part.stream, batch.producer_id)
        if key not in self._held and not self._gap(part):
            self._under_way(part)
            return False
        waiting = self._held.setdefault(key, [])
        waiting.append((self._clock.monotonic() + self._seconds, part))
        waiting.sort(key=lambda item: (item[1].batch.producer_epoch, item[1].batch.base_sequence))
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
            tail[0], tail[1] = batch.producer_epoch, following
            tail[2] += 1

    def decided(self, part: Part) -> None:
        """A batch that was under way has its outcome."""
        if not self._tails:
            return
        key = (part.stream, part.batch.producer_id)
        tail = self._tails.get(key)
        if tail is not None:
            tail[2] -= 1
            if not tail[2]:
                del self._tails[key]

    def _gap(self, part: Part) -> bool:
        """Whether earlier batches of this producer are missing that another broker may still bring."""
        batch = part.batch
        tail = self._tails.get((part.stream, batch.producer_id))
        if tail is not None and tail[0] == batch.producer_epoch:
            return batch.base_sequence > tail[1]
        state = self._replica.state
        stream = state.streams.get(part.stream)
        if stream is None or state.writer_count < 2:
            return False
        known = stream.producers.get(batch.producer_id) if stream.producers is not None else None
        if known is None:
            return batch.base_sequence > 0
        return known.epoch == batch.producer_epoch and batch.base_sequence > (known.recent[-2] + 1) % SEQUENCES

    def _look(self) -> None:
        """Let go what has its predecessors now, or has waited long enough."""
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
        """Let everything go."""
        for waiting in list(self._held.values()):
            for _, part in waiting:
                self._under_way(part)
                self._release(part)
        self._held.clear()
