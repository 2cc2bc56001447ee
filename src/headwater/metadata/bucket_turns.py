"""Who writes next in a ring that several processes write to.

Whoever wrote lately is in the circle, in the order of the writers' names. After a slot of one, the next in the circle
may write at once, the one after that when about the time of a PUT has passed since, and so on, after a look whether
somebody has written meanwhile. So two PUTs for one slot are rare, and nobody waits if the last slot is older than that.
A writer that seems to be alone pauses now and then, or those that always come second would never get into the circle.

That is fair among equals. A process that is slow between two requests, on a busy machine say, comes second again and
again whatever the circle says. So a writer that has lost for a while leaves a wish in the bucket. The others look for
wishes now and then while they write, beside their PUTs, and let such a writer go first. Nothing rests on a wish: one
that is lost is repeated, and one whose writer has died costs the others a moment.
"""

from __future__ import annotations

import asyncio

from headwater.clock import Chance, Clock
from headwater.metadata.bucket_cells import Wish
from headwater.metadata.bucket_ring import DomainRing

TURN_LIMIT_SECONDS = 0.25
"""The longest time that a writer waits for another one's turn."""
ALONE = 8
"""So many slots in a row a writer writes before it looks whether others want to."""
WISH_SECONDS = 0.3
"""A writer that has tried for so long and sees others write leaves a wish, and another after the same time again."""
LISTEN_SECONDS = 0.25
"""How often a writer looks for wishes, while it writes."""
FRESH_SECONDS = 1.0
"""A wish counts if it was not there so long ago. Those that are older were granted, or are repeated."""
YIELD_SECONDS = 0.6
"""So long a writer waits at most for one that left a wish."""
YIELD_LOOK_SECONDS = 0.03


class Turns:
    """One writer's turns in one domain."""

    def __init__(self, ring: DomainRing, writer: bytes, clock: Clock, chance: Chance) -> None:
        self._ring = ring
        self._writer = writer
        self._clock = clock
        self._chance = chance
        self._put_seconds = 0.0
        """About how long a PUT takes."""
        self._row = 0
        """How many slots were written here without a pause."""
        self._losses = 0
        self._wish_at = 0.0
        """When it is time for a wish."""
        self._wishes = 0
        self._insists = False
        """Whether a wish is out: who asks others to wait does not wait for their turns."""
        self._wishing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._listened_at = float("-inf")
        self._heard = ""
        """The name of the newest wish that is known."""
        self._owed: Wish | None = None
        """Who is to go first, and until when."""
        self._owed_until = 0.0

    def __repr__(self) -> str:
        return f"<Turns of {self._writer.hex()} in {self._ring}: lost {self._losses} in a row>"

    async def wait(self) -> None:
        """Wait until it is this writer's turn, or those before it have let theirs pass."""
        if not self._losses:
            self._wish_at = self._clock.monotonic() + WISH_SECONDS
        self._listen()
        await self._let_pass()
        if not self._insists:
            await self._wait_politely()

    async def _wait_politely(self) -> None:
        ring = self._ring
        self._row = self._row + 1 if ring.writers and ring.writers[-1] == self._writer else 0
        least = 1 if self._row >= ALONE else 0
        if least:
            self._row = 0
        turn = min(self._put_seconds, TURN_LIMIT_SECONDS) * (0.75 + 0.5 * self._chance.fraction())
        while (left := ring.moved_at + max(least, self._others_before()) * turn - self._clock.monotonic()) > 0:
            end = ring.end
            await asyncio.sleep(left)
            await ring.look()
            if ring.end == end or self._wish():
                return
            least = 0

    def _others_before(self) -> int:
        """How many others come before this writer."""
        writers = self._ring.writers
        circle = sorted({*writers, self._writer})
        if len(circle) == 1:
            return 0
        before = circle.index(writers[-1])
        return (circle.index(self._writer) - before - 1) % len(circle)

    # --- how it went -----------------------------------------------------------------------------------

    def won(self, seconds: float | None = None) -> None:
        """A slot was written here; its PUT took so long, if that is known."""
        self._losses = 0
        self._insists = False
        if seconds is not None:
            self._put_seconds += (seconds - self._put_seconds) / 8

    def lost(self) -> None:
        """Another writer got the slot."""
        self._losses += 1
        self._wish()

    def _wish(self) -> bool:
        """Leave a wish, if it is time; whether it was."""
        now = self._clock.monotonic()
        if now < self._wish_at or (self._wishing is not None and not self._wishing.done()):
            return False
        self._wish_at = now + WISH_SECONDS
        self._insists = True
        self._wishes += 1
        wish = Wish(self._writer.hex(), self._ring.end, f"{self._writer.hex()}-{self._wishes}")
        self._wishing = asyncio.create_task(self._ring.wish.put(wish), name=f"ledger-wish-{self._ring.domain}")
        self._wishing.add_done_callback(_consume)
        return True

    # --- others' wishes --------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Look for a wish in the background, if it is time."""
        due = self._clock.monotonic() - self._listened_at >= LISTEN_SECONDS
        if due and (self._listening is None or self._listening.done()):
            self._listening = asyncio.create_task(self._hear(), name=f"ledger-listen-{self._ring.domain}")
            self._listening.add_done_callback(_consume)

    async def _hear(self) -> None:
        before, self._listened_at = self._listened_at, self._clock.monotonic()
        wish, _ = await self._ring.wish.read()
        if wish is None or wish.name == self._heard:
            return
        self._heard = wish.name
        if wish.writer == self._writer.hex() or self._listened_at - before >= FRESH_SECONDS:
            return
        if self._owed is None or self._owed.writer != wish.writer:
            self._owed_until = self._clock.monotonic() + YIELD_SECONDS
        self._owed = wish

    async def _let_pass(self) -> None:
        """Let the writer that left a wish go first."""
        while (wish := self._owed) is not None:
            if self._is_granted(wish) or self._clock.monotonic() >= self._owed_until:
                self._owed = None
                return
            await asyncio.sleep(YIELD_LOOK_SECONDS)
            self._listen()
            await self._ring.look()

    def _is_granted(self, wish: Wish) -> bool:
        """Whether its writer has written since."""
        return self._ring.newest.get(bytes.fromhex(wish.writer), 0) > wish.end

    async def close(self) -> None:
        """Stop what runs in the background."""
        tasks = [task for task in (self._wishing, self._listening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _consume(task: asyncio.Task[None]) -> None:
    """Look at a task's exception, so that nobody is told that nobody did: a wish may fail."""
    if not task.cancelled():
        task.exception()
