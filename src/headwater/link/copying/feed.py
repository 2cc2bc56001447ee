"""Fetching for all partitions of a link that this process copies.

One request to each broker of the source is under way at a time. It is about every partition that has room; those that
had nothing in the last answers come first, because a full answer leaves out the last ones. A partition that waits for
its own log, for an open transaction or after a failure holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headwater.background import Tasks
from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError
from headwater.link.ahead import Ahead
from headwater.link.breaker import Breaker
from headwater.link.copying.partition import Copier
from headwater.link.retrying import pause_after
from headwater.link.source.errors import SourceOvertaken, SourceStops
from headwater.link.source.source import Answer, Found, Group, Want
from headwater.settings.links import Links as LinkSettings

log = logging.getLogger("headwater.link")
LOOK_SECONDS = 0.25
"""How often a feed without work looks again, beside being woken."""

Place = tuple[str, int]
"""The source's name of a topic, and a partition."""


class Fetches(Protocol):
    """What a feed needs of a source."""

    async def by_leader(self, wants: Sequence[Want]) -> tuple[list[Group], dict[Place, HeadwaterError]]:
        """Partitions by the broker that leads them, and the errors of those that cannot be fetched now."""

    async def fetch(self, group: Group) -> Mapping[Place, Answer]:
        """One request to the leader of some partitions. Each of them may fail on its own."""

    def leave(self, place: Place) -> None:
        """A partition is not fetched any more."""


class Owner(Protocol):
    """What a feed tells to its link."""

    @property
    def accept_gap(self) -> bool:
        """Whether to go on where the source's log starts, if records before that were not copied."""

    def ended(self, copier: Copier, error: SourceStops) -> None:
        """A partition cannot be copied any further."""


class Feed:
    """Fetches for the partitions of one link."""

    def __init__(
        self,
        source: Fetches,
        owner: Owner,
        breaker: Breaker,
        ahead: Ahead,
        settings: LinkSettings,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._source = source
        self._owner = owner
        self._breaker = breaker
        self._ahead = ahead
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._members: dict[Place, Copier] = {}
        self._not_before: dict[Place, float] = {}
        """When a partition that failed is fetched again."""
        self._busy: dict[int, frozenset[Place]] = {}
        """What is being fetched, by broker."""
        self._fetches = Tasks()
        self._wake = asyncio.Event()
        self.failures = 0
        """Requests in a row that failed as a whole."""
        self.failed = 0
        """Requests that failed as a whole."""
        self.error = ""
        """The last failure; empty after a success."""
        self._unforeseen: Exception | None = None
        """What a fetch died of."""

    def __repr__(self) -> str:
        return f"<Feed of {len(self._members)} partitions, fetching from {sorted(self._busy)}>"

    def join(self, copier: Copier) -> None:
        """Fetch for a partition from now on."""
        self._members[copier.place] = copier
        copier.on_position = self._wake.set
        self._wake.set()

    def leave(self, copier: Copier) -> None:
        """Do not fetch for a partition any more."""
        if self._members.get(copier.place) is copier:
            del self._members[copier.place]
            self._not_before.pop(copier.place, None)
            self._source.leave(copier.place)

    def rest(self) -> None:
        """There is nothing to fetch: failures of before say nothing about the source of now."""
        self.failures, self.error = 0, ""

    async def run(self) -> None:
        """Fetch until this is cancelled, or a fetch fails in a way that nobody foresaw."""
        try:
            while True:
                self._wake.clear()
                if self._unforeseen is not None:
                    raise self._unforeseen
                wants = self._wants()
                if wants:
                    await self._start(wants)
                await self._rest(LOOK_SECONDS)
        finally:
            await self._fetches.close()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _wants(self) -> list[Want]:
        if self._ahead.paused:
            return []
        now, busy = self._clock.monotonic(), frozenset[Place]().union(*self._busy.values())
        return [
            Want(copier.topic, copier.topic_id, copier.partition, copier.position, copier.epoch, copier.epoch_end)
            for place, copier in self._members.items()
            if copier.hungry and place not in busy and self._not_before.get(place, 0.0) <= now
        ]

    async def _start(self, wants: Sequence[Want]) -> None:
        """Start a fetch from every broker that is free, of the partitions that it leads."""
        if self._breaker.wait(self._clock.monotonic()) > 0:
            return
        try:
            groups, errors = await self._source.by_leader(wants)
        except HeadwaterError as error:
            await self._fail(error)
            return
        for want in wants:
            if want.place in errors:
                self._deal(want, errors[want.place])
        for group in groups:
            node = group.broker.node
            if node not in self._busy and self._breaker.allows(self._clock.monotonic()):
                self._busy[node] = frozenset(want.place for want in group.terms)
                self._fetches.spawn(self._fetch(node, group), f"fetch-{node}")

    async def _fetch(self, node: int, group: Group) -> None:
        """One request. An answer is for the copier that asked, not for one of the same partition that came later."""
        asking = {want.place: self._members.get(want.place) for want in group.terms}
        size = self._ahead.begin()
        try:
            answers = await self._source.fetch(replace(group, max_bytes=size))
        except asyncio.CancelledError:
            self._breaker.gave_up()
            raise
        except HeadwaterError as error:
            await self._fail(error)
        except Exception as error:
            self._breaker.gave_up()
            self._unforeseen = error
            raise
        else:
            self._breaker.worked()
            self.failures, self.error = 0, ""
            for want in sorted(group.terms, key=lambda want: _has_records(answers[want.place])):
                copier = asking[want.place]
                if copier is not None and self._members.get(want.place) is copier:
                    self._deal(want, answers[want.place])
                    self._members[want.place] = self._members.pop(want.place)  # the others first, next time
        finally:
            self._ahead.end(size)
            del self._busy[node]
            self._wake.set()

    async def _fail(self, error: HeadwaterError) -> None:
        """Note a failure, and wait."""
        self._breaker.failed(self._clock.monotonic())
        self.failures, self.failed, self.error = self.failures + 1, self.failed + 1, str(error)
        log.warning("a fetch from a source failed", extra={"reason": str(error)})
        await asyncio.sleep(pause_after(self.failures, self._settings, self._chance.fraction()))

    def _deal(self, want: Want, answer: Answer) -> None:
        """Give what was found to its partition."""
        copier = self._members.get(want.place)
        if copier is None or copier.position != want.position:
            return
        if isinstance(answer, Found):
            if self._not_before.pop(want.place, None) is not None:
                copier.fine()
            copier.take(want.position, answer.pieces, answer.end, answer.high_watermark)
        elif isinstance(answer, SourceOvertaken) and (not copier.end or self._owner.accept_gap):
            told = {"topic": want.topic, "partition": want.partition, "position": want.position, "reason": str(answer)}
            log.warning("records that the source has no more are left out", extra=told)
            copier.begin_at(want.position, answer.log_start)
        elif isinstance(answer, SourceStops):
            self._owner.ended(copier, answer)
        else:
            copier.fail(answer)
            pause = pause_after(copier.failures, self._settings, self._chance.fraction())
            self._not_before[want.place] = self._clock.monotonic() + pause


def _has_records(answer: Answer) -> bool:
    return isinstance(answer, Found) and bool(answer.pieces)
