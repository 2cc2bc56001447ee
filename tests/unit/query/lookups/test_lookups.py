"""Look-ups: the same answers as a full scan, whatever was written, settled, merged, aborted and deleted meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.client.records import Record
from headwater.errors import BadInput, Damaged, NotFound, OffsetOutOfRange, SnapshotGone
from headwater.lake.following import batch_of
from headwater.lake.tables.follower import Expiry, ref_of
from headwater.lake.tables.keys import format as keys
from headwater.lake.tables.keys import table as key_table
from headwater.lake.tables.keys.table import KeyIndexFollower
from headwater.log.segment.cache import SegmentCache
from headwater.log.wal.cache import WalCache
from headwater.objects import ObjectStore
from headwater.query.lookups import files, lookups, runs, settled
from headwater.query.lookups.lookups import Answer, Lookups, Place
from headwater.query.scan import scan
from headwater.state.commands.tables import Follow, Unfollow
from headwater.state.streams.tables import DataFile, TopicTable
from tests.support.batches import Rec
from tests.support.scribe import TOPIC
from tests.support.soak import WHOLE
from tests.unit.query.test_scan import Counting
from tests.unit.query.test_snapshot import (
    ABORTED,
    APPEND_TIME,
    BEHIND,
    FOUR,
    PLAIN,
    PLAIN_TIME,
    TRIMMED,
    History,
    steps,
)

KEYS = [b"a", b"b", b"", b"a longer key, which is hashed in stripes of thirty-two bytes", None]
ABSENT = b"not a key"
Seen = tuple[int, int, bytes | None]


class Keyed(History):
    """A history whose records have keys. Some of them are tombstones."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = self.new_lookups(self.store)

    def new_lookups(self, store: ObjectStore, cache_bytes: int = 1 << 20) -> Lookups:
        return Lookups(
            store, WalCache(store, 1 << 20), SegmentCache(store, 1 << 20), opened_limit=1 << 20, cache_bytes=cache_bytes
        )

    async def step(self, kind: str, *facts: Any) -> None:
        if kind == "index":
            await self.index()
        else:
            await super().step(kind, *facts)

    async def index(self) -> None:
        """Bring the index of keys up to date with the table."""
        table, follower = self.state.tables.get(TOPIC), KeyIndexFollower(self.store, chance=self._chance)
        if table is None:
            return
        known = table.followers.get("keys")
        standing = await follower.standing(ref_of(table), known.location if known else "")
        while standing.cursor < table.last_sequence:
            before = standing
            standing = await follower.commit(ref_of(table), before.location, batch_of(table, before.cursor))
            self._do(
                Follow(self._lease, TOPIC, "keys", before.location, standing.location, standing.cursor, standing.oldest)
            )

    def _made(self, count: int, stamp: int) -> list[Rec]:
        made = super()._made(count, stamp)
        return [Rec(rec.value, KEYS[self._key(rec)], rec.timestamp) for rec in made]

    @staticmethod
    def _key(rec: Rec) -> int:
        return int(rec.value or b"0") * 7919 % 11 % len(KEYS)

    @property
    def place(self) -> Place:
        async def nothing() -> None:
            pass

        return Place(TOPIC, lambda: self.state, lambda: list(self.state.streams.values()), nothing)

    async def all_rows(self) -> list[tuple[int, Record]]:
        found = []
        async for rows in scan(self.store, self.take()):
            found += [
                (row["partition"], Record(row["offset"], row["timestamp_ms"], row["key"], row["value"]))
                for row in rows.to_pylist()
            ]
        return found


class Counted(Counting):
    """Counts whole objects too."""

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        found = await super().get_many(paths)
        self.read += sum(len(data) for data in found if data is not None)
        return found


def newest(rows: list[tuple[int, Record]], key: bytes, partition: int | None = None) -> tuple[int, Record] | None:
    """The newest record with a key, by a full scan."""
    last: dict[int, Record] = {}
    for number, record in rows:
        fits = record.key == key and partition in (None, number)
        if fits and (number not in last or last[number].offset < record.offset):
            last[number] = record
    return max(last.items(), key=lambda item: (item[1].timestamp, -item[0]), default=None)


async def check(made: Keyed, own: Lookups) -> None:
    rows = await made.all_rows()
    for key in (*KEYS, ABSENT):
        for partition in (None, 1) if key is not None else ():
            assert key is not None
            got, wanted = await own.latest(made.place, key, partition), newest(rows, key, partition)
            assert (got.record and (got.partition, got.record)) == wanted, (key, partition)
    by_place = {(partition, record.offset): record for partition, record in rows}
    for stream in made.state.streams.values():
        for offset in range(stream.log_start, stream.end):
            expected = by_place.get((stream.partition, offset))
            found = await own.at(made.place, stream.partition, offset)
            if expected is None and found.record is not None:
                # The table's retention has removed the row. The log still has it.
                assert stream.index[stream.index.find(offset)].file
            else:
                assert found.record == expected, (stream.partition, offset)


async def told(history: list[Any]) -> None:
    made = Keyed()
    for step in history:
        await made.step(*step)
        await check(made, made.lookups)
    for name in made.writer.open:
        await made._end(name, True)
    await check(made, made.lookups)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "FEW", -1)  # the compiled loops find the same
        await check(made, made.lookups)
    await made.settle(1 << 20)
    await check(made, made.lookups)
    await check(made, made.new_lookups(made.store))


AHEAD = [("write", [(PLAIN_TIME, PLAIN, 3, 50)]), ("reserve", [PLAIN_TIME], 6), ("fill", 0, True), ("index",)]
"""The newest record with a key is in a file, behind an older one in the WAL, and has a smaller timestamp."""
INDEXED = [step for one in (*BEHIND, *TRIMMED) for step in (one, ("index",))]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of keys have many runs, parts and blocks."""
    monkeypatch.setattr(keys, "BLOCK_ROWS", 2)
    monkeypatch.setattr(keys, "BLOCK_BYTES", 2 * keys.ROW_BYTES + 4)
    monkeypatch.setattr(key_table, "PART_ROWS", 4)
    monkeypatch.setattr(key_table, "SLICE_ROWS", 3)
    monkeypatch.setattr(key_table, "MAX_RUNS", 3)


@pytest.mark.timeout(1_200 if WHOLE else 120)
@settings(
    deadline=None,
    max_examples=500 if WHOLE else 12,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(history=ABORTED)
@example(history=BEHIND)
@example(history=AHEAD)
@example(history=INDEXED)
@given(history=st.lists(st.one_of(steps, steps, st.just(("index",))), min_size=4, max_size=14))
def test_the_same_as_a_full_scan(history: list[Any]) -> None:
    run(told(history))


async def written(*history: Any) -> Keyed:
    made = Keyed()
    for step in history:
        await made.step(*step)
    return made


def test_nothing_but_one_row_group_is_read() -> None:
    """A cold look-up of a settled record costs two reads at most; one of a record in the WAL costs one."""

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20), ("write", FOUR[:2]))
        store = Counted(made.store.objects)
        own = made.new_lookups(store)
        for offset in (0, 6):
            before = store.read
            found = await own.at(made.place, 0, offset)
            assert found.record is not None and found.record.offset == offset
            assert 1 <= found.read.requests <= 2 and found.read.bytes == store.read - before > 0
            warm = await own.at(made.place, 0, offset)
            assert warm.record == found.record and warm.read.requests == warm.read.bytes == 0
        cold = await own.latest(made.place, b"a")
        assert cold.record is not None and cold.read.requests > 0
        assert (await own.latest(made.place, b"a")).read.requests == 0
        absent = await own.latest(made.place, ABSENT)
        assert absent.record is None and absent.read.requests == 0

    run(main())


def test_offsets_that_are_not_there() -> None:
    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", False), ("write", FOUR[:1]), ("settle", 1 << 20))
        own, stream = made.lookups, made.state.streams[PLAIN_TIME]
        assert [(await own.at(made.place, 0, offset)).record is None for offset in range(stream.end)] == [
            offset in (2, 4) for offset in range(stream.end)
        ]  # an aborted record and its marker
        for offset in (-1, stream.end, 1 << 60):
            with pytest.raises(OffsetOutOfRange, match=f"has the offsets 0 to {stream.end}, not") as error:
                await own.at(made.place, 0, offset)
            assert (error.value.start, error.value.end) == (0, stream.end)
        with pytest.raises(NotFound, match="no partition 7"):
            await own.at(made.place, 7, 0)
        with pytest.raises(NotFound, match="no partition 7"):
            await own.latest(made.place, b"a", 7)
        with pytest.raises(BadInput, match="the longest that can be looked up"):
            await own.latest(made.place, b"a" * (lookups.MAX_KEY + 1))

    run(main())


def test_the_table_has_what_the_log_has_no_more() -> None:
    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20), ("trim", PLAIN_TIME, 2))
        assert made.state.streams[PLAIN_TIME].log_start == 2
        found = await made.lookups.at(made.place, 0, 1)
        assert found.record is not None and found.record.offset == 1
        made = await written(("write", FOUR), ("trim", PLAIN_TIME, 2))
        with pytest.raises(OffsetOutOfRange, match="has the offsets 2 to"):
            await made.lookups.at(made.place, 0, 1)

    run(main())


def test_keys_of_the_wal_are_kept_within_a_limit() -> None:
    """Tables are merged by eight. Without room for them look-ups give the same answers."""

    async def main() -> None:
        made = Keyed()
        roomy, tight = made.lookups, made.new_lookups(made.store, 64)
        for i in range(40):
            await made.step("write", [(PLAIN_TIME, PLAIN, 1 + i % 3, i)])
            rows = await made.all_rows()
            for own in (roomy, tight):
                got = await own.latest(made.place, b"a")
                assert (got.record and (got.partition, got.record)) == newest(rows, b"a")
        assert 0 < roomy.keys.size_bytes <= 1 << 19 and tight.keys.size_bytes <= 32
        size = roomy.keys.size_bytes
        half = made.new_lookups(made.store, 4 * 96)  # four keys, once each
        await half.latest(made.place, b"a")
        await made.settle(1 << 20)
        assert made.state.streams[PLAIN_TIME].settled == made.state.streams[PLAIN_TIME].end
        await made.step("write", [(PLAIN_TIME, PLAIN, 1, 9)])
        for own in (roomy, tight, half):
            await own.latest(made.place, b"a")
        assert roomy.keys.size_bytes >= size and half.keys.size_bytes <= 24  # what is settled makes room

    run(main())


def test_another_key_with_the_same_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes only say where to look."""
    monkeypatch.setattr(lookups, "key_hash", lambda _: 1)
    monkeypatch.setattr(files, "may_have", lambda *_: True)

    def hashed(self: Any) -> Any:
        import numpy as np

        offsets, hashes = _hashed_keys(self)
        return offsets, np.ones_like(hashes)

    _hashed_keys = runs.RowGroup.hashed_keys
    monkeypatch.setattr(runs.RowGroup, "hashed_keys", hashed)

    async def main() -> None:
        made = Keyed()
        for step in (("write", FOUR), ("write", FOUR), ("end", "a", False), ("settle", 150), ("write", FOUR)):
            await made.step(*step)
            await check(made, made.lookups)

    run(main())


def test_filters_that_are_not_kept_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter may be probed in the store. A row group without one may have any key."""

    async def main() -> None:
        made = await written(("write", FOUR), ("write", FOUR), ("end", "a", True), ("settle", 1), ("write", FOUR[:1]))
        rows = await made.all_rows()

        async def compare() -> int:
            store = Counted(made.store.objects)
            own = made.new_lookups(store)
            for key in (b"a", b"b", ABSENT):
                got = await own.latest(made.place, key)
                assert (got.record and (got.partition, got.record)) == newest(rows, key)
            return (await own.latest(made.place, ABSENT)).read.bytes

        assert await compare() == 0
        with monkeypatch.context() as small:
            small.setattr(files, "TAIL_BYTES", 16)
            small.setattr(files, "FILTERS_BYTES", 0)
            probes = await compare()
            assert probes > 0 and probes % 32 == 0
        with monkeypatch.context() as other:
            other.setattr(files, "header_of", lambda _: b"another header")
            await compare()
        with monkeypatch.context() as none:
            none.setattr(files.SegmentReader, "key_filters", lambda self: [None] * len(self.groups))
            await compare()

    run(main())


def test_a_look_up_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "READ_BYTES", 100)

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1))
        with pytest.raises(BadInput, match="has read 100 bytes and is not done: name a partition"):
            await made.lookups.latest(made.place, b"a")

    run(main())


def test_what_is_deleted_or_damaged_is_an_error() -> None:
    """Never an older record than the newest."""

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20), ("write", FOUR))
        objects = dict(made.store.objects)
        stored, log = sorted(path for path in objects if "_data/" in path), sorted(p for p in objects if "wal/" in p)
        asked: list[tuple[str, Any]] = [(stored[0], SnapshotGone), (log[-1], Damaged)]
        for path, kind in asked:
            made.store.objects = {key: data for key, data in objects.items() if key != path}
            own = made.new_lookups(made.store)
            with pytest.raises(kind):
                await own.latest(made.place, ABSENT)
            made.store.objects = {**objects, path: objects[path][:-30] + bytes(30)}
            with pytest.raises(Damaged):
                await made.new_lookups(made.store).latest(made.place, ABSENT)
            made.store.objects = dict(objects)
            assert (await own.latest(made.place, ABSENT)).record is None

    run(main())


def test_what_was_settled_meanwhile_is_found_again() -> None:
    """The object is gone when the look-up comes to read it. A look at the ledger says where the records are now."""

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True))
        own, objects = made.lookups, dict(made.store.objects)
        before = made.state.image()
        await made.settle(1 << 20)
        after = made.scribe.state
        made.scribe.state = type(made.state)(made.state.domain)
        made.scribe.state.restore(before)
        made.store.objects = {path: data for path, data in made.store.objects.items() if path not in objects}
        looks = []

        async def catch_up() -> None:
            looks.append(1)
            if len(looks) > 1:
                made.scribe.state = after

        place = Place(TOPIC, lambda: made.state, lambda: list(made.state.streams.values()), catch_up)
        found: Answer = await own.latest(place, b"a")
        assert found.record is not None and len(looks) == 2
        assert (await own.at(place, 1, 0)).record is not None

    run(main())


def test_names_of_the_state() -> None:
    made = Keyed()
    assert "0 topics" in repr(made.lookups) and "0 files" in repr(made.lookups)
    assert made.state.streams[APPEND_TIME].partition == 1


class Grown(KeyIndexFollower):
    """Indexes files of which only the metadata exists: their keys are random."""

    async def _rows(self, table: Any, files: Sequence[DataFile]) -> AsyncIterator[Any]:
        import numpy as np

        async for found in super()._rows(table, [file for file in files if not file.name.endswith("synthetic")]):
            yield found
        made = [file for file in files if file.name.endswith("synthetic")]
        if made:
            offsets = np.concatenate([np.arange(file.first_offset, file.last_offset + 1) for file in made])
            hashes = np.random.default_rng(made[0].number).integers(0, 1 << 64, len(offsets), dtype=np.uint64)
            yield keys.ordered(keys.of_partition(0, hashes, offsets))


def _grow(table: TopicTable, files: int) -> None:
    for number in range(max(table.files) + 1, max(table.files) + 1 + files):
        name, first = f"_data/{number}-synthetic", 1_000 + 30 * number
        file = DataFile(number, name, 9_999, 30, 1, 0, 0, first, first + 29, 0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0)
        table.record(1, 1, [file], (), (), replaces=False)


def test_ten_thousand_segments_cost_ten_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an index of keys a look-up costs about the same for few segments and for many, whether the key exists."""
    monkeypatch.undo()

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20))
        rows = [(number, record) for number, record in await made.all_rows() if record.key is not None]
        follower, table = Grown(made.store, chance=made._chance), made.state.tables[TOPIC]
        location, most, cursor = "", 0, 0
        for _ in range(51):
            done = await follower.commit(ref_of(table), location, batch_of(table, cursor))
            cursor = done.cursor
            made._do(Follow(made._lease, TOPIC, "keys", location, done.location, done.cursor, done.oldest))
            location = done.location
            manifest = keys.unpack_manifest(location, made.store.objects[location])
            most = max(most, len(manifest.runs))
            _grow(table, 200 if len(table.files) < 10_001 else 0)
        assert done.cursor == table.last_sequence and len(list(table.live())) == 10_001
        assert 1 < most <= key_table.MAX_RUNS and sum(run.rows for run in manifest.runs) == 300_000 + len(rows)
        for trimmed in (False, True):
            for key in (b"a", b"b", ABSENT):
                got = await made.new_lookups(made.store).latest(made.place, key)
                assert (got.record and (got.partition, got.record)) == newest(rows, key)
                assert 0 < got.read.requests <= 10, (trimmed, key, got.read)
            await made.step("trim", PLAIN_TIME, 4)
        swept = len(made.store.objects)
        await follower.expire(ref_of(table), location, Expiry())
        left = [path for path in made.store.objects if "/_keys/" in path]
        assert len(left) <= 2 + sum(len(run.parts) for run in manifest.runs) and len(made.store.objects) < swept
        await follower.drop(ref_of(table), location)
        assert not [path for path in made.store.objects if "/_keys/" in path]
        got = await made.new_lookups(made.store).at(made.place, 1, 0)
        assert got.record is not None

    run(main())


def test_an_index_that_cannot_be_read_is_not_used() -> None:
    """Filters answer then. The next commit makes the index anew, as after the restore of a backup."""

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 150), ("index",), ("write", FOUR[:2]))
        rows, objects = await made.all_rows(), dict(made.store.objects)
        indexed = {path: data for path, data in objects.items() if "/_keys/" in path}
        spoilt = {path: data[:-9] + bytes(9) for path, data in indexed.items()}
        others = {path: data for path, data in objects.items() if path not in indexed}
        for broken in ({}, spoilt, {path: data[:20] for path, data in indexed.items()}):
            made.store.objects = {**others, **broken}
            for key in (b"a", b"b", ABSENT):
                got = await made.new_lookups(made.store).latest(made.place, key)
                assert (got.record and (got.partition, got.record)) == newest(rows, key)
        made.store.objects = dict(others)
        table = made.state.tables[TOPIC]
        follower = KeyIndexFollower(made.store, chance=made._chance)
        assert (await follower.standing(ref_of(table), table.followers["keys"].location)).cursor == 0
        made._do(Unfollow(made._lease, TOPIC, "keys"))
        await made.index()
        await check(made, made.new_lookups(made.store))
        assert table.followers["keys"].cursor == table.last_sequence

    run(main())
