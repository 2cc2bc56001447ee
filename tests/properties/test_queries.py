"""Properties 15, 17 and 18: answers of DuckDB to any history, and results in every form."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.gateway.results.forms import About, Form, columns_of, writer_of
from headwater.query.engines.contract import table_of
from headwater.query.engines.duckdb.lockdown import CONFIG
from headwater.query.engines.duckdb.tables import make_view
from headwater.query.engines.hot import HotRows
from headwater.query.scan import schema_of
from headwater.query.snapshot import Snapshot
from tests.properties.lakes import Lake, each_of
from tests.unit.query.test_snapshot import Row

PROMISES = ("Q1",)

Answer = list[tuple[Any, ...]]
Asked = tuple[str, Callable[[list[Row]], Answer]]


def questions(chance: random.Random) -> list[Asked]:
    """A scan, a filter, a projection and aggregates, each with what it must answer."""
    least, part = chance.randint(0, 6), chance.randint(0, 1)
    return [
        (
            'SELECT "partition" + 1, "offset", value FROM {} ORDER BY ALL',
            lambda rows: sorted(rows),
        ),
        (
            f'SELECT "offset" FROM {{}} WHERE "offset" >= {least} AND "partition" = {part} ORDER BY 1',
            lambda rows: sorted((at,) for stream, at, _ in rows if at >= least and stream == part + 1),
        ),
        (
            'SELECT DISTINCT "offset" * 2 + "partition" FROM {} ORDER BY 1',
            lambda rows: sorted({(at * 2 + stream - 1,) for stream, at, _ in rows}),
        ),
        (
            'SELECT count(*), min("offset"), max("offset"), sum(octet_length(value)) FROM {}',
            lambda rows: [
                (
                    len(rows),
                    min((at for _, at, _ in rows), default=None),
                    max((at for _, at, _ in rows), default=None),
                    sum(len(value) for *_, value in rows) if rows else None,
                )
            ],
        ),
    ]


def grouped(rows: list[Row]) -> Answer:
    """Counts and sums of offsets by partition and remainder."""
    counts, sums = Counter[tuple[int, int]](), defaultdict[tuple[int, int], int](int)
    for stream, at, _ in rows:
        counts[stream - 1, at % 3] += 1
        sums[stream - 1, at % 3] += at
    return sorted((*key, counts[key], sums[key]) for key in counts)


GROUPED: Asked = (
    'SELECT "partition", "offset" % 3, count(*), sum("offset") FROM {} GROUP BY 1, 2 ORDER BY 1, 2',
    grouped,
)


class Asking:
    """DuckDB in this process, with a view for each snapshot."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._connection = duckdb.connect(config=CONFIG)  # type: ignore[arg-type]
        self._views = 0

    async def view(self, lake: Lake, snapshot: Snapshot) -> str:
        """Write the files of a snapshot to a directory and make a view of them and of the rows in the WAL."""
        self._views += 1
        name = f"v{self._views}"
        for file in snapshot.files:
            path = self._directory / name / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lake.store.objects[file.path])
        pieces = [piece async for piece in HotRows(lake.store, 0).pieces(snapshot.hot)]
        hot = pa.concat_tables(pieces) if pieces else schema_of().empty_table()
        place = str(self._directory / name) + "/"
        make_view(self._connection, table_of(name, "t", snapshot), lambda path: place + path, hot)
        return name

    def ask(self, sql: str, view: str) -> Answer:
        return self._connection.execute(sql.format(view)).fetchall()

    def close(self) -> None:
        self._connection.close()


def test_answers_are_exact(tmp_path: Path) -> None:
    """15, 18: scans, filters, projections, aggregates and GROUP BY, over files and the WAL at one snapshot."""
    asking = Asking(tmp_path)

    async def story(lake: Lake) -> bool:
        rows = lake.visible()
        view = await asking.view(lake, lake.take())
        sql, expected = lake.chance.choice(questions(lake.chance))
        assert asking.ask(sql, view) == expected(rows), sql
        assert asking.ask(GROUPED[0], view) == GROUPED[1](rows)
        return bool(rows)

    each_of(story)
    asking.close()


cells = st.fixed_dictionaries(
    {"n": st.none() | st.integers(-(1 << 53), 1 << 53), "text": st.none() | st.text(st.characters(codec="utf-8"))}
)
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
ABOUT = About(query="q", engine="duckdb", reason="It is small.", versions={"t": 1}, columns=columns_of(SCHEMA))


def written(form: Form, batches: list[pa.RecordBatch]) -> bytes:
    writer = writer_of(form, SCHEMA, ABOUT)
    pieces = [writer.begin(), *(writer.rows(part) for batch in batches for part in writer.parts(batch)), writer.end()]
    return b"".join(pieces)


@given(st.lists(st.lists(cells, max_size=4), max_size=3))
def test_results_can_be_read_in_every_form(answer: list[list[dict[str, Any]]]) -> None:
    """17: what a query answered is what its caller reads, as JSON, lines of JSON, Arrow, Parquet and CSV."""
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in answer]
    rows = [row for part in answer for row in part]
    assert json.loads(written(Form.JSON, batches))["rows"] == [[row["n"], row["text"]] for row in rows]
    assert [json.loads(line) for line in written(Form.NDJSON, batches).split(b"\n") if line] == rows
    assert pa.ipc.open_stream(written(Form.ARROW, batches)).read_all().to_pylist() == rows
    assert parquet.read_table(io.BytesIO(written(Form.PARQUET, batches))).to_pylist() == rows
    found = list(csv.reader(io.StringIO(written(Form.CSV, batches).decode(), newline="")))
    assert len(found) == len(rows) + 1 and found[0] == ["n", "text"]
    assert [line[0] for line in found[1:]] == ["" if row["n"] is None else str(row["n"]) for row in rows]
