"""Rows of the WAL for engines: each once, decoded once, within a limit."""

import pyarrow as pa
import pytest

from harness.virtual import run
from headwater.errors import SnapshotGone
from headwater.query.engines import hot
from headwater.query.engines.hot import HotRows
from headwater.query.scan import schema_of
from headwater.query.snapshot import Snapshot
from headwater.query.typed import SchemasMissing
from headwater.schemas.typing import Typing
from tests.unit.query.test_snapshot import APPEND_TIME, PLAIN, PLAIN_TIME, History, Row
from tests.unit.query.test_typed import columns_of
from tests.unit.schemas.test_typer import POINT, avro, framed, known


async def _written() -> History:
    made = History()
    for _ in range(6):
        await made.step("write", [(PLAIN_TIME, PLAIN, 4, 5), (APPEND_TIME, "a", 4, 5)])
    await made.step("end", "a", False)
    return made


async def _rows(rows: HotRows, snapshot: Snapshot) -> list[Row]:
    found = [piece async for piece in rows.pieces(snapshot.hot)]
    assert all(piece.schema.equals(schema_of()) for piece in found)
    table = pa.concat_tables(found) if found else schema_of().empty_table()
    return sorted((row["partition"] + 1, row["offset"], row["value"]) for row in table.to_pylist())


@pytest.mark.parametrize("runs", [1, 4, 512])
def test_pieces(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """The rows of a snapshot, also if it is cut off in the middle of a run. Known pieces are not decoded again."""
    monkeypatch.setattr(hot, "PIECE_RUNS", runs)

    async def main() -> None:
        made = await _written()
        rows = HotRows(made.store, 1 << 20)
        assert await _rows(rows, made.take()) == made.visible()
        first = rows.decoded
        assert await _rows(rows, made.take()) == made.visible() and rows.decoded == first
        cut = made.take(until_offsets={0: 5})
        assert await _rows(rows, cut) == [row for row in made.visible() if row[0] != PLAIN_TIME or row[1] < 5]
        await made.step("write", [(PLAIN_TIME, PLAIN, 4, 5)])
        assert await _rows(rows, made.take()) == made.visible()

    run(main())


def test_missing_schemas_are_told_behind_the_rows() -> None:
    """Rows that were read without them are not kept."""
    values = [framed(1, avro(POINT, {"x": 1})), framed(2, avro(POINT, {"x": 2}))]
    columns, last = columns_of(values[:1], "auto", known("1"))

    async def main() -> None:
        made = await _written()
        snapshot = made.take()
        rows = HotRows(made.store, 1 << 20)
        typing = Typing("none", "subject:s", False, False, columns, 1, last, (known("1"),))
        for tries in (1, 2):
            found = []
            with pytest.raises(SchemasMissing) as caught:
                async for piece in rows.pieces(snapshot.hot, columns, typing, "view"):
                    found.append(piece)
            assert caught.value.names == ("subject:s",) and caught.value.table == "view"
            assert sum(piece.num_rows for piece in found) == len(made.visible())
            assert rows.decoded == tries * len(found)

    run(main())


def test_what_is_kept_has_a_limit() -> None:
    async def main() -> None:
        made = await _written()
        rows = HotRows(made.store, 0)
        for _ in range(2):
            assert await _rows(rows, made.take()) == made.visible()
        assert rows.decoded == 4 and "0 bytes" in repr(rows)

    run(main())


def test_a_missing_object_is_an_error() -> None:
    async def main() -> None:
        made = await _written()
        snapshot = made.take()
        made.store.objects.clear()
        with pytest.raises(SnapshotGone, match="deleted while it was read"):
            await _rows(HotRows(made.store, 1 << 20), snapshot)

    run(main())
