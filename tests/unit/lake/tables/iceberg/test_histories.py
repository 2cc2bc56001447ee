"""Whatever happens to a follower, the table shows exactly what the journal says, in every version that it keeps."""

import asyncio
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import OutcomeUnknown, Retriable, StoreUnavailable
from headwater.lake.tables.follower import HOUR_MS
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects.memory import MemoryStore
from headwater.state.streams.tables import Follower
from headwater.types import Pieces
from tests.support.promise import promise
from tests.support.soak import examples
from tests.unit.lake.tables.iceberg.reading import read, shown
from tests.unit.lake.tables.iceberg.story import REF, Story, objects

PROMISES = ("T4",)


class FailingStore(MemoryStore):
    """Fails one write, before or after it happened."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False

    def arm(self, left: int | None, *, after: bool = False) -> None:
        self.left, self.after = left, after

    def _hit(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0

    async def put(self, path: str, pieces: Pieces) -> None:
        hit = self._hit()
        if hit and not self.after:
            raise StoreUnavailable(f"no put of {path}")
        await super().put(path, pieces)
        if hit:
            raise OutcomeUnknown(f"perhaps a put of {path}")

    async def delete(self, path: str) -> None:
        hit = self._hit()
        if hit and not self.after:
            raise StoreUnavailable(f"no delete of {path}")
        await super().delete(path)
        if hit:
            raise OutcomeUnknown(f"perhaps a delete of {path}")


@dataclass(frozen=True)
class Settle:
    partition: int
    files: int


@dataclass(frozen=True)
class Merge:
    picks: list[int]
    replaces: bool


@dataclass(frozen=True)
class Commit:
    share: float
    """How much of what is new goes into the batch."""
    exact: bool
    stands: bool
    """Whether the pointer moves afterwards."""
    fails: int | None
    after: bool
    old_pointer: bool
    """Whether a compactor does it that has missed the last commits."""


@dataclass(frozen=True)
class Expire:
    stands: bool
    fails: int | None
    after: bool
    old_pointer: bool


Step = Settle | Merge | Commit | Expire
_fails = st.none() | st.integers(0, 6)
_rarely = st.integers(0, 5).map(lambda n: n == 0)
STEPS = st.one_of(
    st.builds(Settle, st.integers(0, 2), st.integers(1, 3)),
    st.builds(Merge, st.lists(st.integers(0, 30), min_size=1, max_size=4), st.booleans()),
    st.builds(
        Commit,
        st.sampled_from([0.5, 1.0]),
        st.booleans(),
        st.booleans(),
        _fails,
        st.booleans(),
        _rarely,
    ),
    st.builds(Commit, st.just(1.0), st.just(False), st.just(True), st.none(), st.just(False), st.just(False)),
    st.builds(Expire, st.booleans(), _fails, st.booleans(), _rarely),
)


WHOLE = Commit(1.0, False, True, None, False, False)


class History:
    """Steps, one after another, each followed by a look at the table."""

    def __init__(self) -> None:
        self.store = FailingStore()
        self.story = Story()
        self.pointers = [Follower(0, 0, "", 0, ())]

    async def step(self, step: Step) -> None:
        match step:
            case Settle(partition, files):
                self.story.ms += HOUR_MS // 2
                self.story.settle(partition, 2, files)
            case Merge(picks, replaces):
                live = sorted(file.number for file in self.story.table.live())
                chosen = sorted({live[pick % len(live)] for pick in picks}) if live else []
                if chosen and replaces:
                    self.story.merge(*chosen)
                elif chosen:
                    self.story.delete(*chosen)
            case Commit():
                await self.commit(step)
            case Expire():
                await self.expire(step)
        self.store.arm(None)
        if isinstance(step, Commit | Expire):
            await self.look()

    def follower(self) -> IcebergFollower:
        """Nothing is remembered from one attempt to the next."""
        return IcebergFollower(self.store, keep_versions=3, tag_hours=2)

    def pointer(self, old: bool) -> Follower:
        return self.pointers[max(0, len(self.pointers) - 4)] if old else self.pointers[-1]

    async def commit(self, step: Commit) -> None:
        known = self.pointer(step.old_pointer)
        behind = self.story.table.last_sequence - known.cursor
        if not behind:
            return
        batch = self.story.batch(known.cursor, known.cursor + max(1, int(behind * step.share)), exact=step.exact)
        follower = self.follower()
        self.store.arm(step.fails, after=step.after)
        try:
            standing = await follower.commit(REF, known.location, batch)
        except Retriable:
            return
        assert standing.cursor == batch.upto
        if step.stands and known == self.pointers[-1]:
            self.pointers.append(Follower(standing.cursor, standing.oldest, standing.location, 0, ()))

    async def expire(self, step: Expire) -> None:
        known = self.pointer(step.old_pointer)
        follower = self.follower()
        self.store.arm(step.fails, after=step.after)
        try:
            standing = await follower.expire(REF, known.location)
        except Retriable:
            return
        assert standing.cursor == known.cursor
        assert standing.oldest >= known.oldest
        if step.stands and known == self.pointers[-1] and standing.location != known.location:
            self.pointers.append(Follower(standing.cursor, standing.oldest, standing.location, 0, ()))

    async def look(self) -> None:
        known = self.pointers[-1]
        if not known.location:
            return
        standing = await self.follower().standing(REF, known.location)
        assert (standing.cursor, standing.oldest, standing.location) == (known.cursor, known.oldest, known.location)
        table = read(self.store, known.location)
        told = Follower(standing.cursor, standing.oldest, "", standing.recent, standing.pinned)
        assert len(standing.pinned) <= 2 + 3
        assert shown(table) == self.story.names(known.cursor)
        for snapshot in table.metadata.snapshots:
            sequence = snapshot.sequence_number
            assert sequence is not None
            assert sequence >= known.oldest
            assert shown(table, snapshot.snapshot_id) == self.story.names(sequence)
            assert all(told.needs(f) for f in self.story.table.files.values() if f.added <= sequence < f.removed)
            live = self.story.batch(0, sequence).live
            assert snapshot.summary is not None
            assert snapshot.summary["total-data-files"] == str(len(live))
            assert snapshot.summary["total-records"] == str(sum(file.rows for file in live))
            assert snapshot.summary["total-files-size"] == str(sum(file.size for file in live))

    async def tidy(self) -> None:
        """In the end nothing lies about that the table does not need, whatever went wrong before."""
        if not self.pointers[-1].location:
            return
        for _ in range(2):
            self.story.settle()
            await self.commit(WHOLE)
        await self.expire(Expire(True, None, False, False))
        await self.expire(Expire(True, None, False, False))
        await self.look()
        table = read(self.store, self.pointers[-1].location)
        needed = {self.pointers[-1].location}
        needed |= {entry.metadata_file.removeprefix("memory:///") for entry in table.metadata.metadata_log}
        for snapshot in table.metadata.snapshots:
            needed.add(snapshot.manifest_list.removeprefix("memory:///"))
            needed |= {m.manifest_path.removeprefix("memory:///") for m in snapshot.manifests(table.io)}
        assert set(await objects(self.store)) == needed


@cache
def beginning(commits: int) -> History:
    """A table that has some commits behind it."""

    async def run() -> History:
        history = History()
        for _ in range(commits):
            history.story.settle()
            await history.commit(WHOLE)
        return history

    return asyncio.run(run())


@promise("T4")
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([0, 5, 9]), st.lists(STEPS, min_size=3, max_size=25))
def test_any_history(commits: int, steps: list[Step]) -> None:
    """Settles, merges, deletions, lost and old pointers, repetitions, crashes before and after every write."""

    history = deepcopy(beginning(commits))

    async def run() -> None:
        for step in steps:
            await history.step(step)
        await history.tidy()

    asyncio.run(run())


@promise("T4")
@pytest.mark.parametrize("after", [False, True])
def test_a_failure_at_every_write(after: bool) -> None:
    """Each single write of a commit that also sweeps and expires fails once, before and after it happened."""

    async def run(history: History, fails: int) -> bool:
        history.story.merge(1, 2, 3)
        history.story.settle(1, 2, files=2)
        await history.commit(Commit(1.0, False, True, fails, after, False))
        failed = history.store.left is not None and history.store.left < 0
        history.store.arm(None)
        await history.look()
        await history.step(WHOLE)
        await history.tidy()
        return failed

    fails = 0
    while asyncio.run(run(deepcopy(beginning(10)), fails)):
        fails += 1
    assert fails > 5
