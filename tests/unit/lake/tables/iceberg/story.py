"""A topic table as the journal tells it, with small real segments, and a follower that repeats it."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.lake.tables.follower import Batch, Standing, TableFollower, TableRef
from headwater.objects import ObjectStore
from headwater.state.streams.tables import DataFile, Follower, TopicTable

TOPIC = uuid.UUID("11111111-2222-3333-4444-555555555555")
NAME = "orders"
ROOT = f"tables/{NAME}-{TOPIC}"
REF = TableRef(TOPIC, NAME, ROOT)
START_MS = 1_700_000_000_000


def _field(number: int, name: str, kind: pa.DataType, *, required: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not required, metadata={"PARQUET:field_id": str(number)})


HEADER = pa.struct([_field(14, "key", pa.string(), required=True), _field(15, "value", pa.binary())])
SCHEMA = pa.schema(
    [
        _field(1, "partition", pa.int32(), required=True),
        _field(2, "offset", pa.int64(), required=True),
        _field(3, "timestamp_ms", pa.int64(), required=True),
        _field(4, "timestamp", pa.timestamp("us", tz="UTC")),
        _field(5, "key", pa.binary()),
        _field(6, "value", pa.binary()),
        _field(7, "headers", pa.list_(_field(13, "element", HEADER, required=True))),
        _field(8, "headers_raw", pa.binary()),
        _field(9, "attributes", pa.int32(), required=True),
        _field(10, "producer_id", pa.int64(), required=True),
        _field(11, "producer_epoch", pa.int32(), required=True),
        _field(12, "sequence", pa.int32(), required=True),
    ]
)


def rows(partition: int, first: int, count: int) -> pa.Table:
    """Records as a segment holds them."""
    return pa.Table.from_pylist(
        [
            {
                "partition": partition,
                "offset": offset,
                "timestamp_ms": START_MS + offset,
                "timestamp": (START_MS + offset) * 1000,
                "key": None if offset % 3 == 0 else b"k%d" % offset,
                "value": b"v%d" % offset,
                "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}] if offset % 2 else None,
                "headers_raw": None,
                "attributes": 0,
                "producer_id": -1,
                "producer_epoch": -1,
                "sequence": -1,
            }
            for offset in range(first, first + count)
        ],
        schema=SCHEMA,
    )


class Story:
    """A journal that settles, merges and deletes, and where its followers stand. Like the ledger, it moves a
    follower's pointer only from where the follower began."""

    def __init__(self, base: Path | None = None) -> None:
        self.table = TopicTable(TOPIC, ROOT)
        self.base = base
        """Where real segments are written, if they are."""
        self.numbers = 0
        self.ends: dict[int, int] = {}
        self.ms = START_MS
        self.parts: dict[int, list[tuple[int, int, int]]] = {}
        """Per file: partition, first offset and number of rows of what is in it."""

    def settle(self, partition: int = 0, count: int = 3, files: int = 1) -> list[int]:
        """More records, in so many new files."""
        new = []
        for _ in range(files):
            first = self.ends.get(partition, 0)
            self.ends[partition] = first + count
            new.append(self._file([(partition, first, count)]))
        return self._enter(new, (), [(partition, self.ends[partition])], replaces=False)

    def merge(self, *numbers: int) -> list[int]:
        """Files become one."""
        parts = [self.parts[number] for number in numbers]
        return self._enter([self._file([p for found in parts for p in found])], numbers, (), replaces=True)

    def delete(self, *numbers: int) -> None:
        """Files leave with their rows."""
        self._enter([], numbers, (), replaces=False)

    def batch(self, after: int, upto: int | None = None, *, exact: bool = False) -> Batch:
        """What a follower that is at `after` is told."""
        upto = self.table.last_sequence if upto is None else upto
        entries = [e for e in self.table.journal if after < e.sequence <= upto]
        named = {n for e in entries for n in (*e.added, *e.removed)}
        live = [f for f in self.table.files.values() if f.added <= upto and (not f.removed or f.removed > upto)]
        return Batch(
            after, upto, [] if exact else entries, {n: self.table.files[n] for n in named}, live, self.ms, self.ms
        )

    def names(self, upto: int | None = None) -> set[str]:
        """The files that the table shows at a sequence."""
        return {file.name for file in self.batch(0, upto).live}

    async def follow(self, follower: TableFollower, *, exact: bool = False, upto: int | None = None) -> Standing:
        """Commit everything, and move the pointer."""
        known = self.known(follower)
        standing = await follower.commit(REF, known.location, self.batch(known.cursor, upto, exact=exact))
        self.enter(follower, known, standing)
        return standing

    def known(self, follower: TableFollower) -> Follower:
        return self.table.followers.get(follower.name, Follower(0, 0, "", 0, ()))

    def enter(self, follower: TableFollower, known: Follower, standing: Standing) -> None:
        """The ledger's compare-and-set."""
        now = self.known(follower)
        assert known.location == now.location
        assert now.cursor <= standing.cursor <= self.table.last_sequence
        assert now.oldest <= standing.oldest <= standing.cursor
        self.table.followed(follower.name, Follower(standing.cursor, standing.oldest, standing.location, 0, ()))

    def _file(self, parts: list[tuple[int, int, int]]) -> DataFile:
        self.numbers += 1
        self.parts[self.numbers] = parts
        name = f"data/{self.numbers}.parquet"
        size = 1_000 + self.numbers
        if self.base is not None:
            path = self.base / ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.concat_tables([rows(*part) for part in sorted(parts)]), path)
            size = path.stat().st_size
        low, high = min(p[1] for p in parts), max(p[1] + p[2] - 1 for p in parts)
        return DataFile(
            self.numbers,
            name,
            size,
            sum(p[2] for p in parts),
            1,
            min(p[0] for p in parts),
            max(p[0] for p in parts),
            low,
            high,
            START_MS + low,
            START_MS + high,
            timestamp_nulls=0,
            footer_checksum=0,
            added=0,
            removed=0,
            removed_ms=0,
            references=1,
            created_ms=0,
            ended_ms=0,
            arrived_ms=0,
        )

    def _enter(
        self, new: list[DataFile], removed: Sequence[int], ends: Sequence[tuple[int, int]], *, replaces: bool
    ) -> list[int]:
        self.ms += 1_000
        entry = self.table.record(self.ms, self.ms, new, removed, ends, replaces=replaces)
        return list(entry.added)


async def objects(store: ObjectStore, root: str = ROOT) -> dict[str, int]:
    """Metadata objects of the table and their sizes."""
    return {info.path: info.size async for info in store.scan(f"{root}/_iceberg/")}
