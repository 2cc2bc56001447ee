"""Segments: the schema that all engines read, and records that come back byte for byte."""

import asyncio
import io
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.client.records import Record, decode_batches
from headwater.errors import Damaged
from headwater.log.segment import decode as segment_decode
from headwater.log.segment.encode import compile_encoder
from headwater.log.segment.read import SegmentReader, footer_bytes, footer_checksum, open_segment
from headwater.log.segment.schema import segment_schema
from headwater.log.segment.write import SegmentFacts, SegmentWriter, Sizes, compile_kernels, decode_runs, read_pieces
from headwater.state.commands.tables import KEY_COLUMN, Bounds
from tests.support.batches import NO_PRODUCER, Rec, batch
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("T2", "T3")

OPENED_LIMIT = 64 << 20
LAST_MS = 253_402_300_799_999
SCHEMA = """\
required group field_id=-1 schema {
  required int32 field_id=1 partition;
  required int64 field_id=2 offset;
  required int64 field_id=3 timestamp_ms;
  optional int64 field_id=4 timestamp (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds));
  optional binary field_id=5 key;
  optional binary field_id=6 value;
  optional group field_id=7 headers (List) {
    repeated group field_id=-1 list {
      required group field_id=13 element {
        required binary field_id=14 key (String);
        optional binary field_id=15 value;
      }
    }
  }
  optional binary field_id=8 headers_raw;
  required int32 field_id=9 attributes;
  required int64 field_id=10 producer_id;
  required int32 field_id=11 producer_epoch;
  required int32 field_id=12 sequence;
}
"""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    compile_kernels()
    compile_encoder()


def run_of(batches: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(one)) + one for one in batches)


def segment_of(parts: dict[int, list[pa.RecordBatch]]) -> tuple[bytes, SegmentFacts]:
    out = io.BytesIO()
    writer = SegmentWriter(out)
    for partition, pieces in parts.items():
        for piece in pieces:
            writer.add(partition, piece)
        writer.end_part()
    facts = writer.close()
    return out.getvalue(), facts


def rows_of(run: bytes, start: int = 0, first: int = 0, append_ms: int = -1) -> list[pa.RecordBatch]:
    pieces = list(decode_runs(0, [(run, start, append_ms)], first, OPENED_LIMIT))
    for piece in pieces:
        piece.validate(full=True)
        assert piece.schema.equals(segment_schema(), check_metadata=True)
    return pieces


def served(data: bytes, partition: int, offset: int, end: int, max_bytes: int, batch_bytes: int) -> Iterator[Record]:
    """The records of a partition, fetched as a consumer does."""
    reader = SegmentReader(data[-footer_bytes(data[-8:]) :])
    while (group := reader.find(partition, offset)) is not None:
        facts = reader.groups[group]
        rows = reader.decode(group, data[facts.position : facts.position + facts.length])
        last = group + 1 == len(reader.groups) or reader.groups[group + 1].partition != partition
        group_end = end if last else reader.groups[group + 1].first_offset
        while offset < group_end:
            encoded = rows.encode(offset, group_end, max_bytes, True, batch_bytes)
            batches = list(decode_batches(encoded.records))
            assert sum(one.next_offset > one.base_offset for one in batches) == len(batches)
            for one in batches:
                yield from (record for record in one.records if record.offset >= offset)
            assert not batches or batches[-1].next_offset == encoded.next_offset
            assert encoded.next_offset > offset
            offset = encoded.next_offset


blobs = st.none() | st.binary(max_size=12) | st.integers(60, 300).map(lambda n: b"v" * n)
names = st.text(max_size=5).map(str.encode) | st.binary(max_size=5)
stamps = st.integers(-1, 5) | st.sampled_from([-(1 << 61), 1 << 61, LAST_MS, LAST_MS + 1, 1_700_000_000_000])
recs = st.builds(Rec, blobs, blobs, stamps, st.lists(st.tuples(names, blobs), max_size=3).map(tuple))
kinds = st.sampled_from(["records", "records", "records", "control", "append"])
batches = st.lists(
    st.tuples(kinds, st.lists(recs, min_size=1, max_size=6), st.integers(0, 4), st.booleans()), min_size=1, max_size=6
)


@promise("T3")
@settings(deadline=None, max_examples=examples(150))
@given(
    made=batches,
    start=st.integers(0, 1 << 40),
    skipped=st.integers(0, 8),
    split=st.integers(0, 6),
    max_bytes=st.sampled_from([1, 200, 1_000, 1 << 20]),
    batch_bytes=st.sampled_from([100, 400, 1 << 20]),
)
def test_records_come_back_byte_for_byte(
    made: list[tuple[str, list[Rec], int, bool]],
    start: int,
    skipped: int,
    split: int,
    max_bytes: int,
    batch_bytes: int,
) -> None:
    """All codecs, nulls, headers, timestamps and gaps, over runs that are cut anywhere between batches."""
    wanted: list[tuple[int, Rec, int]] = []
    encoded: list[bytes] = []
    starts: list[int] = []
    offset = start
    for kind, records, codec, idempotent in made:
        starts.append(offset)
        attributes = {"control": 0x20, "append": 0x08, "records": 0}[kind]
        producer = (5, 1, (1 << 31) - 2) if idempotent else NO_PRODUCER
        newest = 77 if kind == "append" else None
        encoded.append(batch(records, codec=codec, attributes=attributes, producer=producer, max_timestamp=newest))
        if kind != "control":
            wanted += [(offset + i, r, 77 if kind == "append" else r.timestamp) for i, r in enumerate(records)]
        offset += len(records)
    first = start + skipped
    wanted = [one for one in wanted if one[0] >= first]
    split = min(split, len(encoded) - 1)
    runs = [(run_of(encoded[:split]), start, -1), (run_of(encoded[split:]), starts[split], -1)]
    pieces = list(decode_runs(3, runs, first, OPENED_LIMIT))
    rows = [row for piece in pieces for row in piece.to_pylist()]
    assert [(row["offset"], row["timestamp_ms"], row["key"], row["value"]) for row in rows] == [
        (at, time, rec.key, rec.value) for at, rec, time in wanted
    ]
    for row, (_, rec, time) in zip(rows, wanted, strict=True):
        check_row(row, rec, time)
    data, facts = segment_of({3: pieces})
    assert facts.rows == len(wanted)
    found = list(served(data, 3, first, offset, max_bytes, batch_bytes))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found] == [
        (at, time, rec.key, rec.value, tuple((name.decode(errors="replace"), v) for name, v in rec.headers))
        for at, rec, time in wanted
    ]


def check_row(row: dict[str, object], rec: Rec, time: int) -> None:
    assert row["partition"] == 3
    assert (row["timestamp"] is None) == (not 0 <= time <= LAST_MS)
    try:
        headers = [{"key": name.decode(), "value": content} for name, content in rec.headers]
    except UnicodeDecodeError:
        assert row["headers"] is None
        assert isinstance(row["headers_raw"], bytes)
    else:
        assert row["headers"] == headers
        assert row["headers_raw"] is None


@promise("T3")
def test_raw_headers_are_kept_to_the_byte() -> None:
    """Header names that are not UTF-8 come back as they were sent."""
    headers = ((b"\xff\xfe", b"a"), (b"ok", None), (b"\xed\xa0\x80", b""))
    (piece,) = rows_of(run_of([batch([Rec(b"x", headers=headers)])]))
    data, _ = segment_of({0: [piece]})
    reader = SegmentReader(data)
    facts = reader.groups[0]
    rows = reader.decode(0, data[facts.position : facts.position + facts.length])
    records = bytes(rows.encode(0, 1, 1 << 20, True).records)
    raw = piece.column("headers_raw")[0].as_py()
    assert records.endswith(raw)
    assert raw == b"\x06" + b"\x04\xff\xfe\x02a" + b"\x04ok\x01" + b"\x06\xed\xa0\x80\x00"


@promise("T3")
@settings(deadline=None, max_examples=examples(300))
@given(name=st.binary(max_size=6) | st.text(max_size=4).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_utf8_as_python_judges_it(name: bytes) -> None:
    (piece,) = rows_of(run_of([batch([Rec(b"x", headers=((name, None),))])]))
    try:
        wanted = [{"key": name.decode(), "value": None}]
    except UnicodeDecodeError:
        assert piece.column("headers")[0].as_py() is None
    else:
        assert piece.column("headers")[0].as_py() == wanted


@promise("T2")
def test_schema_and_settings_of_the_file() -> None:
    """Names, types, nulls and field ids; statistics only where they prune; no encodings that Spark cannot read."""
    data, _ = segment_of({0: rows_of(run_of([batch([Rec(b"v", b"k", headers=((b"h", b"1"),))])]))})
    file = parquet.ParquetFile(pa.BufferReader(data))
    odd = ", is_from_converted_type=false, force_set_converted_type=false"
    assert str(file.schema).split("\n", 1)[1].replace(odd, "") == SCHEMA
    assert b"ARROW:schema" not in (file.metadata.metadata or {})
    group = file.metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    bounded = [c.path_in_schema for c in chunks if c.is_stats_set]
    assert bounded == ["partition", "offset", "timestamp_ms", "timestamp", "key"]
    for chunk in chunks:
        assert chunk.compression == "ZSTD"
        assert set(chunk.encodings) <= {"PLAIN", "RLE", "RLE_DICTIONARY"}


@promise("T2")
def test_other_engines_see_the_same(tmp_path: Path) -> None:
    """DuckDB and pyarrow agree on types, nulls, empty values and duplicate headers."""
    made = [
        Rec(b"", None, 0, ((b"a", b"1"), (b"a", None))),
        Rec(None, b"", -1),
        Rec(b"v", b"k", LAST_MS + 1, ((b"\xff", b"x"),)),
    ]
    data, _ = segment_of({0: rows_of(run_of([batch(made, producer=(9, 2, 4))]), 10)})
    path = tmp_path / "segment.parquet"
    path.write_bytes(data)
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        query = f"select * replace (epoch_us(timestamp) as timestamp) from read_parquet('{path}')"
        found = connection.execute(query).fetchall()
        kinds = dict(row[:2] for row in connection.execute(f"describe from read_parquet('{path}')").fetchall())
    assert found == [
        (0, 10, 0, 0, None, b"", [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, 0, 9, 2, 4),
        (0, 11, -1, None, b"", None, [], None, 0, 9, 2, 5),
        (0, 12, LAST_MS + 1, None, b"k", b"v", None, b"\x02\x02\xff\x02x", 0, 9, 2, 6),
    ]
    assert kinds["timestamp"] == "TIMESTAMP WITH TIME ZONE"
    assert kinds["headers"] == 'STRUCT("key" VARCHAR, "value" BLOB)[]'
    table = parquet.read_table(path)
    assert table.schema.equals(segment_schema())
    assert table.column("value").to_pylist() == [b"", None, b"v"]


@promise("T3")
def test_log_append_time() -> None:
    """Every record gets the time and the bit."""
    (piece,) = rows_of(run_of([batch([Rec(b"a", timestamp=1), Rec(b"b", timestamp=2)], codec=4)]), append_ms=500)
    assert piece.column("timestamp_ms").to_pylist() == [500, 500]
    assert piece.column("attributes").to_pylist() == [8, 8]


@promise("T2")
def test_facts_and_parts() -> None:
    """What the ledger learns of a file."""
    first = list(decode_runs(1, [(run_of([batch([Rec(b"a", timestamp=-1), Rec(b"b", timestamp=9)])]), 100, -1)], 0, 0))
    second = list(decode_runs(4, [(run_of([batch([Rec(b"c", timestamp=3)])]), 7, -1)], 0, 0))
    out = io.BytesIO()
    writer = SegmentWriter(out)
    writer.add(1, first[0])
    assert writer.end_part() == (0, 1)
    assert writer.end_part() == (1, 0)
    writer.add(4, second[0])
    assert writer.end_part() == (1, 1)
    facts = writer.close()
    keys = Bounds(KEY_COLUMN, 3, None, None)
    assert facts == SegmentFacts(3, 2, len(out.getvalue()), 1, 4, 7, 101, -1, 9, 1, facts.digest, (keys,))
    pieces = read_pieces(out.getvalue(), footer_checksum(out.getvalue()))
    assert [(piece.partition, piece.first_offset) for piece in pieces] == [(1, 100), (4, 7)]
    assert list(pieces[0].batches()) == first


@promise("T3")
def test_columns_begin_as_large_as_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are carried from part to part spare growing, and change no row, larger or smaller."""
    grown = []
    grow = segment_decode._Columns.grow
    monkeypatch.setattr(segment_decode._Columns, "grow", lambda columns: (grown.append(1), grow(columns))[1])
    sizes = Sizes()
    parts = [[Rec(b"v" * 300, key=b"k" * 40)] * 3_000, [Rec(b"w" * 300, key=b"l" * 40)] * 3_000, [Rec(b"x")] * 2]
    parts.append([Rec(b"y" * 900)] * 6_000)
    counts = []
    for recs in parts:
        run = run_of([batch(recs)])
        carried = list(decode_runs(0, [(run, 0, -1)], 0, OPENED_LIMIT, sizes))
        counts.append(len(grown))
        assert carried == rows_of(run)
        grown.clear()
    assert counts[0] > 0 and counts[3] > 0
    assert counts[1:3] == [0, 0]


@promise("T2")
def test_a_segment_without_rows() -> None:
    data, facts = segment_of({0: rows_of(run_of([batch([Rec(b"x")], attributes=0x20)]))})
    assert facts == SegmentFacts(0, 0, len(data), -1, -1, -1, -1, -1, -1, 0, 0, ())
    assert read_pieces(data, footer_checksum(data)) == []


@promise("T2")
def test_rows_only_rise() -> None:
    """A segment is sorted by partition and offset."""
    (piece,) = rows_of(run_of([batch([Rec(b"x"), Rec(b"y")])]), 5)
    writer = SegmentWriter(io.BytesIO())
    writer.add(2, piece)
    with pytest.raises(Damaged):
        writer.add(2, piece)
    with pytest.raises(Damaged):
        writer.add(1, piece)


@promise("T5")
def test_small_row_groups_become_larger_ones() -> None:
    """Merging keeps every row and closes row groups by size."""
    run = run_of([batch([Rec(b"v" * 1_000)] * 500)])
    sources = [segment_of({0: rows_of(run, 500 * i)})[0] for i in range(40)]
    out = io.BytesIO()
    writer = SegmentWriter(out)
    for source in sources:
        for piece in read_pieces(source, footer_checksum(source)):
            for rows in piece.batches():
                writer.add(piece.partition, rows)
    assert writer.end_part() == (0, 2)
    writer.close()
    table = parquet.read_table(pa.BufferReader(out.getvalue()))
    assert table.column("offset").to_pylist() == list(range(20_000))


@promise("T3")
def test_ranged_reads() -> None:
    """A footer and a row group take one read each, and a long footer one more."""
    run = run_of([batch([Rec(b"v" * 100)] * 50)])
    parts = {p: list(decode_runs(p, [(run, 0, -1)], 0, 0)) for p in range(200)}
    data, _ = segment_of(parts)
    reads = []

    async def read(start: int, length: int) -> bytes:
        reads.append(length)
        return data[start : start + length]

    async def scenario() -> None:
        reader = await open_segment(len(data), read, footer_checksum(data))
        assert len(reads) == 2
        assert reader.find(200, 0) is None
        assert reader.find(17, 50) is None
        group = reader.find(17, 49)
        assert group == 17
        rows = await reader.load(group, read)
        assert len(rows) == 50
        assert len(reads) == 3
        assert 5_000 < rows.size_bytes < 10_000
        assert reads[-1] < reader.groups[group].length + 1
        with pytest.raises(Damaged):
            reader.decode(group, b"short")

    asyncio.run(scenario())


@promise("T1")
def test_memory_of_a_batch_that_opens_to_much() -> None:
    """Pieces bound the memory, whatever a batch opens to."""
    big = run_of([batch([Rec(bytes(1 << 16))] * 1_000, codec=4)])
    peak = settled_peak(big, 1_000, OPENED_LIMIT + (4 << 20))
    assert peak < 256 << 20


@promise("T1")
def test_memory_of_many_small_batches() -> None:
    one = batch([Rec(b"v" * 100)])
    assert settled_peak(run_of([one] * 100_000), 100_000, OPENED_LIMIT) < 256 << 20


def settled_peak(run: bytes, rows: int, limit: int) -> int:
    """The most memory that Python, numpy and Arrow held while a run was settled."""
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    arrow = 0
    out = io.BytesIO()
    writer = SegmentWriter(out)
    tracemalloc.start()
    for piece in decode_runs(0, [(run, 0, -1)], 0, limit):
        assert piece.nbytes < 17 << 20
        writer.add(0, piece)
        arrow = max(arrow, pool.bytes_allocated() - before)
    facts = writer.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts.rows == rows
    return peak + arrow


@promise("T3")
def test_one_record_larger_than_a_piece() -> None:
    """It is a row group of its own."""
    made = [Rec(b"a"), Rec(np.random.default_rng(1).bytes(20 << 20)), Rec(b"b")]
    pieces = rows_of(run_of([batch(made)]))
    assert [piece.num_rows for piece in pieces] == [1, 1, 1]
    data, facts = segment_of({0: pieces})
    assert facts.groups == 3
    assert [r.value for r in served(data, 0, 0, 3, 1_000, 1_000)] == [r.value for r in made]
