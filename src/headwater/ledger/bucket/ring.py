"""The ring of slots of one domain: reading it, finding its end, and writing the next slot.

The ring has N places. Slot p is in place `p mod N`. It is written by a conditional PUT only. On the first lap the
condition is that the place is empty; later, that the place still holds slot p-N, named by its tag. Places are never
emptied. It follows:

- **One writer per slot.** Of all PUTs for slot p, the first that takes effect makes the condition false for all others,
  for ever: the place never holds p-N (or nothing) again.
- **A late PUT** can therefore only take effect on the slot that it was meant for, and only if no other PUT has written
  that slot. A writer that does not know the outcome of its PUT sends the same bytes to the same place again and reads
  them back. Either the place holds its own batch, or another batch; then its own can never be committed.
- **A sleeping writer** that wakes up after a lap of the ring names a tag that is gone, and is refused.
- **No holes.** A writer writes p+1 only after it has seen that p is written. So if p+1 is written, p was written
  before. A reader that reads several slots at once uses only those before the first missing one.
- **Truncation** is a mark that only rises. Slot p may replace p-N only if the mark covers p-N. A reader that looks for
  p and finds p+N raises `Truncated`.
- **The end** is found by reading the place after the newest known slot until the place holds an older lap or nothing.
  Slots in a place only rise, so a search that starts after an append has returned finds the appended slot.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from headwater.background import spawn
from headwater.clock import Clock
from headwater.errors import Halted, StoreUnavailable, Truncated
from headwater.ledger.bucket.cells import Cell, Mark, PointerValue, Wish
from headwater.ledger.bucket.slots import Slot, decode_slot, encode_slot, position_of, sequence_of
from headwater.ledger.contract import Entry
from headwater.objects.registers import Registers, Tag
from headwater.types import Domain, Position

WINDOW = 32
"""The number of places that are read at once."""
TAIL_BYTES = 8 << 20
"""The limit of the newest slots in memory."""
RECENT = 16
"""The number of newest slots whose writers count as recent."""
MAX_WRITERS = 64
"""The number of writers whose newest slot is remembered."""
AHEAD = 64
"""The number of next slots for which a writer fetches the tags that it will replace."""
NOWHERE = Position(0)


class Taken(Exception):
    """The slot that a writer wants to write is written already."""


class DomainRing:
    """The ring of one domain, as far as one handle knows it."""

    def __init__(self, registers: Registers, domain: Domain, places: int, name: str, clock: Clock) -> None:
        self._registers = registers
        self._clock = clock
        self._places = places
        self._root = f"ledger/v1/domain={domain}"
        self._name = name
        self.domain = domain
        self.end = 0
        """The newest slot that is known to be written."""
        self.last = NOWHERE
        """The position of the last record of slot `end`."""
        self.moved_at = 0.0
        """The time at which this handle saw the end move."""
        self.truncated = NOWHERE
        """The truncation mark, as far as this handle knows it."""
        self.writers: deque[bytes] = deque(maxlen=RECENT)
        """The writers of the newest slots."""
        self.newest: OrderedDict[bytes, int] = OrderedDict()
        """The newest slot of each writer that this handle has seen."""
        self._tags: dict[int, tuple[int, Tag]] = {}
        self._tail: OrderedDict[int, Slot] = OrderedDict()
        self._tail_bytes = 0
        self._ahead: dict[int, Slot] = {}
        """Slots that are written but come after a slot that is not known yet."""
        self._delivered: Position | None = None
        """The last position that `read` of this handle has returned."""
        self._is_open = False
        self._opening = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        self._mark = Cell(registers, f"{self._root}/truncated", Mark)
        self._marks = 0
        self.pointer = Cell(registers, f"{self._root}/pointer", PointerValue)
        self.wish = Cell(registers, f"{self._root}/wish", Wish)

    def __repr__(self) -> str:
        return f"<DomainRing {self.domain} at {self.end}, truncated through {self.truncated}>"

    def path(self, sequence: int) -> str:
        return f"{self._root}/slot/{sequence % self._places:08d}"

    # --- known slots -----------------------------------------------------------------------------------

    async def fetch(self, sequence: int) -> Slot | None:
        """Read the place of a slot. It holds the slot itself, one of an earlier or later lap, or nothing."""
        path = self.path(sequence)
        held = await self._registers.read(path)
        if held is None:
            return None
        slot = decode_slot(held.data, path)
        if slot.domain != self.domain or slot.sequence % self._places != sequence % self._places:
            raise Halted(f"{path} holds slot {slot.sequence} of domain {slot.domain}")
        self._note_tag(slot.sequence, held.tag)
        return slot

    def known(self, sequence: int) -> Slot | None:
        """A slot that is still in memory."""
        return self._tail.get(sequence)

    def _note_tag(self, sequence: int, tag: Tag) -> None:
        place = sequence % self._places
        if self._tags.get(place, (0, tag))[0] < sequence:
            self._tags[place] = (sequence, tag)

    def adopt(self, slot: Slot, tag: Tag | None = None) -> None:
        """Take note of a slot that is written. Only the slot after the newest known one moves the end."""
        if tag is not None:
            self._note_tag(slot.sequence, tag)
        if slot.sequence == self.end + 1:
            self._keep(slot)
            self._move(slot)
        elif slot.sequence > self.end + 1 and len(self._ahead) < AHEAD:
            self._ahead[slot.sequence] = slot

    def _keep(self, slot: Slot) -> None:
        self._tail[slot.sequence] = slot
        self._tail_bytes += slot.size
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= self._tail.popitem(last=False)[1].size
        writer = slot.identity.writer
        self.writers.append(writer)
        self.newest[writer] = slot.sequence
        self.newest.move_to_end(writer)
        if len(self.newest) > MAX_WRITERS:
            self.newest.popitem(last=False)

    def _move(self, slot: Slot) -> None:
        self.end, self.last, self.moved_at = slot.sequence, slot.last, self._clock.monotonic()
        while (following := self._ahead.pop(self.end + 1, None)) is not None:
            self._keep(following)
            self.end, self.last = following.sequence, following.last
        if self._ahead and min(self._ahead) <= self.end:
            self._ahead = {sequence: ahead for sequence, ahead in self._ahead.items() if sequence > self.end}
        waiting, self._waiting = self._waiting, []
        for after, future in waiting:
            if after >= self.last:
                self._waiting.append((after, future))
            elif not future.done():
                future.set_result(None)

    def wait(self, after: Position) -> asyncio.Future[None]:
        """A future that is done when a record after a position is known. The caller cancels it to give up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.last > after:
            future.set_result(None)
        else:
            self._waiting = [w for w in self._waiting if not w[1].done()]
            self._waiting.append((after, future))
        return future

    @property
    def watched(self) -> bool:
        return any(not future.done() for _, future in self._waiting)

    # --- the end ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the truncation mark and find the end, once."""
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self.read_mark()
                await self._find_end(sequence_of(self.truncated))
                self._is_open = True

    async def _find_end(self, low: int) -> None:
        """Search upwards from a written slot, in steps that double, then halve."""
        found: Slot | None = None
        high, step = 0, 1
        while not high or high - low > 1:
            middle = (low + high) // 2 if high else low + step
            step *= 2
            slot = await self.fetch(middle)
            if slot is None or slot.sequence < middle:
                high = middle
            else:
                low, found = slot.sequence, slot
                if high and low >= high:
                    high, step = 0, 1
        if low > self.end:
            if found is None or found.sequence != low:
                found = await self.fetch(low)
            if found is None or found.sequence < low:
                raise Halted(f"{self.path(low)} lost slot {low}; the bucket has gone back to an older state")
            self._keep(found)
            self._move(found)

    async def look(self, width: int = 1) -> None:
        """Find the current end. Calls that arrive during a look share the next look.

        `width` is the number of slots that the look reads first. A caller that expects one new slot passes 2: the look
        then takes one round.
        """
        await self.open()
        before = self._looking
        if before is not None and not before.done():
            await asyncio.wait([before])  # it started before this call, so it may have missed a slot
        if self._looking is None or self._looking.done():
            self._looking = spawn(self._advance(width), f"ledger-look-{self.domain}")
        look = self._looking
        try:
            await asyncio.shield(look)
        except asyncio.CancelledError:
            if look.cancelled():
                raise StoreUnavailable("the ledger was closed") from None
            raise

    def look_soon(self) -> None:
        """Look in the background, unless a look is under way."""
        if self._is_open and (self._looking is None or self._looking.done()):
            self._looking = spawn(self._advance(), f"ledger-look-{self.domain}")

    async def _advance(self, width: int = 1) -> None:
        while True:
            wanted = range(self.end + 1, self.end + 1 + width)
            slots = await asyncio.gather(*(self.fetch(sequence) for sequence in wanted))
            for sequence, slot in zip(wanted, slots, strict=True):
                if slot is None or slot.sequence < sequence:
                    return
                if slot.sequence > sequence:
                    await self._find_end(slot.sequence)
                    break
                self.adopt(slot)
            width = min(width * 2, WINDOW, self._places)

    # --- reading ---------------------------------------------------------------------------------------

    async def read(self, after: Position, limit: int) -> list[Entry]:
        """See `Ledger.read`.

        A caller that continues where the last read ended may still get records that were truncated a moment ago. This
        saves reading the mark for every read.
        """
        await self.open()
        if after >= self.last:
            await self.look()
        elif self._delivered is None or after < self._delivered:
            await self.read_mark()
        if after < self.truncated:
            raise Truncated(
                f"domain {self.domain} is truncated through {self.truncated}, so it cannot be read after {after}"
            )
        entries = await self._collect(after, limit)
        if entries:
            self._delivered = max(self._delivered or NOWHERE, entries[-1].position)
        return entries

    async def _collect(self, after: Position, limit: int) -> list[Entry]:
        sequence = max(1, sequence_of(after))
        known = self._tail.get(sequence)
        if after >= self.last or (known is not None and known.last <= after):
            sequence += 1
        end, entries = self.end, list[Entry]()
        while sequence <= end and len(entries) < limit:
            stop = min(end + 1, sequence + min(WINDOW, limit - len(entries)))
            for slot in await asyncio.gather(*(self._slot(wanted) for wanted in range(sequence, stop))):
                entries += slot.entries(after)
            sequence = stop
        return entries[:limit]

    async def _slot(self, sequence: int) -> Slot:
        slot = self._tail.get(sequence) or await self.fetch(sequence)
        if slot is None or slot.sequence < sequence:
            raise Halted(f"{self.path(sequence)} lost slot {sequence}; the bucket has gone back to an older state")
        if slot.sequence > sequence:
            raise Truncated(f"domain {self.domain}: slot {sequence} was replaced by {slot.sequence}")
        return slot

    # --- truncation ------------------------------------------------------------------------------------

    async def read_mark(self) -> None:
        mark, _ = await self._mark.read()
        if mark is not None:
            self.truncated = max(self.truncated, Position(mark.position))

    async def truncate(self, through: Position) -> None:
        """See `Ledger.truncate`. Truncated slots stay in their places until a later lap replaces them."""
        await self.look()
        wanted = min(through, self.last)
        while wanted > self.truncated:
            mark, held = await self._mark.read()
            if mark is None or mark.position < wanted:
                self._marks += 1
                if not await self._mark.swap(held, Mark(wanted, f"{self._name}-{self._marks}")):
                    continue
                mark = Mark(wanted, "")
            self.truncated = max(self.truncated, Position(mark.position))

    def _has_room(self, sequence: int) -> bool:
        return sequence <= self._places or sequence_of(self.truncated) > sequence - self._places

    async def make_room(self, sequence: int) -> None:
        """Ensure that the slot to be replaced is truncated.

        If the ring is full, records that the newest checkpoint covers are truncated, at most an eighth of the ring at a
        time. Usually the second newest checkpoint decides; but while nothing can be appended, no new one is written.
        """
        if self._has_room(sequence):
            return
        await self.read_mark()
        if not self._has_room(sequence):
            pointed, _ = await self.pointer.read()
            if pointed is not None:
                spare = position_of(sequence - self._places + 1 + self._places // 8, 0)
                await self.truncate(min(Position(pointed.pointer.position), spare))
        if not self._has_room(sequence):
            raise StoreUnavailable(
                f"domain {self.domain}: all {self._places} slots of the ledger are in use; a checkpoint must be written"
            )

    # --- writing ---------------------------------------------------------------------------------------

    async def write(self, slot: Slot) -> Tag | None:
        """Send one conditional PUT of a slot. `None` if it is refused. Raises `Taken` if the slot exists already."""
        await self.make_room(slot.sequence)
        data, path = encode_slot(slot), self.path(slot.sequence)
        if slot.sequence <= self._places:
            return await self._registers.create(path, data)
        replaced = slot.sequence - self._places
        held = self._tags.get(slot.sequence % self._places, (0, Tag("")))
        if held[0] != replaced:
            found = await self.fetch(slot.sequence)
            if found is None or found.sequence < replaced:
                raise Halted(f"{path} lost slot {replaced}; the bucket has gone back to an older state")
            if found.sequence > replaced:
                raise Taken
            held = self._tags[slot.sequence % self._places]
        return await self._registers.replace(path, data, held[1])

    def prepare(self) -> None:
        """Fetch the tags that the next slots will replace, in the background, so that an append is one request."""
        if self._fetching is not None and not self._fetching.done():
            return
        ahead = range(self.end + 1, self.end + 1 + min(AHEAD, self._places))
        wanted = [s for s in ahead if s > self._places and not self._expects(s)]
        if len(wanted) > AHEAD // 2 or (wanted and wanted[0] == self.end + 1):
            self._fetching = spawn(self._fetch_all(wanted), f"ledger-ahead-{self.domain}")

    def _expects(self, sequence: int) -> bool:
        return self._tags.get(sequence % self._places, (0, ""))[0] >= sequence - self._places

    async def _fetch_all(self, wanted: list[int]) -> None:
        for at in range(0, len(wanted), 8):
            await asyncio.gather(*(self.fetch(sequence) for sequence in wanted[at : at + 8]))

    async def close(self) -> None:
        """Stop the background tasks and fail the waiting callers."""
        tasks = [task for task in (self._looking, self._fetching) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(StoreUnavailable("the ledger is closed"))
