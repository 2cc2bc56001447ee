"""Rounds of a backup: copy the ledger, then bring the objects that it names.

The ledger is copied first, in one read transaction. So the copy has every record that was acknowledged before. An
object that it names may be deleted before it is brought, because the cluster no longer needs it. Then a newer copy of
the ledger does not name it, and another round follows, which brings only what is new. From the second round on the
backup holds what the cluster has, as queries do, so that a slow backup of a busy cluster ends. An object that the newer
ledger still names is lost in the cluster itself. The backup goes on without it, and says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from headwater.app.backup import naming
from headwater.app.backup.placing import OBJECTS
from headwater.app.backup.target import Source, Target
from headwater.app.backup.transfer import Transfer
from headwater.background import each
from headwater.clock import Clock
from headwater.errors import Damaged, ObjectMissing, StoreUnavailable
from headwater.lake.tables.delta.excerpt import excerpt
from headwater.lake.tables.follower import ref_of
from headwater.lake.tables.iceberg.objects import as_written
from headwater.lake.tables.iceberg.relocation import Relocation
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.ledger.sqlite.snapshot import copy_ledger
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import load_state, replay
from headwater.replica.domains import new_state
from headwater.state.cluster.state import ClusterState
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import TopicTable
from headwater.threads import Threads
from headwater.types import DOMAINS

ROUNDS = 20
LOOKS = 3
"""How often a ledger is copied whose checkpoints are deleted before they are read."""
THREADS = 4
ICEBERG, DELTA = "iceberg", "delta"

_T = TypeVar("_T")
Keep: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""As long as the context is open, the cluster deletes nothing that it has."""


@dataclass(slots=True)
class Progress:
    """How far a backup is."""

    round: int = 0
    objects: int = 0
    all_objects: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"round {self.round}: {self.objects} of {self.all_objects} objects, {self.bytes / 1e9:.2f} GB"


@dataclass(slots=True)
class Round:
    """A copy of the ledger, and what it names."""

    taken_ms: int
    cluster: str = ""
    streams: list[StreamsState] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The paths of all objects of the copy."""
    logs: list[str] = field(default_factory=list)
    """The paths of files of Delta logs. They are part of `named`."""
    missing: set[str] = field(default_factory=set)
    """Which objects could not be brought, in words."""

    @property
    def tables(self) -> list[TopicTable]:
        return [table for state in self.streams for table in naming.tables(state)]


class Gathering:
    """Brings a ledger and its objects into the directory of a backup."""

    def __init__(
        self,
        source: Source,
        target: Target,
        store: ObjectStore,
        threads: Threads,
        clock: Clock,
        *,
        links: bool,
        tell: Callable[[Progress], None],
    ) -> None:
        """`store` is that of the source."""
        self._source = source
        self._target = target
        self._store = store
        self._threads = threads
        self._clock = clock
        self._tell = tell
        self.progress = Progress()
        self.objects = Transfer(source.objects, target.objects, target.scratch, source.mode, links=links)
        self._links = links
        self._staged = self._staging()
        self._tables = Relocation(store, as_written(target.objects.as_uri()), self.objects.size)

    def __repr__(self) -> str:
        return f"<Gathering into {self._target!r}, {self.progress}>"

    async def run(self, check: Callable[[Round], None], keep: Keep) -> tuple[Round, set[str]]:
        """Work in rounds until a ledger and all its objects are there; returns also what the cluster has lost.

        `check` raises for a ledger that must not be copied here. `keep` lets the cluster delete nothing.
        """
        missing: set[str] = set()
        async with AsyncExitStack() as stack:
            for number in range(1, ROUNDS + 1):
                if number == 2:
                    await stack.enter_async_context(keep())
                found = await self._look()
                check(found)
                await self._bring(number, found)
                lost = found.missing & missing
                if found.missing == lost:
                    await self.call(self.objects.sync)
                    await self.call(self._staged.sync)
                    return found, lost
                missing = found.missing
        raise StoreUnavailable(
            f"in each of {ROUNDS} rounds the cluster deleted objects before they were copied, in the last one "
            f"{len(missing)} ({', '.join(sorted(missing)[:3])}); raise `housekeeping.dead_object_grace_ms` and "
            "`lake.keep_versions`, or back up to a faster disk"
        )

    def _staging(self) -> Transfer:
        """What brings objects into the folder for the last step, which is empty at the start of a round."""
        source, target = self._source, self._target
        staged = target.staging / OBJECTS
        return Transfer(
            source.objects, staged, target.scratch, source.mode, links=self._links, counts=self.objects.counts
        )

    async def call(self, call: Callable[..., _T], *arguments: object) -> _T:
        """Make a call in a thread."""
        return await self._threads.run(call, *arguments)

    async def _look(self) -> Round:
        """Copy the ledger, and read its state."""
        for attempt in range(LOOKS):
            found = Round(self._clock.wall_ms())
            path, self._staged = self._target.stage(), self._staging()
            await self.call(copy_ledger, self._source.ledger, path)
            ledger = SqliteLedger(path)
            try:
                for domain in DOMAINS:
                    await self._load(ledger, new_state(domain), found)
                break
            except Damaged:
                if attempt == LOOKS - 1:
                    raise
            finally:
                await ledger.close()
        return found

    async def _load(self, ledger: SqliteLedger, state: ClusterState | StreamsState, found: Round) -> None:
        await load_state(ledger, self._store, state)
        await replay(ledger, state)
        found.checkpoints += naming.checkpoints(await ledger.pointer(state.domain))
        if isinstance(state, ClusterState):
            found.cluster = state.cluster_id
        else:
            found.streams.append(state)

    async def _bring(self, number: int, found: Round) -> None:
        """Bring what is deleted soonest first: WAL objects, metadata of versions, segments.

        From the second round on WAL objects and segments are held, and only metadata is deleted.
        """
        wal = [path for state in found.streams for path in naming.wal_objects(state)]
        segments = [path for state in found.streams for path in naming.segments(state)]
        self.progress = Progress(number, all_objects=len(wal) + len(found.checkpoints) + len(segments))

        async def bring(path: str) -> None:
            found.named.add(path)
            await self._counted(found, self.call(self.objects.bring, path))

        if number == 1:
            await each(bring, wal, THREADS)
        for table in found.tables:
            await self._bring_iceberg(found, table)
            await self._bring_delta(found, table)
        for path in found.checkpoints:  # to an older ledger a newer checkpoint says that it has gone back
            found.named.add(path)
            await self._counted(found, self._bring_late(path))
        if number > 1:
            await each(bring, wal, THREADS)
        await each(bring, segments, THREADS)

    async def _counted(self, found: Round, bringing: Awaitable[int]) -> None:
        try:
            size = await bringing
            self.progress.bytes += size
        except ObjectMissing as error:
            found.missing.add(str(error))
        self.progress.objects += 1
        self._tell(self.progress)

    async def _bring_iceberg(self, found: Round, table: TopicTable) -> None:
        """Bring the metadata that the ledger points to, with the URLs of the copy."""
        follower = table.followers.get(ICEBERG)
        if follower is None or not follower.location:
            return
        try:
            async for path, data in self._tables.objects(ref_of(table), follower.location):
                found.named.add(path)
                if data is None or await self.call(self.objects.has_bytes, path, data):
                    self.objects.counts.note(kept=1)
                else:
                    await self.call(self.objects.put, path, data)
        except (ObjectMissing, Damaged) as error:
            found.missing.add(str(error))

    async def _bring_delta(self, found: Round, table: TopicTable) -> None:
        """Gather the log as far as the copied ledger says that it goes, for the last step.

        The follower may have committed more since. Then the copy would show a later moment than the ledger does.
        """
        follower = table.followers.get(DELTA)
        try:
            part = await excerpt(self._store, ref_of(table), follower.cursor if follower is not None else 0)
        except (ObjectMissing, Damaged) as error:
            found.missing.add(str(error))
            return
        for path in part.paths:
            found.named.add(path)
            found.logs.append(path)
            await self._counted(found, self._bring_late(path))
        if part.hint is not None:
            path, data = part.hint
            found.named.add(path)
            found.logs.append(path)
            await self.call(self._staged.put, path, data)

    async def _bring_late(self, path: str) -> int:
        """Bring an object for the last step, unless it is in its place already."""
        if not await self.call(self.objects.has, path):
            return await self.call(self._staged.bring, path)
        self.objects.counts.note(kept=1)
        return 0
