"""One partition of a link: what was fetched waits here, is appended, and says where to fetch next.

The log is its own checkpoint. After every error, and at the start, the copy goes on at the end of the log. Fetching
runs ahead of appending by a limited number of bytes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence

from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError, Retriable
from headwater.link.ahead import Ahead
from headwater.link.copying.appending import AnotherEnd, Appender
from headwater.link.copying.runs import runs_of
from headwater.link.retrying import Retrying
from headwater.link.source.pieces import NO_EPOCH, Piece
from headwater.settings.links import Links as LinkSettings

log = logging.getLogger("headwater.link")
NOWHERE = -1
LOST_SECONDS = 1.0
"""The longest pause of a copy that is always second to that of another process. It may have to take over."""


class Copier:
    """Copies one partition, from the end of the log here on."""

    def __init__(
        self,
        topic: str,
        topic_id: uuid.UUID | None,
        partition: int,
        appender: Appender,
        settings: LinkSettings,
        clock: Clock,
        chance: Chance,
        ahead: Ahead,
    ) -> None:
        self.topic = topic
        """The name in the source."""
        self.topic_id = topic_id
        """The id in the source; None if the source has no ids."""
        self.partition = partition
        self._appender = appender
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._ahead = ahead
        """Counts the bytes of all partitions that were fetched and are not appended."""
        self._pieces: list[Piece] = []
        self._bytes = 0
        """Of the pieces, and of what is being appended."""
        self._since = 0.0
        """When the oldest piece arrived."""
        self._arrived = asyncio.Event()
        self.on_position: Callable[[], None] = _nothing
        """Called when there is a new position to fetch from, or room for more."""
        self.position = NOWHERE
        """The offset to fetch next; `NOWHERE` while the end of the log is not known."""
        self.epoch = NO_EPOCH
        """The source's leader epoch of what is before the position, if it is known."""
        self.epoch_end = NOWHERE
        """Up to where this epoch is known to hold; `NOWHERE`: up to the position."""
        self.end = NOWHERE
        """The end of the log here."""
        self.source_end = NOWHERE
        """The end of what the source has for readers of committed records."""
        self.log_end = NOWHERE
        """The end of the source's log. Records of open transactions are before it."""
        self._held_at = NOWHERE
        """The offset at which an open transaction of the source begins, if it holds up what is behind it."""
        self._held_since = 0.0
        self.newest_ms = -1
        """The largest timestamp of the last batch that was copied."""
        self.records = 0
        """Offsets that this process has copied, gaps included."""
        self.bytes = 0
        self.failures = 0
        """Failures since the last success."""
        self.error = ""
        """The last failure; empty after a success."""
        self.stopped: HeadwaterError | None = None
        """Why the copy ended; None while it runs."""

    def __repr__(self) -> str:
        return f"<Copier of {self.topic}-{self.partition} at {self.end}, fetched to {self.position}>"

    @property
    def place(self) -> tuple[str, int]:
        """The source's name of the topic, and the partition."""
        return self.topic, self.partition

    # --- what a feed uses ------------------------------------------------------------------------------

    @property
    def hungry(self) -> bool:
        """Whether more may be fetched now."""
        return self.position != NOWHERE and self._bytes < self._settings.ahead_bytes and self.stopped is None

    @property
    def lag(self) -> int:
        """Offsets that the source has and the log here has not."""
        return max(0, self.source_end - self.end) if self.end != NOWHERE else 0

    def lag_ms(self, now_ms: int) -> int:
        """How old the last copied record is, if there are newer ones; else 0."""
        return max(0, now_ms - self.newest_ms) if self.lag and self.newest_ms >= 0 else 0

    @property
    def held(self) -> int:
        """Offsets of the source that wait there for the end of a transaction."""
        return max(0, self.log_end - self.source_end) if self.source_end != NOWHERE else 0

    def held_ms(self) -> int:
        """How long the same transaction has held up this partition; 0 if none does."""
        return int(1000 * (self._clock.monotonic() - self._held_since)) if self._held_at != NOWHERE else 0

    def _note_ends(self, source_end: int, log_end: int) -> None:
        self.source_end, self.log_end = source_end, max(source_end, log_end)
        at = source_end if self.held else NOWHERE
        if at != self._held_at:
            self._held_at, self._held_since = at, self._clock.monotonic()

    def take(self, position: int, pieces: Sequence[Piece], source_end: int, log_end: int) -> None:
        """Take what a fetch from a position has found. An answer for an earlier position is dropped."""
        if position != self.position:
            return
        self._note_ends(source_end, log_end)
        if not pieces:
            return
        if not self._pieces:
            self._since = self._clock.monotonic()
        self._pieces += pieces
        size = sum(map(_size, pieces))
        self._bytes += size
        self._ahead.fetched(size)
        if pieces[-1].epoch != NO_EPOCH:
            self.epoch, self.epoch_end = pieces[-1].epoch, NOWHERE
        elif self.epoch_end == NOWHERE:  # what is known of the history ends before these pieces
            self.epoch_end = position
        self.position = pieces[-1].next
        self._arrived.set()

    def begin_at(self, position: int, offset: int) -> None:
        """Leave out what the source does not have any more: a gap from a position up to an offset."""
        self.take(position, [Piece(position, offset, None, NO_EPOCH)], max(self.source_end, offset), self.log_end)

    def why(self) -> str:
        """Why this partition is not healthy, if it is not."""
        if self.stopped is not None or self.error:
            return str(self.stopped or self.error)
        if self.held_ms() > self._settings.late_ms:
            return f"{self.held} records wait at the source for the transaction at offset {self._held_at} to end"
        return f"{self.lag} records behind"

    def fail(self, error: Exception) -> None:
        """Note a failure of the source for this partition."""
        self.failures += 1
        self.error = str(error)

    def fine(self) -> None:
        """Note that the source answered, and forget earlier failures."""
        self.failures, self.error = 0, ""

    # --- appending -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Append until the mirror ends, which raises `MirrorOver`. Retriable failures are retried for ever."""
        try:
            await self._run(Retrying(self._settings, self._chance))
        except HeadwaterError as error:
            self.stopped = error
            raise
        finally:
            self.position = NOWHERE
            self._drop()

    async def _run(self, retrying: Retrying) -> None:
        while True:
            try:
                await self._resume()
                while True:
                    await self._gathered()
                    await self._append()
                    self.fine()
                    retrying.worked()
            except AnotherEnd as moved:
                log.info("a partition was copied by another process", extra={**self._labels(), "reason": str(moved)})
                pause = retrying.pause()
                if retrying.failures > 1:  # nothing was copied since the last one: the other process goes first
                    await asyncio.sleep(min(pause, LOST_SECONDS))
            except Retriable as error:
                self.fail(error)
                log.warning("copying waits", extra={**self._labels(), "reason": str(error)})
                await asyncio.sleep(retrying.pause())

    async def _resume(self) -> None:
        """Forget what was fetched, and go on at the end of the log."""
        self.position, self.epoch, self.epoch_end = NOWHERE, NO_EPOCH, NOWHERE
        self._drop()
        self._arrived.clear()
        end, tail = await self._appender.end(), await self._appender.tail()
        if tail is not None and tail.end <= end:
            self.epoch, self.epoch_end = tail.epoch, tail.end
        self.end = self.position = end
        self.on_position()

    def _drop(self) -> None:
        """Forget what was fetched."""
        self._free(sum(map(_size, self._pieces)))
        self._pieces = []

    def _free(self, size: int) -> None:
        """Bytes were appended or dropped, and there is room for others."""
        self._bytes -= size
        self._ahead.appended(size)
        self.on_position()

    async def _gathered(self) -> None:
        """Wait until enough pieces are there, or the oldest has waited long enough."""
        while not self._pieces:
            await self._next_arrival(None)
        enough, count = self._settings.flush_bytes, self._settings.flush_batches
        while self._bytes < enough and len(self._pieces) < count:
            left = self._since + self._settings.flush_ms / 1000 - self._clock.monotonic()
            if left <= 0 or not await self._next_arrival(left):
                return

    async def _next_arrival(self, seconds: float | None) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _append(self) -> None:
        pieces, self._pieces = self._pieces, []
        try:
            found = runs_of(pieces, self.end, self._settings.flush_bytes)
            if found.runs:
                await self._appender.append(found.runs)
                self._copied(found.end, sum(run.size for run in found.runs))
                self.newest_ms = found.runs[-1].batches[-1].max_timestamp
        finally:
            self._free(sum(map(_size, pieces)))
        if found.next == found.end:
            return
        if self._pieces:  # what follows takes the gap along
            self._pieces.insert(0, Piece(found.end, found.next, None, pieces[-1].epoch))
        else:
            await self._appender.skip(found.end, found.next)
            self._copied(found.next, 0)

    def _copied(self, end: int, size: int) -> None:
        self.records += end - self.end
        self.bytes += size
        self.end = end

    def _labels(self) -> dict[str, object]:
        return {"topic": self.topic, "partition": self.partition}


def _size(piece: Piece) -> int:
    return len(piece.batch.data) if piece.batch is not None else 0


def _nothing() -> None:
    """The default of `on_position`."""
