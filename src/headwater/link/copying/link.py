"""One link in one process: its topics, the partitions of its shares, and the offsets of its groups."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from headwater.background import Tasks
from headwater.configs.topics import TopicConfig
from headwater.errors import BadInput, HeadwaterError, NotAllowed
from headwater.link.ahead import Ahead
from headwater.link.breaker import Breaker
from headwater.link.copying.appending import Appender, MirrorOver
from headwater.link.copying.feed import Feed, Fetches, Place
from headwater.link.copying.groups import GroupOffsets
from headwater.link.copying.partition import Copier
from headwater.link.copying.promoting import Copied, Promotions
from headwater.link.copying.shares import share_of
from headwater.link.copying.tails import Tails
from headwater.link.copying.topics import LinkedTopics, Present
from headwater.link.health import Health, Status, partition_status, source_status, worst
from headwater.link.retrying import Retrying
from headwater.link.source.errors import SourceStops
from headwater.log.write.writers import Writers
from headwater.replica.domains import Domains
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.settings.settings import Settings
from headwater.state.cluster.links import Link, LinkedTopic
from headwater.state.commands.links import LinkPhase
from headwater.types import Domain, StreamId

log = logging.getLogger("headwater.link")
SHARES = 32
"""Parts into which the partitions of a link are divided among processes."""
LEADING = 0
"""The process with this share looks for topics and copies offsets of groups."""
ACCEPT_GAP = "accept.gap"
"""The option with which a link goes on where its source has removed records that were not copied."""
TELL = 3
"""How many failing partitions or topics a reason names."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Committed:
    """What groups have committed in a source."""

    offsets: Mapping[str, Mapping[Place, int]]
    """By group, the offsets in topics."""
    refused: Mapping[str, str]
    """Groups whose offsets the source does not tell, and why."""


class Origin(Fetches, Protocol):
    """What a link needs of its source."""

    @property
    def throttled_s(self) -> float:
        """How long quotas of the source have held up requests."""

    async def discover(self, also: Sequence[str]) -> Present:
        """The topics that the link takes, and those of these names, as far as they exist."""

    def doubt(self, topic: str) -> None:
        """A topic may be another one than was linked: make sure before more of it is fetched."""

    async def group_offsets(self, topics: Sequence[str]) -> Committed:
        """The committed offsets of the link's groups in topics."""

    async def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the links of a process share."""

    settings: Settings
    domains: Domains
    writers: Writers
    topics: Topics
    linking: Linking
    tails: Tails
    ahead: Ahead
    """The bytes that were fetched and are not appended."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A partition that is copied: where to, and by what."""

    stream: int
    generation: int
    topic: uuid.UUID
    copier: Copier
    task: asyncio.Task[None]


class LinkRunner:
    """Copies the shares of one link that this process holds."""

    def __init__(self, link: Link, tools: Tools, connect: Callable[[Link], Origin]) -> None:
        self.link = link
        self.accept_gap = link.spec.options.get(ACCEPT_GAP) == "true"
        self._tools = tools
        self._connect = connect
        self._settings = tools.settings.links
        self._cluster = tools.domains.cluster
        self._clock, self._chance = tools.domains.clock, tools.domains.chance
        self.breaker = Breaker(self._settings)
        self._topics = LinkedTopics(link.name, self._cluster, tools.linking, tools.topics)
        self._groups = GroupOffsets(tools.domains)
        self._promotions = Promotions(link.name, tools.domains, tools.linking)
        self._noted = float("-inf")
        """When the ends of the source were noted."""
        self._groupless: Mapping[str, str] = {}
        """Groups whose offsets the source does not tell, and why."""
        self._copies: dict[Place, _Copy] = {}
        self._feed: Feed | None = None
        self._source: Origin | None = None
        self._tasks = Tasks()
        self._shares: frozenset[int] = frozenset()
        self._changed, self._search, self._regroup, self._promote = (asyncio.Event() for _ in range(4))
        self._asking = 0
        self._error = ""
        self._failed = 0
        self.health = Health()

    def __repr__(self) -> str:
        return f"<LinkRunner of {self.name!r}, {len(self._copies)} partitions, shares {sorted(self._shares)}>"

    @property
    def name(self) -> str:
        return self.link.name

    @property
    def outdated(self) -> bool:
        """Whether the link was changed since this runner began.

        It then begins and stops nothing, because it would judge new states of topics by old options and at an old
        source. Another runner takes its place.
        """
        link = self._cluster.state.links.links.get(self.name)
        return link is None or link.version != self.link.version

    @property
    def groups_copied(self) -> int:
        """Offsets of groups that this process has copied."""
        return self._groups.copied

    @property
    def failed(self) -> int:
        """Requests to the source that failed as a whole."""
        return self._failed + (self._feed.failed if self._feed is not None else 0)

    @property
    def throttled_s(self) -> float:
        """How long quotas of the source have held up requests."""
        return self._source.throttled_s if self._source is not None else 0.0

    def copiers(self) -> list[Copier]:
        """The partitions that are copied here."""
        return [copy.copier for copy in self._copies.values()]

    def assign(self, shares: frozenset[int]) -> None:
        """Copy these shares from now on."""
        if shares != self._shares:
            if LEADING in shares - self._shares:
                self._search.set()
                self._regroup.set()
            self._shares = shares
        self._changed.set()
        self._promote.set()

    async def run(self) -> None:
        """Copy until this is cancelled."""
        source = self._source = await self._connected()
        feed = Feed(source, self, self.breaker, self._tools.ahead, self._settings, self._clock, self._chance)
        loops = [self._reconciling(feed), feed.run(), self._searching(source), self._grouping(source)]
        loops.append(self._promoting())
        self._feed = feed
        try:
            await asyncio.gather(*[self._tasks.spawn(loop, f"link-{self.name}") for loop in loops])
        finally:
            await self._tasks.close()
            self._copies = {}
            await source.close()

    async def _connected(self) -> Origin:
        """The source, as soon as the link refers only to files and variables that the operator has listed."""
        while True:
            try:
                return self._connect(self.link)
            except NotAllowed as error:
                log.error("a link stops", extra={"link": self.name, "reason": str(error)})
                self._note("source", Status.UNHEALTHY, str(error), self._clock.wall_ms())
                for linked in self._cluster.state.links.of(self.name):
                    if linked.copied:
                        await self._retried(partial(self._topics.stop, linked, str(error)))
            await asyncio.sleep(self._settings.retry_longest_ms / 1000)

    # --- what is copied --------------------------------------------------------------------------------

    async def _reconciling(self, feed: Feed) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._reconcile(feed)

    async def _reconcile(self, feed: Feed) -> None:
        """Start and stop copies, so that they are those of the topics and shares of now."""
        wanted = self._wanted()
        for place, copy in list(self._copies.items()):
            if wanted.get(place) != (copy.topic, copy.stream, copy.generation) or copy.task.done():
                await self._end(feed, place, copy)
        for place, (topic, stream, generation) in wanted.items():
            if place not in self._copies:
                self._begin(feed, place, topic, stream, generation)
        if not self._copies and LEADING not in self._shares:
            self.breaker.rest()
            feed.rest()
        self._judge()

    def _wanted(self) -> dict[Place, tuple[uuid.UUID, int, int]]:
        """By place: the topic, its stream here, and the generation."""
        found: dict[Place, tuple[uuid.UUID, int, int]] = {}
        if self.link.spec.paused or self.outdated:
            return found
        state = self._cluster.state
        for linked in state.links.of(self.name):
            topic = state.topics.get(linked.topic)
            if not linked.copied or topic is None or topic.deleting:
                continue
            streams = self._tools.domains[Domain(topic.domain)].state.streams
            for partition, name in enumerate(topic.streams[: topic.ready]):
                stream = streams.get(StreamId(name))
                if share_of(topic.id.bytes, partition, SHARES) not in self._shares or stream is None:
                    continue
                if stream.mirror.on and stream.mirror.generation == linked.generation:
                    found[linked.source, partition] = (topic.id, name, linked.generation)
        return found

    def _begin(self, feed: Feed, place: Place, topic_id: uuid.UUID, stream: int, generation: int) -> None:
        topic = self._cluster.state.topics[topic_id]
        config = TopicConfig.of(topic.configs, self._cluster.state.resources.common)
        replica = self._tools.domains[Domain(topic.domain)]
        writer = self._tools.writers.of(topic.domain, config.profile or self._tools.settings.default_profile)
        appender = Appender(replica, writer, StreamId(stream), generation, self._tools.tails)
        source_id = self._cluster.state.links.topics[topic_id].source_id
        copier = Copier(
            place[0],
            source_id if source_id.int else None,
            place[1],
            appender,
            self._settings,
            self._clock,
            self._chance,
            self._tools.ahead,
        )
        task = self._tasks.spawn(self._copy(copier, generation), f"copy-{place[0]}-{place[1]}")
        task.add_done_callback(lambda _: self._changed.set())
        self._copies[place] = _Copy(stream, generation, topic_id, copier, task)
        feed.join(copier)

    async def _end(self, feed: Feed, place: Place, copy: _Copy) -> None:
        del self._copies[place]
        feed.leave(copy.copier)
        copy.task.cancel()
        await asyncio.wait([copy.task])

    async def _copy(self, copier: Copier, generation: int) -> None:
        try:
            await copier.run()
        except MirrorOver as over:
            log.info("a copy ends", extra={"topic": copier.topic, "partition": copier.partition, "reason": str(over)})
        except (SourceStops, BadInput) as error:
            await self._stop(copier, generation, error)
        except HeadwaterError as error:  # nobody foresaw it: the copy begins again, but not at once
            copier.fail(error)
            log.exception("a copy failed", extra={"topic": copier.topic, "partition": copier.partition})
            await asyncio.sleep(self._settings.retry_longest_ms / 1000)

    # --- what a feed tells -----------------------------------------------------------------------------

    def ended(self, copier: Copier, error: SourceStops) -> None:
        """See `Owner`."""
        copier.stopped = error
        copy = self._copies.get(copier.place)
        if copy is not None and copy.copier is copier:
            self._tasks.spawn(self._stop(copier, copy.generation, error), "link-stop")

    async def _stop(self, copier: Copier, generation: int, error: HeadwaterError) -> None:
        """Note in the ledger that a topic is stopped, however long that takes: no other process would do it.

        What was found under a generation says nothing about the next one: an operator may have resumed the topic.
        """
        while (linked := self._linked(copier.topic, generation)) is not None and not self.outdated:
            if await self._retried(partial(self._topics.stop, linked, f"partition {copier.partition}: {error}")):
                break
        self._changed.set()

    def _linked(self, source: str, generation: int) -> LinkedTopic | None:
        of = self._cluster.state.links.of(self.name)
        return next((one for one in of if one.source == source and one.copied and one.generation == generation), None)

    # --- topics and groups -----------------------------------------------------------------------------

    async def _searching(self, source: Origin) -> None:
        """Look for topics again and again, if this process leads the link."""
        while True:
            await self._next(self._search, self._settings.metadata_ms / 1000)
            if LEADING in self._shares and not self.link.spec.paused:
                names = self._topics.names()
                found = await self._asked(partial(source.discover, names))
                if self.outdated:
                    continue
                await self._retried(partial(self._topics.follow, found))
                for name in self._topics.doubted:
                    source.doubt(name)
                self._changed.set()

    async def _grouping(self, source: Origin) -> None:
        """Copy offsets of groups again and again, if this process leads the link."""
        while True:
            await self._next(self._regroup, self._settings.groups_ms / 1000)
            topics, promoting = self._grouped(), self._promotions.of(LinkPhase.PROMOTING)
            if LEADING not in self._shares or not topics:
                continue
            done = await self._retried(partial(self._promotions.settle_ends, promoting))
            if self.link.spec.groups:
                done = await self._copy_groups(source, topics) and done
            if done:
                await self._retried(partial(self._promotions.complete, promoting))

    async def _copy_groups(self, source: Origin, topics: Mapping[str, LinkedTopic]) -> bool:
        """Copy the offsets of all groups that the source tells; returns whether the ledger has them."""
        found = await self._asked(partial(source.group_offsets, sorted(topics)))
        done = True
        for group, offsets in found.offsets.items():
            done = await self._retried(partial(self._groups.copy, topics, group, offsets)) and done
        for group, why in sorted(found.refused.items())[:TELL]:
            log.warning("offsets of a group are not told", extra={"link": self.name, "group": group, "reason": why})
        self._groupless = found.refused
        return done

    async def _promoting(self) -> None:
        """Note how far the source is, and take topics through the steps of their promotion."""
        while True:
            await self._promote.wait()
            self._promote.clear()
            now = self._clock.monotonic()
            due = now - self._noted >= self._settings.report_ms / 1000
            self._noted = now if due else self._noted
            copied = [Copied(copy.topic, copy.generation, copy.copier) for copy in self._copies.values()]
            await self._retried(partial(self._promotions.note, copied, due=due))
            if LEADING in self._shares:
                await self._retried(self._promotions.advance)
                if self._promotions.of(LinkPhase.PROMOTING):
                    self._regroup.set()

    def _grouped(self) -> dict[str, LinkedTopic]:
        """Topics whose groups are copied: those that are copied or are being promoted."""
        of = self._cluster.state.links.of(self.name)
        return {one.source: one for one in of if one.copied or one.phase is LinkPhase.PROMOTING}

    # --- asking and waiting ----------------------------------------------------------------------------

    async def _next(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, or for some time."""
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            event.clear()

    async def _asked(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """The answer of the source to a question that is asked until there is one, under the breaker."""
        retrying = Retrying(self._settings, self._chance)
        while True:
            now = self._clock.monotonic()
            if not self.breaker.allows(now):
                await asyncio.sleep(max(0.05, min(0.5, self.breaker.wait(now))))
                continue
            try:
                answer = await ask()
            except asyncio.CancelledError:
                self.breaker.gave_up()
                raise
            except HeadwaterError as error:
                self.breaker.failed(self._clock.monotonic())
                self._failed += 1
                self._asking, self._error = self._asking + 1, str(error)
                log.warning("a source does not answer", extra={"link": self.name, "reason": str(error)})
                self._judge()
                await asyncio.sleep(retrying.pause())
            else:
                self.breaker.worked()
                self._asking, self._error = 0, ""
                return answer

    async def _retried(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something in the ledger here; returns whether it is done. What is refused is in the log."""
        retrying = Retrying(self._settings, self._chance)
        while True:
            try:
                await work()
            except HeadwaterError as error:
                log.warning("a change of a link waits", extra={"link": self.name, "reason": str(error)})
                if retrying.exhausted:
                    return False
                await asyncio.sleep(retrying.pause())
            else:
                return True

    # --- health ----------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Note how well the source, the partitions and the topics of the link do."""
        now_ms = self._clock.wall_ms()
        failing, why = self._asking, self._error
        if self._feed is not None:
            failing, why = failing + self._feed.failures, self._feed.error or why
        self._note("source", source_status(self.breaker.state, failing), why, now_ms)
        found = []
        for copier in self.copiers():
            late_ms = max(copier.lag_ms(now_ms), copier.held_ms())
            status = partition_status(
                copier.failures, late_ms, stopped=copier.stopped is not None, settings=self._settings
            )
            if status is not Status.HEALTHY:
                found.append((status, f"{copier.topic}-{copier.partition}: {copier.why()}"))
        self._note("partitions", worst(status for status, _ in found), _told([why for _, why in found]), now_ms)
        stopped = [one for one in self._cluster.state.links.of(self.name) if one.phase is LinkPhase.STOPPED]
        reasons = [f"{one.source}: {one.reason}" for one in stopped]
        reasons += [f"{name}: {why}" for name, why in sorted(self._topics.refused.items())]
        self._note("topics", Status.UNHEALTHY if reasons else Status.HEALTHY, _told(reasons), now_ms)
        reasons = [f"{name}: {why}" for name, why in sorted(self._topics.unlike.items())]
        self._note("configs", Status.DEGRADED if reasons else Status.HEALTHY, _told(reasons), now_ms)
        reasons = [f"{name}: {why}" for name, why in sorted(self._groupless.items())]
        self._note("groups", Status.DEGRADED if reasons else Status.HEALTHY, _told(reasons), now_ms)

    def _note(self, part: str, status: Status, reason: str, now_ms: int) -> None:
        if self.health.note(f"{self.name}/{part}", status, reason, now_ms):
            log.log(
                logging.INFO if status is Status.HEALTHY else logging.WARNING,
                "the health of a link changed",
                extra={"link": self.name, "part": part, "status": str(status), "reason": reason},
            )


def _told(reasons: Sequence[str]) -> str:
    """Some of the reasons, and how many more there are."""
    more = f", and {len(reasons) - TELL} more" if len(reasons) > TELL else ""
    return "; ".join(reasons[:TELL]) + more
