"""Scans: only the needed columns, the schema of the tables, bounded pieces, and errors instead of missing rows."""

from typing import Any

import pyarrow as pa
import pytest

from harness.virtual import run
from headwater.errors import BadInput, Damaged, SnapshotGone
from headwater.log.segment.schema import segment_schema
from headwater.objects.memory import MemoryStore
from headwater.query import scan as scanning
from headwater.query.scan import columns_of, scan, schema_of
from tests.unit.query.test_snapshot import APPEND_TIME, FOUR, PLAIN, PLAIN_TIME, ROOT, History


class Counting(MemoryStore):
    """Counts the bytes that are read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects
        self.read = 0
        self.largest = 0

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(path, start, length)
        self.read += len(data)
        self.largest = max(self.largest, len(data))
        return data


async def _settled_and_hot() -> History:
    made = History()
    for _ in range(2):
        await made.step("write", FOUR[:2])
    await made.settle(1 << 20)
    await made.step("write", FOUR[:2])
    return made


def test_columns_and_schema() -> None:
    """The schema is that of the tables. Columns come in the order in which they are asked for."""
    assert schema_of().names == segment_schema().names and schema_of().types == segment_schema().types
    assert all(not field.metadata for field in schema_of())

    async def main() -> None:
        made = await _settled_and_hot()
        batches = [rows async for rows in scan(made.store, made.take(), ["value", "partition"])]
        assert {tuple(rows.schema.names) for rows in batches} == {("value", "partition")}
        table = pa.Table.from_batches(batches)
        assert table.num_rows == 12 and sorted(table["value"].to_pylist()) == sorted(b"%d" % i for i in range(12))
        bounded = made.take(until_offsets={0: 3, 1: 1}, from_ms=0)
        few = [rows async for rows in scan(made.store, bounded, ["key"])]
        assert sum(rows.num_rows for rows in few) == 4 and few[0].schema.names == ["key"]

    run(main())
    with pytest.raises(BadInput, match="no column 'vaule': the columns are partition, offset"):
        columns_of(["vaule"])
    with pytest.raises(BadInput, match="each of them once"):
        columns_of(["key", "key"])
    with pytest.raises(BadInput, match="at least one"):
        columns_of([])


def test_only_the_needed_columns_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.log.segment import read

    monkeypatch.setattr(read, "GAP_BYTES", 8 << 10)
    monkeypatch.setattr(read, "TAIL_BYTES", 8 << 10)

    async def main() -> None:
        made = History()
        await made.step("write", [(PLAIN_TIME, PLAIN, 30_000, 5)])
        await made.settle(1 << 20)
        few, all_of_them = Counting(made.store.objects), Counting(made.store.objects)
        found = [rows async for rows in scan(few, made.take(), ["partition", "sequence"])]
        assert sum(rows.num_rows for rows in found) == 30_000
        assert len([rows async for rows in scan(all_of_them, made.take())]) == len(found)
        assert few.read < all_of_them.read - 50_000

    run(main())


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of the WAL are read a few at a time, and batches have a limit of rows."""
    monkeypatch.setattr(scanning, "HOT_BYTES", 400)
    monkeypatch.setattr(scanning, "MAX_ROWS", 3)
    loads: list[int] = []
    load = scanning.load_runs

    async def noted(store: Any, runs: Any) -> Any:
        loads.append(sum(run.length for run in runs))
        return await load(store, runs)

    monkeypatch.setattr(scanning, "load_runs", noted)

    async def main() -> None:
        made = History()
        for _ in range(6):
            await made.step("write", [(PLAIN_TIME, PLAIN, 4, 5), (APPEND_TIME, "a", 4, 5)])
        await made.step("end", "a", False)
        found = [rows async for rows in scan(made.store, made.take(), ["offset"])]
        assert [row for rows in found for row in rows["offset"].to_pylist()] == list(range(24))
        assert max(rows.num_rows for rows in found) == 3
        assert len(loads) > 2 and max(loads) <= 400

    run(main())


def test_what_was_deleted_or_damaged_meanwhile_is_an_error() -> None:
    """Never fewer rows."""

    async def main() -> None:
        made = await _settled_and_hot()
        snapshot, objects = made.take(), dict(made.store.objects)
        [file] = [path for path in objects if path.startswith(ROOT)]
        [run_] = {run.path for part in snapshot.hot for run in part.runs}
        for path in (file, run_):
            made.store.objects = {key: data for key, data in objects.items() if key != path}
            with pytest.raises(SnapshotGone, match="deleted while it was read: scan again"):
                await made.scanned(snapshot)
            spoilt = bytearray(objects[path])
            spoilt[-12] ^= 1
            made.store.objects = {**objects, path: bytes(spoilt)}
            with pytest.raises(Damaged):
                await made.scanned(snapshot)
        made.store.objects = objects
        assert len(await made.scanned(snapshot)) == 12

    run(main())
