"""Brings the followers of a domain's tables up to date. Followers do not depend on each other.

The follower of a catalog that is down falls behind and catches up later; the others continue. A follower's progress is
read from its own table, so it commits each entry of the journal once. The ledger has a copy of the progress, so that
files which no follower needs can be deleted.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from headwater.background import Duty, OnDeath, Supervised
from headwater.clock import earliest_ms
from headwater.configs.topics import BACKFILL_CHANGE, KEY_INDEX, TABLE_ENABLE, value_of
from headwater.errors import ForeignCommit, HeadwaterError, NotReady, Retriable
from headwater.lake.tables import make_followers
from headwater.lake.tables.follower import HOUR_MS, Batch, Expiry, Standing, TableFollower, ref_of
from headwater.lake.tables.keys.table import NAME as KEYS
from headwater.objects import ObjectStore
from headwater.replica.domains import Domains
from headwater.replica.replica import Replica
from headwater.settings.objects import StoreOptions
from headwater.settings.settings import Lake
from headwater.state.commands.tables import Expired, Follow, Pin, Unfollow
from headwater.state.records import Command
from headwater.state.results import Done
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import NO_COLUMNS, TypedTable
from headwater.state.streams.tables import Follower, JournalEntry, TopicTable

log = logging.getLogger("headwater.followers")
TABLES_AT_ONCE = 8
MAX_ENTRIES_PER_COMMIT = 200
RETRY_SECONDS = 1.0
RETRY_LIMIT_SECONDS = 60.0
"""The longest pause before a follower that failed tries again. Pauses double up to this."""

Lease = Callable[[Replica[StreamsState]], Awaitable[int | None]]
_Work = Callable[[Replica[StreamsState], int, TableFollower, TopicTable], Awaitable[None]]
_Wanted = Callable[[TableFollower, TopicTable], bool]
_NOTHING = Follower(0, 0, "", 0, ())
FOLLOWER = Duty("table-follower", OnDeath.RESTART, "brings one catalog up to date with all tables")


@dataclass(slots=True)
class Trouble:
    """Why a follower cannot follow a table at present."""

    reason: str
    foreign: bool
    pause: float
    until: float


class Following:
    """All followers of all tables of a process's domains."""

    def __init__(
        self,
        domains: Domains,
        followers: Sequence[TableFollower],
        lease: Lease,
        settings: Lake,
    ) -> None:
        self._cluster = domains.cluster
        self._domains = domains
        self._followers = followers
        self._lease = lease
        self._settings = settings
        self._clock = domains.clock
        self._chance = domains.chance
        self._duties: list[Supervised] = []
        self._expired: dict[tuple[str, uuid.UUID], float] = {}
        self._announced: dict[tuple[str, uuid.UUID], tuple[str, float]] = {}
        """What engines that read by path were shown last, and when."""
        self._trouble: dict[tuple[str, uuid.UUID], Trouble] = {}
        self.commits: dict[str, int] = {follower.name: 0 for follower in followers}

    def __repr__(self) -> str:
        return f"<Following {', '.join(f.name for f in self._followers)}>"

    def start(self) -> None:
        self._duties = [
            self._domains.background.run(FOLLOWER, functools.partial(self._run, follower), follower.name)
            for follower in self._followers
        ]

    async def close(self) -> None:
        for duty in self._duties:
            await duty.stop()
        for follower in self._followers:
            await follower.close()

    @property
    def alerts(self) -> dict[tuple[str, uuid.UUID], Trouble]:
        """Followers that cannot follow a table at present, by follower and topic."""
        return self._trouble

    async def _run(self, follower: TableFollower) -> None:
        while True:
            await self.round(follower)
            await asyncio.sleep(self._settings.interval_ms / 1000 * (0.5 + self._chance.fraction()))

    async def round(self, follower: TableFollower) -> None:
        """Bring one follower up to date with every table. Tables that fail are tried again later."""
        for replica in self._domains.values():
            try:
                await self._bring_up(follower, replica)
            except Retriable as error:
                facts = {"follower": follower.name, "domain": replica.domain, "reason": str(error)}
                log.info("following postponed", extra=facts)

    async def _bring_up(self, follower: TableFollower, replica: Replica[StreamsState]) -> None:
        lease = await self._lease(replica)
        if lease is None:
            return
        await self._let_strangers_go(replica, lease)
        slots = asyncio.Semaphore(TABLES_AT_ONCE)
        steps: list[tuple[_Work, _Wanted]] = [
            (self._follow, self._is_behind),
            (self._expire, self._is_stale),
            (self._announce, self._is_unannounced),
            (self._drop, self._is_dropped),
        ]
        for work, wanted in steps:
            tables = [t for t in replica.state.tables.values() if self._may(follower, t) and wanted(follower, t)]
            await asyncio.gather(*(self._attempt(slots, work, replica, lease, follower, t) for t in tables))

    async def _let_strangers_go(self, replica: Replica[StreamsState], lease: int) -> None:
        """Remove followers that the settings no longer name, so that files are not kept for them."""
        known = {follower.name for follower in self._followers}
        for table in list(replica.state.tables.values()):
            for name in [name for name in table.followers if name not in known]:
                log.info("a catalog is no longer followed", extra={"follower": name, "table": table.root})
                await replica.submit([Unfollow(lease, table.topic, name)])

    def _may(self, follower: TableFollower, table: TopicTable) -> bool:
        trouble = self._trouble.get((follower.name, table.topic))
        return trouble is None or trouble.until <= self._clock.monotonic()

    def _is_shown(self, follower: TableFollower, table: TopicTable) -> bool:
        topic = self._cluster.state.topics.get(table.topic)
        if topic is None or topic.deleting or table.dropped:
            return False
        name = KEY_INDEX if follower.name == KEYS else TABLE_ENABLE
        return value_of(name, topic.configs, self._cluster.state.resources.common) == "true"

    def _is_behind(self, follower: TableFollower, table: TopicTable) -> bool:
        behind = table.followers.get(follower.name, _NOTHING).cursor < table.last_sequence
        return behind and self._is_shown(follower, table)

    def _is_dropped(self, follower: TableFollower, table: TopicTable) -> bool:
        """Whether the topic is deleted, or wants no index of keys any more."""
        if follower.name not in table.followers:
            return False
        return table.dropped or (follower.name == KEYS and not self._is_shown(follower, table))

    def _is_stale(self, follower: TableFollower, table: TopicTable) -> bool:
        """Whether expired versions should be removed now: the interval has passed, or a command asked for it."""
        if table.expiry is not None and follower.name in table.expiry.waiting:
            return not table.dropped
        if follower.name not in table.followers or not self._is_shown(follower, table):
            return False
        due = self._expired.setdefault((follower.name, table.topic), self._clock.monotonic())
        return self._clock.monotonic() - due >= self._settings.expire_interval_ms / 1000

    def _is_unannounced(self, follower: TableFollower, table: TopicTable) -> bool:
        """Whether readers by path should be shown a version: it is new, or the interval has passed."""
        known = table.followers.get(follower.name, _NOTHING)
        if not known.location or not self._is_shown(follower, table):
            return False
        location, then = self._announced.get((follower.name, table.topic), ("", 0.0))
        return location != known.location or self._clock.monotonic() - then >= self._settings.expire_interval_ms / 1000

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
                    log.info("a follower continues", extra=facts)
            except ForeignCommit as error:
                self._hold(key, str(error), foreign=True)
                log.error("a follower is held up by a foreign commit", extra={**facts, "reason": str(error)})
            except HeadwaterError as error:
                self._hold(key, str(error), foreign=False)
                log.warning("a follower falls behind", extra={**facts, "reason": str(error)})

    def _hold(self, key: tuple[str, uuid.UUID], reason: str, *, foreign: bool) -> None:
        before = self._trouble.get(key)
        again = min(2 * before.pause if before else RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        pause = self._settings.foreign_retry_ms / 1000 if foreign else again
        until = self._clock.monotonic() + pause * (0.5 + self._chance.fraction())
        self._trouble[key] = Trouble(reason, foreign, pause, until)

    async def _follow(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Commit batches until the follower has the whole journal."""
        ref, known = ref_of(table), table.followers.get(follower.name, _NOTHING)
        standing = await follower.standing(ref, known.location)
        if standing.cursor < known.cursor:  # the table was rolled back or dropped: write it anew
            await self._unfollow(replica, lease, follower, table)
            known = _NOTHING
        while standing.cursor < table.last_sequence and not table.dropped:
            typed = replica.state.typed.get(table.topic)
            now = replica.state.clocks.retention_now_ms(earliest_ms(self._clock))
            batch = batch_of(table, standing.cursor, typed, now_ms=now, changes=self._rewrites_change(table))
            standing = await follower.commit(ref, known.location, batch)
            known = await self._enter(replica, lease, follower, table, known, standing)
            self.commits[follower.name] += 1
        if standing.cursor > known.cursor:  # the table was ahead of the ledger's copy
            await self._enter(replica, lease, follower, table, known, standing)

    def _rewrites_change(self, table: TopicTable) -> bool:
        """Whether readers of changes get rows that are decoded again, by the topic's config."""
        topic = self._cluster.state.topics.get(table.topic)
        configs = topic.configs if topic is not None else {}
        return value_of(BACKFILL_CHANGE, configs, self._cluster.state.resources.common) == "true"

    async def _expire(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Drop versions past their retention, so that files which only they show can be deleted."""
        known = table.followers.get(follower.name, _NOTHING)
        asked = table.expiry if table.expiry is not None and follower.name in table.expiry.waiting else None
        now = replica.state.clocks.retention_now_ms(earliest_ms(self._clock))
        expiry = Expiry(now, asked.keep, asked.before_ms) if asked is not None else Expiry(now)
        standing = await follower.expire(ref_of(table), known.location, expiry)
        self._expired[(follower.name, table.topic)] = self._clock.monotonic()
        if standing != _standing(known):
            known = await self._enter(replica, lease, follower, table, known, standing)
            if asked is not None:  # now the metadata of the dropped versions can be deleted, too
                await follower.expire(ref_of(table), known.location, expiry)
        if asked is not None:
            await replica.submit([Expired(lease, table.topic, follower.name, asked.number)])

    async def _announce(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Show the newest version to engines that read by path. It is committed already."""
        location = table.followers[follower.name].location
        await follower.announce(ref_of(table), location)
        self._announced[(follower.name, table.topic)] = (location, self._clock.monotonic())

    async def _drop(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        """Drop the table of a deleted topic from the catalog. Its files can be deleted afterwards."""
        await follower.drop(ref_of(table), table.followers[follower.name].location)
        self._announced.pop((follower.name, table.topic), None)
        await self._unfollow(replica, lease, follower, table)

    async def _unfollow(
        self, replica: Replica[StreamsState], lease: int, follower: TableFollower, table: TopicTable
    ) -> None:
        [result] = await replica.submit([Unfollow(lease, table.topic, follower.name)])
        if not isinstance(result, Done):
            raise NotReady(f"{follower.name} of {table.root}: {result}")

    async def _enter(
        self,
        replica: Replica[StreamsState],
        lease: int,
        follower: TableFollower,
        table: TopicTable,
        known: Follower,
        standing: Standing,
    ) -> Follower:
        """Commit the follower's progress to the ledger. If the format's pointer is there, this commits the table."""
        cursor, oldest, location = standing.cursor, standing.oldest, standing.location
        commands: list[Command] = [Follow(lease, table.topic, follower.name, known.location, location, cursor, oldest)]
        if (standing.recent, standing.pinned) != (known.recent, known.pinned):
            commands.append(Pin(lease, table.topic, follower.name, location, cursor, standing.recent, standing.pinned))
        for result in await replica.submit(commands):
            if not isinstance(result, Done):
                raise NotReady(f"{follower.name} of {table.root}: {result}")
        return Follower(cursor, oldest, location, standing.recent, standing.pinned)


def batch_of(
    table: TopicTable, after: int, typed: TypedTable | None = None, *, now_ms: int = 0, changes: bool = True
) -> Batch:
    """What a follower that has committed the journal up to a sequence commits next."""
    columns, typings = (typed.columns, typed.files) if typed is not None else (NO_COLUMNS, {})
    entries = table.entries_after(after)
    if entries is None:
        upto, entries = table.last_sequence, []
    else:
        # A version has entries of one kind only. Readers of changes skip versions of merges and of removals, and
        # must not skip new rows with them. A version ends with its hour, so that the last version of an hour exists
        # whenever the entries are committed.
        kind = _kind(entries[0])
        alike = itertools.takewhile(lambda entry: _kind(entry) == kind, entries)
        entries = list(itertools.islice(alike, MAX_ENTRIES_PER_COMMIT))
        upto = entries[-1].sequence
    named = {number for entry in entries for number in (*entry.added, *entry.removed)}
    if any(number not in table.files for number in named):
        upto, entries = table.last_sequence, []  # some files are deleted: only the present can be shown
    files = {number: table.files[number] for number in named if number in table.files}
    live = [f for f in table.files.values() if f.added <= upto and (not f.removed or f.removed > upto)]
    ms = table.journal[-1].ms if table.journal else 0
    new = files if entries else [file.number for file in live]
    bounds = {number: typings[number].bounds for number in new if number in typings and typings[number].bounds}
    return Batch(after, upto, entries, files, live, entries[-1].ms if entries else ms, now_ms, columns, changes, bounds)


def _kind(entry: JournalEntry) -> tuple[str, int]:
    return entry.operation, entry.ms // HOUR_MS


def _standing(known: Follower) -> Standing:
    return Standing(known.cursor, known.oldest, known.location, known.recent, known.pinned)


async def held_followers(
    store: ObjectStore, lake: Lake, options: StoreOptions, table: TopicTable, names: Iterable[str]
) -> dict[str, HeadwaterError]:
    """Ask these followers for their progress in their own tables, and return the errors of those that cannot follow."""
    wanted = set(names)
    catalogs = {name: properties for name, properties in lake.catalogs.items() if name in wanted}
    chosen = msgspec.structs.replace(
        lake, followers=tuple(name for name in lake.followers if name in wanted), catalogs=catalogs
    )
    found: dict[str, HeadwaterError] = {}
    for follower in make_followers(store, chosen, options=options):
        try:
            await follower.standing(ref_of(table), table.followers.get(follower.name, _NOTHING).location)
        except HeadwaterError as error:
            found[follower.name] = error
        finally:
            await follower.close()
    return found
