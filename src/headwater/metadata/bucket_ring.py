"""One domain's ring of slots: how it is read, where it ends, and how the next slot is written.

The ring has N places. Slot p lies in place `p mod N`, and is written by a conditional PUT only: on the first lap if the
place is empty, later if it still holds slot p-N, named by its tag. Places are never emptied. From this follows:

- **One writer per slot.** Of all PUTs aimed at p, the first that meets its condition makes it false for all others, for
  ever: the place never holds p-N (or nothing) again.
- **A late PUT** can therefore only land where it was aimed, and only as long as nobody else has taken that slot. A
  writer that does not know what became of its PUT sends the same bytes to the same place again, and reads back: either
  the place holds its own batch, or another's and then its own can never come to stand.
- **A sleeping writer** that wakes after the ring was lapped names a tag that is gone, and is refused.
- **No holes.** A writer aims at p+1 only after it has seen p stand. So if p+1 stands, p stood before it. A reader that
  asks for several slots at once believes only those before the first that is missing.
- **Truncation** is a mark that only rises. Slot p may replace p-N only if the mark covers it. A reader that finds p+N
  where it looks for p was lapped: `Truncated`.
- **The end** is found by reading the place after the newest known slot until it holds an older lap or nothing. Slots
  only rise in a place, so an answer that began after an append returned cannot miss it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from headwater.clock import Clock
from headwater.errors import Halted, StoreUnavailable, Truncated
from headwater.metadata.bucket_cells import Cell, Mark, PointerValue, Wish
from headwater.metadata.bucket_slots import Slot, decode_slot, encode_slot, position_of, sequence_of
from headwater.metadata.ledger import Entry
from headwater.objects.registers import Registers, Tag
from headwater.types import Domain, Position

WINDOW = 32
"""How many places are read at once."""
TAIL_BYTES = 8 << 20
"""Newest slots that are kept in memory."""
RECENT = 16
"""How many slots back other writers are counted."""
MAX_WRITERS = 64
"""Of so many writers it is known when they wrote last."""
AHEAD = 64
"""For how many slots ahead a writer wants to know what it will replace."""
NOWHERE = Position(0)


class Taken(Exception):
    """The slot that a writer aimed at stands already."""


class DomainRing:
    """One domain, as one handle knows it."""

    def __init__(self, registers: Registers, domain: Domain, places: int, name: str, clock: Clock) -> None:
        self._registers = registers
        self._clock = clock
        self._places = places
        self._root = f"ledger/v1/domain={domain}"
        self._name = name
        self.domain = domain
        self.end = 0
        """The newest slot that is known to stand."""
        self.last = NOWHERE
        """The position of its last record."""
        self.moved_at = 0.0
        """When the end moved, as far as this handle has seen."""
        self.truncated = NOWHERE
        """As far as this handle knows."""
        self.writers: deque[bytes] = deque(maxlen=RECENT)
        """Who wrote the newest slots."""
        self.newest: OrderedDict[bytes, int] = OrderedDict()
        """The newest slot of each writer, as far as it was seen here."""
        self._tags: dict[int, tuple[int, Tag]] = {}
        self._tail: OrderedDict[int, Slot] = OrderedDict()
        self._tail_bytes = 0
        self._ahead: dict[int, Slot] = {}
        """Slots that stand, but not all before them are known."""
        self._delivered: Position | None = None
        """How far this handle's readers have come."""
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

    # --- what is there ---------------------------------------------------------------------------------

    async def fetch(self, sequence: int) -> Slot | None:
        """What lies in a slot's place: itself, an earlier lap, a later lap, or nothing."""
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
        """Take note of a slot that stands. Only the one after the newest known moves the end."""
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
        """Done when something after a position is known. Cancel it to give up."""
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
        """Find out where the domain stands."""
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self.read_mark()
                await self._find_end(sequence_of(self.truncated))
                self._is_open = True

    async def _find_end(self, low: int) -> None:
        """Search upwards from a slot that stands, in steps that double, then halve."""
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
                raise Halted(f"{self.path(low)} lost slot {low}; the bucket went back in time")
            self._keep(found)
            self._move(found)

    async def look(self, width: int = 1) -> None:
        """Find the end as it is now. Callers that come while somebody looks share the next look.

        So many slots are asked for at first: two if one is expected, since then a look takes one round.
        """
        await self.open()
        before = self._looking
        if before is not None and not before.done():
            await asyncio.wait([before])  # it began before this call, so it may have missed something
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._advance(width), name=f"ledger-look-{self.domain}")
            self._looking.add_done_callback(_consume)
        look = self._looking
        try:
            await asyncio.shield(look)
        except asyncio.CancelledError:
            if look.cancelled():
                raise StoreUnavailable("the ledger was closed") from None
            raise

    def look_soon(self) -> None:
        """Look in the background, unless somebody looks already."""
        if self._is_open and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._advance(), name=f"ledger-look-{self.domain}")
            self._looking.add_done_callback(_consume)

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

        Whoever reads on from where this handle's readers have come to may still get records that were truncated a
        moment ago, which saves a look at the mark for every record.
        """
        await self.open()
        if after >= self.last:
            await self.look()
        elif self._delivered is None or after < self._delivered:
            await self.read_mark()
        if after < self.truncated:
            raise Truncated(f"domain {self.domain} is truncated through {self.truncated}, asked after {after}")
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
            raise Halted(f"{self.path(sequence)} lost slot {sequence}; the bucket went back in time")
        if slot.sequence > sequence:
            raise Truncated(f"domain {self.domain}: slot {sequence} was replaced by {slot.sequence}")
        return slot

    # --- truncation ------------------------------------------------------------------------------------

    async def read_mark(self) -> None:
        mark, _ = await self._mark.read()
        if mark is not None:
            self.truncated = max(self.truncated, Position(mark.position))

    async def truncate(self, through: Position) -> None:
        """See `Ledger.truncate`. What is truncated stays in its place until a later lap needs it."""
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
        """Make sure that what a slot replaces is truncated.

        In need, everything that the newest checkpoint covers is given up, a part of the ring at a time: waiting for a
        second checkpoint would be waiting for ever, as nothing new could be appended for it to cover.
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
        """One conditional PUT of a slot; None if it was refused. Raises `Taken` if the slot stands already."""
        await self.make_room(slot.sequence)
        data, path = encode_slot(slot), self.path(slot.sequence)
        if slot.sequence <= self._places:
            return await self._registers.create(path, data)
        replaced = slot.sequence - self._places
        held = self._tags.get(slot.sequence % self._places, (0, Tag("")))
        if held[0] != replaced:
            found = await self.fetch(slot.sequence)
            if found is None or found.sequence < replaced:
                raise Halted(f"{path} lost slot {replaced}; the bucket went back in time")
            if found.sequence > replaced:
                raise Taken
            held = self._tags[slot.sequence % self._places]
        return await self._registers.replace(path, data, held[1])

    def prepare(self) -> None:
        """Learn in the background what the next slots will replace, so that an append is one request."""
        if self._fetching is not None and not self._fetching.done():
            return
        ahead = range(self.end + 1, self.end + 1 + min(AHEAD, self._places))
        wanted = [s for s in ahead if s > self._places and not self._expects(s)]
        if len(wanted) > AHEAD // 2 or (wanted and wanted[0] == self.end + 1):
            self._fetching = asyncio.create_task(self._fetch_all(wanted), name=f"ledger-ahead-{self.domain}")
            self._fetching.add_done_callback(_consume)

    def _expects(self, sequence: int) -> bool:
        return self._tags.get(sequence % self._places, (0, ""))[0] >= sequence - self._places

    async def _fetch_all(self, wanted: list[int]) -> None:
        for at in range(0, len(wanted), 8):
            await asyncio.gather(*(self.fetch(sequence) for sequence in wanted[at : at + 8]))

    async def close(self) -> None:
        """Stop what runs in the background."""
        tasks = [task for task in (self._looking, self._fetching) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(StoreUnavailable("the ledger is closed"))


def _consume(task: asyncio.Task[None]) -> None:
    """Look at a task's exception, so that nobody is told that nobody did."""
    if not task.cancelled():
        task.exception()
