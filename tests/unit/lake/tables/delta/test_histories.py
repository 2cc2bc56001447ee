"""The Delta follower over long and broken histories: crashes at every write, repetitions, retention."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.lake.tables.delta import log as delta_log
from headwater.lake.tables.delta.checkpoint import RETENTION_MS, decode_checkpoint, encode_checkpoint
from headwater.lake.tables.delta.log import Listing
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.lake.tables.follower import Expiry, Standing
from headwater.objects.memory import MemoryStore
from headwater.types import Pieces
from tests.support.promise import promise
from tests.support.soak import dealt, examples, first_middle_last
from tests.unit.lake.tables.delta.making import REF, START_MS, Journal, log_files, newest, shown, versions

PROMISES = ("T2", "T5")

pytestmark = pytest.mark.long
_T = TypeVar("_T")


def run(work: Awaitable[_T]) -> _T:
    async def awaited() -> _T:
        return await work

    return asyncio.run(awaited())


class Crash(Exception):
    """The process is gone."""


class Breaking(MemoryStore):
    """Fails at a chosen write, before it is done or after."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []
        self.fatal = -1
        self.done = False
        self.error: type[Exception] = Crash

    @property
    def writes(self) -> int:
        return len(self.kinds)

    @contextmanager
    def _step(self, what: str, path: str) -> Iterator[None]:
        number = self.writes
        self.kinds.append(f"{what} {path.rpartition('/')[2].lstrip('0123456789')}")
        if number == self.fatal and not self.done:
            raise self.error("before the write")
        yield
        if number == self.fatal:
            raise self.error("after the write")

    async def put(self, path: str, pieces: Pieces) -> None:
        with self._step("put", path):
            await super().put(path, pieces)

    async def create(self, path: str, pieces: Pieces) -> bool:
        with self._step("create", path):
            return await super().create(path, pieces)

    async def delete(self, path: str) -> None:
        with self._step("delete", path):
            await super().delete(path)


def story(rounds: int) -> Journal:
    """Settles, merges and deletions, four entries a round."""
    journal = Journal()
    for i in range(rounds):
        files = journal.settle(3)
        journal.settle()
        merged = journal.merge(files)
        if i % 3:
            journal.delete([merged])
        else:
            journal.enter([])
    return journal


def check(journal: Journal, objects: dict[str, bytes], standing: Standing) -> None:
    """The table is what the journal says at some sequence, and every version since the oldest can be read."""
    sequence, files = newest(objects)
    assert standing.cursor == sequence
    assert files == journal.shown[sequence]
    readable = []
    for version in versions(objects):
        with suppress(KeyError):
            readable.append(shown(objects, version))
    if sequence:
        assert readable[-1] == (sequence, files)
        assert standing.oldest == readable[0][0]
    for then, held in readable:
        assert held == journal.shown[then]


async def follow(journal: Journal, store: MemoryStore, keep: int, size: int = 1) -> Standing:
    """Bring the table up to date from wherever it is."""
    follower = DeltaFollower(store, keep_versions=keep)
    standing = await follower.standing(REF, "")
    while standing.cursor < journal.table.last_sequence:
        upto = min(standing.cursor + size, journal.table.last_sequence)
        standing = await follower.commit(REF, "", journal.batch(standing.cursor, upto))
    return standing


@promise("T2")
def test_a_crash_at_every_write() -> None:
    """Before and after every write, whatever it is, the table is whole, and the next follower goes on.

    The first, the middle and the last write of each kind; in the soak all of them.
    """
    journal = story(6)
    whole = Breaking()
    run(follow(journal, whole, keep=5))
    assert whole.writes > 35 and len(set(whole.kinds)) >= 4, "commits, checkpoints, hints and deletions"
    for fatal in first_middle_last(whole.kinds):
        for done in (False, True):
            store = Breaking()
            store.fatal, store.done = fatal, done
            with pytest.raises(Crash):
                run(follow(journal, store, keep=5))
            store.fatal = -1
            check(journal, store.objects, run(DeltaFollower(store).standing(REF, "")))
            standing = run(follow(journal, store, keep=5))
            assert standing.cursor == 24
            check(journal, store.objects, standing)
            assert [n for n in log_files(store.objects) if n.endswith(".json")] == [
                f"{v:020d}.json" for v in versions(store.objects)
            ]


@promise("T2")
@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
def test_a_failure_at_every_write(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    """A store that fails once delays nothing but that step; a commit that stands is not reported as failed.

    The first, the middle and the last write of each kind; in the soak all of them.
    """
    caplog.set_level(logging.ERROR)
    journal = story(6)
    whole = Breaking()
    run(follow(journal, whole, keep=5))
    for fatal in first_middle_last(whole.kinds):
        store = Breaking()
        store.fatal, store.done, store.error = fatal, error is OutcomeUnknown, error
        try:
            standing = run(follow(journal, store, keep=5))
        except (StoreUnavailable, OutcomeUnknown):
            standing = run(follow(journal, store, keep=5))
        assert standing.cursor == 24
        check(journal, store.objects, standing)


@promise("T2", "T5")
def test_300_commits() -> None:
    """The log's directory stays small, and what is retained can be read at every version."""
    journal, store = Journal(), MemoryStore()
    follower = DeltaFollower(store)
    sizes, cursor = [], 0
    for i in range(300):
        if i % 10 == 9:
            journal.merge(list(journal.table.live())[-5:])
        else:
            journal.settle()
        standing = run(follower.commit(REF, "", journal.batch(cursor)))
        cursor = standing.cursor
        sizes.append(len(log_files(store.objects)))
    assert cursor == 300
    assert versions(store.objects)[-1] == 299
    assert max(sizes) <= 50 + 10 + 10 + 8 + 1
    assert max(sizes[250:]) == max(sizes[100:150])
    kept = [shown(store.objects, version) for version in versions(store.objects)]
    assert len(kept) >= 50
    assert kept[0][0] == standing.oldest
    for sequence, files in kept:
        assert files == journal.shown[sequence]


@promise("T2")
def test_checkpoints(caplog: pytest.LogCaptureFixture) -> None:
    """One every ten commits, and the hint names the newest."""
    journal, store = Journal(), MemoryStore()
    for _ in range(35):
        journal.settle()
    run(follow(journal, store, keep=50))
    names = log_files(store.objects)
    assert sorted(int(n[:20]) for n in names if n.endswith(".checkpoint.parquet")) == [10, 20, 30]
    hint = names["_last_checkpoint"]
    size = len(names[f"{30:020d}.checkpoint.parquet"])
    assert hint == b'{"version":30,"size":34,"sizeInBytes":%d,"numOfAddFiles":31}' % size


@promise("T2", "T5")
def test_a_checkpoint_forgets_old_removals() -> None:
    """A removed file is remembered for an hour only, so checkpoints stay small."""
    journal, store = Journal(), MemoryStore()
    files = journal.settle(2)
    journal.delete(files[:1])
    run(follow(journal, store, keep=50))
    journal.delete(files[1:])
    late = journal.entries[-1]
    run(follow(journal, store, keep=50))
    follower = DeltaFollower(store)
    state = run(follower._state(REF, run(follower._open(REF)).listing))
    for after, left in ((0, 2), (late.ms - 1000, 1), (late.ms, 0)):
        actions = state.actions(after)
        assert decode_checkpoint("c", encode_checkpoint(actions)) == actions
        assert sum(a.remove is not None for a in actions) == left
    assert RETENTION_MS == 3_600_000


EXPIRIES = (Expiry(keep=1), Expiry(keep=7), Expiry(1 << 60, before_ms=START_MS + 26_500))


@promise("T5")
@pytest.mark.parametrize("expiry", EXPIRIES, ids=repr)
def test_expiry_on_demand(expiry: Expiry) -> None:
    """Exactly as many versions stay as are wanted, by number or by age, and a crash at any write harms nothing.

    Each expiry crashes at a third of the writes; in the soak at all of them.
    """
    journal, grown = story(8), MemoryStore()
    run(follow(journal, grown, keep=50))

    def table() -> Breaking:
        store = Breaking()
        store.objects.update(grown.objects)
        return store

    whole = table()
    standing = run(DeltaFollower(whole).expire(REF, "", expiry))
    first = 33 - expiry.keep if expiry.keep else next(e.sequence for e in journal.entries if e.ms >= expiry.before_ms)
    assert standing == Standing(32, first, "")
    check(journal, whole.objects, standing)
    assert versions(whole.objects) == list(range(first - 1, 32))
    found = run(DeltaFollower(whole).versions(REF, ""))
    assert [(v.number, v.first, v.sequence) for v in found] == [(n - 1, n, n) for n in range(first, 33)]
    writes = whole.writes
    assert run(DeltaFollower(whole).expire(REF, "", expiry)) == standing
    for fatal in dealt(range(writes), EXPIRIES.index(expiry), len(EXPIRIES)):
        for done in (False, True):
            store = table()
            store.fatal, store.done = fatal, done
            with pytest.raises(Crash):
                run(DeltaFollower(store).expire(REF, "", expiry))
            store.fatal = -1
            check(journal, store.objects, run(DeltaFollower(store).standing(REF, "")))
            assert run(DeltaFollower(store).expire(REF, "", expiry)) == standing
            check(journal, store.objects, standing)


@promise("T5")
def test_expiry_by_age() -> None:
    """A table that stands still lets its old versions go, in steps of a checkpoint, and keeps the newest."""
    journal, store = story(4), MemoryStore()
    run(follow(journal, store, keep=50))
    follower = DeltaFollower(store, max_age_ms=100_000)
    newest_ms = journal.entries[-1].ms
    for passed, oldest in ((0, 1), (85_500, 2), (89_500, 6), (95_500, 11), (99_500, 11), (500_000, 16)):
        standing = run(follower.expire(REF, "", Expiry(newest_ms + passed)))
        assert standing.cursor == 16
        assert standing.oldest >= oldest, passed
        check(journal, store.objects, standing)
    assert standing == Standing(16, 16, "")


@promise("T5")
def test_retention_counts_versions() -> None:
    """As many versions as asked for can be read back, and `expire` does it for a table that stands still."""
    journal, store = story(10), MemoryStore()
    wide = run(follow(journal, store, keep=1000))
    assert wide == Standing(40, 1, "")
    for keep, oldest in ((1000, 0), (30, 10), (11, 20), (10, 30), (1, 30)):
        standing = run(DeltaFollower(store, keep_versions=keep).expire(REF, ""))
        assert standing.oldest == oldest + 1
        assert versions(store.objects)[0] == oldest
        check(journal, store.objects, standing)


@promise("T5")
def test_others_files_go_with_their_version() -> None:
    """Checksums and partial checkpoints that other engines left are removed with the versions they belong to."""
    journal, store = story(10), MemoryStore()
    run(follow(journal, store, keep=1000))
    directory = f"{REF.root}/_delta_log/"
    for version in (3, 35):
        for name in (
            f"{version:020d}.crc",
            f".{version:020d}.json.crc",
            f"{version:020d}.checkpoint.0001.0002.parquet",
        ):
            store.objects[directory + name] = b"x"
    store.objects[directory + "_commits/x"] = b"x"
    run(DeltaFollower(store, keep_versions=5).expire(REF, ""))
    others = [name for name, data in log_files(store.objects).items() if data == b"x"]
    assert len(others) == 4
    assert not [name for name in others if f"{3:020d}" in name]


@promise("T2")
def test_the_oldest_version() -> None:
    """What can be read depends on checkpoints and an unbroken row of commits."""

    def listing(commits: list[int], checkpoints: list[int]) -> Listing:
        return Listing.of([f"{v:020d}.json" for v in commits] + [f"{v:020d}.checkpoint.parquet" for v in checkpoints])

    assert listing([], []).oldest == -1
    assert listing([0, 1, 2], []).oldest == 0
    assert listing([1, 2, 3], []).oldest == -1
    assert listing([1, 2, 3], [0]).oldest == 0
    assert listing([4, 5, 6], [1, 5]).oldest == 5
    assert listing([0, 1, 3, 4], [3]).oldest == 3
    assert listing([4], [9]).newest_checkpoint == -1
    assert listing(list(range(12)), [5, 10]).obsolete(4) == [
        *(f"{v:020d}.json" for v in range(5)),
    ]
    assert listing(list(range(12)), [20]).obsolete(1) == []


WORDS = ["settle", "settle", "merge", "delete", "rewrite", "gap", "follow", "follow", "backfill", "crash", "again"]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(WORDS),
        st.integers(0, 1 << 16),
    ),
    min_size=20,
    max_size=80,
)


@promise("T2", "T5")
@settings(max_examples=examples(50), deadline=None)
@given(MOVES, st.integers(1, 12))
def test_random_histories(moves: list[tuple[str, int]], keep: int) -> None:
    """Any history of entries, batches, crashes and repetitions leaves the journal's files, each once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
        run(_random_history(moves, keep))


async def _random_history(moves: list[tuple[str, int]], keep: int) -> None:
    journal, store = Journal(), Breaking()
    follower = DeltaFollower(store, keep_versions=keep)
    last = journal.batch(0)
    for move, number in moves:
        live = list(journal.table.live())
        some = live[number % (len(live) + 1) :][: 1 + number % 4]
        if move == "settle":
            journal.settle(1 + number % 3)
        elif move == "gap":
            journal.enter([])
        elif move == "merge" and some:
            journal.merge(some)
        elif move == "delete" and some:
            journal.delete(some)
        elif move == "rewrite" and some:
            journal.enter([journal.fresh()], some)
        elif move in ("follow", "backfill", "crash"):
            standing = await follower.standing(REF, "")
            if standing.cursor == journal.table.last_sequence:
                continue
            upto = None if move == "backfill" else min(standing.cursor + 1 + number % 5, journal.table.last_sequence)
            last = journal.batch(standing.cursor, upto, whole=move == "backfill")
            if move == "crash":
                store.fatal, store.done = store.writes + number % 4, bool(number & 8)
            with suppress(Crash):
                await follower.commit(REF, "", last)
            store.fatal = -1
        elif move == "again" and last.upto:
            cursor = (await follower.standing(REF, "")).cursor
            if cursor >= last.upto:
                before = dict(store.objects)
                await follower.commit(REF, "", last)
                assert store.objects == before
        if move in ("follow", "backfill", "crash"):
            sequence, files = newest(store.objects)
            assert (await follower.standing(REF, "")).cursor == sequence
            assert files == journal.shown[sequence]
        if move == "crash":
            check(journal, store.objects, await follower.standing(REF, ""))
    if journal.table.last_sequence:
        standing = await follow(journal, store, keep, size=7)
        check(journal, store.objects, standing)
        assert newest(store.objects) == (journal.table.last_sequence, journal.shown[journal.table.last_sequence])
