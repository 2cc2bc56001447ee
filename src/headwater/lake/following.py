"""Keeps the followers of a domain's tables up to date: each on its own, each exactly once.

A catalog that is down falls behind and catches up; nobody else notices. What a follower has committed is read from its
own table; the ledger keeps a copy, so that files which nobody shows any more can go.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.clock import Chance, Clock
from headwater.config import Lake
from headwater.errors import HeadwaterError, NotReady, Retriable
from headwater.lake.tables.follower import HOUR_MS, Batch, Expiry, ForeignCommit, Standing, TableFollower, ref_of
from headwater.metadata.cluster import ClusterState
from headwater.metadata.commands import Command, Expired, Follow, Pin, Unfollow
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done
from headwater.metadata.streams import StreamsState
from headwater.metadata.tables import Follower, JournalEntry, TopicTable
from headwater.metadata.topic_configs import TopicConfig
from headwater.types import Domain

log = logging.getLogger("headwater.followers")
TABLES_AT_ONCE = 8
MAX_ENTRIES_PER_COMMIT = 200
RETRY_SECONDS = 1.0
RETRY_LIMIT_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 60.0
"""How often a follower that a foreign commit holds up looks whether somebody has put things right."""

Lease = Callable[[Replica[StreamsState]], Awaitable[int | None]]
_Work = Callable[[Replica[StreamsState], int, TableFollower, TopicTable], Awaitable[None]]
_Wanted = Callable[[TableFollower, TopicTable], bool]
_NOTHING = Follower(0, 0, "")


@dataclass(slots=True)
class Trouble:
    """Why a follower does not follow a table."""

    reason: str
    foreign: bool
    pause: float
    until: float


class Following:
    """All followers of all tables of a process's domains."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        followers: Sequence[TableFollower],
        lease: Lease,
        settings: Lake,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._cluster = cluster
        self._domains = domains
        self._followers = followers
        self._lease = lease
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._tasks: list[asyncio.Task[None]] = []
        self._expired: dict[tuple[str, uuid.UUID], float] = {}
        self._trouble: dict[tuple[str, uuid.UUID], Trouble] = {}
        self.commits: dict[str, int] = {follower.name: 0 for follower in followers}

    def __repr__(self) -> str:
        return f"<Following {', '.join(f.name for f in self._followers)}>"

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(follower), name=f"follow-{follower.name}") for follower in self._followers
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for follower in self._followers:
            await follower.close()

    @property
    def alerts(self) -> dict[tuple[str, uuid.UUID], Trouble]:
        """What does not follow at present, by follower and topic."""
        return self._trouble

    async def _run(self, follower: TableFollower) -> None:
        while True:
            await self.round(follower)
            await asyncio.sleep(self._settings.interval_ms / 1000 * (0.5 + self._chance.fraction()))

    async def round(self, follower: TableFollower) -> None:
        """Bring one follower up to date with every table, as far as possible."""
        slots = asyncio.Semaphore(TABLES_AT_ONCE)
        for replica in self._domains.values():
            try:
                lease = await self._lease(replica)
            except Retriable:
                continue
            if lease is None:
                continue
            await self._let_strangers_go(replica, lease)
            steps: list[tuple[_Work, _Wanted]] = [
                (self._follow, self._is_behind),
                (self._expire, self._is_stale),
                (self._drop, self._is_dropped),
            ]
            for work, wanted in steps:
                tables = [t for t in replica.state.tables.values() if self._may(follower, t) and wanted(follower, t)]
                await asyncio.gather(*(self._attempt(slots, work, replica, lease, follower, t) for t in tables))

    async def _let_strangers_go(self, replica: Replica[StreamsState], lease: int) -> None:
        """A catalog that the settings no longer name must not hold back files for ever."""
        known = {follower.name for follower in self._followers}
        for table in list(replica.state.tables.values()):
            for name in [name for name in table.followers if name not in known]:
                log.info("a catalog is no longer followed", extra={"follower": name, "table": table.root})
                await replica.submit([Unfollow(lease, table.topic, name)])

    def _may(self, follower: TableFollower, table: TopicTable) -> bool:
        trouble = self._trouble.get((follower.name, table.topic))
        return trouble is None or trouble.until <= self._clock.monotonic()

    def _is_shown(self, table: TopicTable) -> bool:
        topic = self._cluster.state.topics.get(table.topic)
        shown = topic is not None and not topic.deleting and TopicConfig.of(topic.configs).table
        return shown and not table.dropped

    def _is_behind(self, follower: TableFollower, table: TopicTable) -> bool:
        behind = table.followers.get(follower.name, _NOTHING).cursor < table.last_sequence
        return behind and self._is_shown(table)

    def _is_dropped(self, follower: TableFollower, table: TopicTable) -> bool:
        return table.dropped and follower.name in table.followers

    def _is_stale(self, follower: TableFollower, table: TopicTable) -> bool:
        """Whether it is time to look for versions past their retention, or somebody asked for it."""
        if table.expiry is not None and follower.name in table.expiry.waiting:
            return not table.dropped
        if follower.name not in table.followers or not self._is_shown(table):
            return False
        due = self._expired.setdefault((follower.name, table.topic), self._clock.monotonic())
        return self._clock.monotonic() - due >= self._settings.expire_interval_ms / 1000

    async def _attempt(
        self,
        slots: asyncio.Semaphore,
        work: _Work,
        replica: Replica[StreamsState],
        lease: int,
        follower: TableFollower,
        table: TopicTable,
    ) -> None:
        key = (follower.name, table.topic)
        facts = {"follower": follower.name, "table": table.root}
        async with slots:
            try:
                await work(replica, lease, follower, table)
                if self._trouble.pop(key, None) is not None:
                    log.info("a follower goes on", extra=facts)
            except ForeignCommit as error:
                self._hold(key, str(error), foreign=True)
                log.error("a follower is held up by a foreign commit", extra={**facts, "reason": str(error)})
            except HeadwaterError as error:
                self._hold(key, str(error), foreign=False)
                log.warning("a follower falls behind", extra={**facts, "reason": str(error)})

    def _hold(self, key: tuple[str, uuid.UUID], reason: str, *, foreign: bool) -> None:
        before = self._trouble.get(key)
        pause = (
            LOOK_AGAIN_SECONDS if foreign else min(2 * before.pause if before else RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        )
        until = self._clock.monotonic() + pause * (0.5 + self._chance.fraction())
        self._trouble[key] = Trouble(reason, foreign, pause, until)

    async def _follow(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Commit batches until the follower has the whole journal."""
        ref, known = ref_of(table), table.followers.get(follower.name, _NOTHING)
        standing = await follower.standing(ref, known.location)
        if standing.cursor < known.cursor:  # somebody took the table back, or away: it is written anew
            await self._unfollow(replica, lease, follower, table)
            known = _NOTHING
        while standing.cursor < table.last_sequence and not table.dropped:
            standing = await follower.commit(ref, known.location, self._batch(table, standing.cursor))
            known = await self._enter(replica, lease, follower, table, known, standing)
            self.commits[follower.name] += 1
        if standing.cursor > known.cursor:  # it was further than the ledger knew
            await self._enter(replica, lease, follower, table, known, standing)

    async def _expire(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Drop versions past their retention, so that the files they show can go."""
        known = table.followers.get(follower.name, _NOTHING)
        asked = table.expiry if table.expiry is not None and follower.name in table.expiry.waiting else None
        now = max(replica.state.clock_ms, self._clock.wall_ms())
        expiry = Expiry(now, asked.keep, asked.before_ms) if asked is not None else Expiry(now)
        standing = await follower.expire(ref_of(table), known.location, expiry)
        self._expired[(follower.name, table.topic)] = self._clock.monotonic()
        if standing != _standing(known):
            known = await self._enter(replica, lease, follower, table, known, standing)
            if asked is not None:  # what only the dropped versions needed can go from here on
                await follower.expire(ref_of(table), known.location, expiry)
        if asked is not None:
            await replica.submit([Expired(lease, table.topic, follower.name, asked.number)])

    async def _drop(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """The topic is deleted: its table goes from the catalog, then its files may go."""
        await follower.drop(ref_of(table), table.followers[follower.name].location)
        await self._unfollow(replica, lease, follower, table)

    async def _unfollow(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        [result] = await replica.submit([Unfollow(lease, table.topic, follower.name)])
        if not isinstance(result, Done):
            raise NotReady(f"{follower.name} of {table.root}: {result}")

    @staticmethod
    def _batch(table: TopicTable, after: int) -> Batch:
        entries = table.entries_after(after)
        if entries is None:
            upto, entries = table.last_sequence, []
        else:
            # Merges come as versions of their own: readers of changes skip them, and must not skip rows with them. So
            # do removals; and what an hour ended with is a version, whenever it is committed.
            kind = _kind(entries[0])
            alike = itertools.takewhile(lambda entry: _kind(entry) == kind, entries)
            entries = list(itertools.islice(alike, MAX_ENTRIES_PER_COMMIT))
            upto = entries[-1].sequence
        named = {number for entry in entries for number in (*entry.added, *entry.removed)}
        if any(number not in table.files for number in named):
            upto, entries = table.last_sequence, []  # files of the past are gone: only the present can be shown
        files = {number: table.files[number] for number in named if number in table.files}
        live = [f for f in table.files.values() if f.added <= upto and (not f.removed or f.removed > upto)]
        ms = table.journal[-1].ms if table.journal else 0
        return Batch(after, upto, entries, files, live, entries[-1].ms if entries else ms)

    async def _enter(
        self,
        replica: Replica[StreamsState],
        lease: int,
        follower: TableFollower,
        table: TopicTable,
        known: Follower,
        standing: Standing,
    ) -> Follower:
        """Tell the ledger. For a format whose pointer lies there, this is the commit."""
        cursor, oldest, location = standing.cursor, standing.oldest, standing.location
        commands: list[Command] = [Follow(lease, table.topic, follower.name, known.location, location, cursor, oldest)]
        if (standing.recent, standing.pinned) != (known.recent, known.pinned):
            commands.append(Pin(lease, table.topic, follower.name, location, cursor, standing.recent, standing.pinned))
        for result in await replica.submit(commands):
            if not isinstance(result, Done):
                raise NotReady(f"{follower.name} of {table.root}: {result}")
        return Follower(cursor, oldest, location, standing.recent, standing.pinned)


def _kind(entry: JournalEntry) -> tuple[str, int]:
    return entry.operation, entry.ms // HOUR_MS


def _standing(known: Follower) -> Standing:
    return Standing(known.cursor, known.oldest, known.location, known.recent, known.pinned)
