"""Turns of the writers of one ring.

Recent writers form a circle, in the order of their names. After one of them has written a slot, the next in the circle
may write at once. The one after that waits for about the time of a PUT, and so on; before it writes, it checks whether
another writer has written meanwhile. So two PUTs for one slot are rare, and no writer waits if the last slot is older
than its wait. A writer that seems to be alone pauses from time to time, so that writers outside the circle can enter.

That is fair if all writers are equally fast. A process that is slow between two requests, for example on a busy
machine, comes second again and again. So a writer that has lost for a while leaves a wish in the bucket. The other
writers look for wishes from time to time and let such a writer go first. Safety does not depend on wishes. A lost wish
is repeated. A wish whose writer has died costs the others a short wait.
"""

from __future__ import annotations

import asyncio

from headwater.background import spawn
from headwater.clock import Chance, Clock
from headwater.ledger.bucket.cells import Wish
from headwater.ledger.bucket.ring import DomainRing

TURN_LIMIT_SECONDS = 0.25
"""The longest time that a writer waits for one turn of another writer."""
ALONE = 8
"""The number of slots that a writer writes in a row before it pauses for others."""
WISH_SECONDS = 0.3
"""A writer that has tried for this long while others write leaves a wish, and repeats it after the same time."""
LISTEN_SECONDS = 0.25
"""How often a writer looks for wishes while it writes."""
FRESH_SECONDS = 1.0
"""A new wish counts only if the last look was less than this ago. Older wishes were granted, or are repeated."""
YIELD_SECONDS = 0.6
"""The longest time that a writer waits for one that left a wish."""
YIELD_LOOK_SECONDS = 0.03


class Turns:
    """The turns of one writer in one domain."""

    def __init__(self, ring: DomainRing, writer: bytes, clock: Clock, chance: Chance) -> None:
        self._ring = ring
        self._writer = writer
        self._clock = clock
        self._chance = chance
        self._put_seconds = 0.0
        """The average time of a PUT."""
        self._row = 0
        """The number of slots that this writer has written without a pause."""
        self._losses = 0
        self._wish_at = 0.0
        """The time at which to leave a wish."""
        self._wishes = 0
        self._insists = False
        """Whether this writer has left a wish. It then does not wait for the turns of others."""
        self._wishing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._listened_at = float("-inf")
        self._heard = ""
        """The name of the newest known wish."""
        self._owed: Wish | None = None
        """The wish of the writer that goes first, until `_owed_until`."""
        self._owed_until = 0.0

    def __repr__(self) -> str:
        return f"<Turns of {self._writer.hex()} in {self._ring}: lost {self._losses} in a row>"

    async def wait(self) -> None:
        """Wait until it is this writer's turn, or until the writers before it have not used theirs."""
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
        """The number of writers whose turn comes before this writer's."""
        writers = self._ring.writers
        circle = sorted({*writers, self._writer})
        if len(circle) == 1:
            return 0
        before = circle.index(writers[-1])
        return (circle.index(self._writer) - before - 1) % len(circle)

    # --- results ---------------------------------------------------------------------------------------

    def won(self, seconds: float | None = None) -> None:
        """This writer has written a slot. `seconds` is the time of the PUT, if known."""
        self._losses = 0
        self._insists = False
        if seconds is not None:
            self._put_seconds += (seconds - self._put_seconds) / 8

    def lost(self) -> None:
        """Another writer has written the slot first."""
        self._losses += 1
        self._wish()

    def _wish(self) -> bool:
        """Leave a wish, if it is time. Returns whether it was."""
        now = self._clock.monotonic()
        if now < self._wish_at or (self._wishing is not None and not self._wishing.done()):
            return False
        self._wish_at = now + WISH_SECONDS
        self._insists = True
        self._wishes += 1
        wish = Wish(self._writer.hex(), self._ring.end, f"{self._writer.hex()}-{self._wishes}")
        self._wishing = spawn(self._ring.wish.put(wish), f"ledger-wish-{self._ring.domain}")
        return True

    # --- wishes of others ------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Look for a wish in the background, if it is time."""
        due = self._clock.monotonic() - self._listened_at >= LISTEN_SECONDS
        if due and (self._listening is None or self._listening.done()):
            self._listening = spawn(self._hear(), f"ledger-listen-{self._ring.domain}")

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
        """Whether the writer of a wish has written a slot since."""
        return self._ring.newest.get(bytes.fromhex(wish.writer), 0) > wish.end

    async def close(self) -> None:
        """Stop the background tasks."""
        tasks = [task for task in (self._wishing, self._listening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
