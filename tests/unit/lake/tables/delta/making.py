"""Topic tables for tests of the Delta follower, and a reader of Delta logs that shares no code with it."""

import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence

import pyarrow.parquet as pq

from headwater.lake.tables.follower import Batch, TableRef
from headwater.state.streams.tables import DataFile, JournalEntry, TopicTable

TOPIC = uuid.UUID("5d1c4e9a-3f0e-4b36-9f55-0d2c6a1b7e88")
ROOT = f"tables/orders-{TOPIC}"
REF = TableRef(TOPIC, "orders", ROOT)
APP = f"headwater-{TOPIC}"
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


def segment(number: int, rows: int = 10, **facts: int) -> DataFile:
    """A segment's facts; the file itself need not exist."""
    base = {
        "size": 1000 + number,
        "groups": 1,
        "first_partition": 0,
        "last_partition": 0,
        "first_offset": number * 100,
        "last_offset": number * 100 + rows - 1,
        "min_timestamp": START_MS,
        "max_timestamp": START_MS + rows - 1,
        "timestamp_nulls": 0,
        "footer_checksum": 0,
        "added": 0,
        "removed": 0,
        "removed_ms": 0,
        "references": 0,
        "created_ms": 0,
        "ended_ms": 0,
        "arrived_ms": 0,
    } | facts
    return DataFile(number=number, name=f"data/{number:08d}.parquet", rows=rows, **base)


class Journal:
    """A table's journal that a test writes, and what the table held at every sequence."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.start_ms = start_ms
        self.table = TopicTable(TOPIC, ROOT)
        self.shown: dict[int, frozenset[str]] = {0: frozenset()}
        self.entries: list[JournalEntry] = []
        self._next = 1

    def enter(self, added: Iterable[DataFile], removed: Iterable[DataFile] = (), *, replaces: bool = False) -> None:
        """One entry, a second after the last."""
        sequence = self.table.last_sequence + 1
        gone = [file.number for file in removed]
        ms = self.start_ms + sequence * 1000
        self.entries.append(self.table.record(ms, ms, added, gone, [], replaces=replaces))
        self.shown[sequence] = frozenset(file.name for file in self.table.live())

    def settle(self, count: int = 1) -> list[DataFile]:
        """New rows in new files."""
        files = [self.fresh() for _ in range(count)]
        self.enter(files)
        return files

    def merge(self, files: Sequence[DataFile]) -> DataFile:
        """The same rows in one file."""
        merged = self.fresh()
        self.enter([merged], files, replaces=True)
        return merged

    def delete(self, files: Sequence[DataFile]) -> None:
        """Rows go."""
        self.enter([], files)

    def fresh(self) -> DataFile:
        self._next += 1
        return segment(self._next - 1)

    def batch(self, after: int, upto: int | None = None, *, whole: bool = False) -> Batch:
        """What a follower at `after` is given."""
        upto = self.table.last_sequence if upto is None else upto
        entries = [] if whole else [entry for entry in self.entries if after < entry.sequence <= upto]
        files = self.table.files
        named = {number: files[number] for entry in entries for number in (*entry.added, *entry.removed)}
        live = [f for f in files.values() if f.added <= upto and (not f.removed or f.removed > upto)]
        now_ms = self.start_ms + upto * 1000
        return Batch(after, upto, entries, named, live, now_ms, now_ms)


# --- a reader ----------------------------------------------------------------------------------------


def log_files(objects: Mapping[str, bytes], root: str = ROOT) -> dict[str, bytes]:
    """A log's directory."""
    prefix = f"{root}/_delta_log/"
    return {path.removeprefix(prefix): data for path, data in objects.items() if path.startswith(prefix)}


def lines(data: bytes) -> list[dict[str, dict[str, object]]]:
    return [json.loads(line) for line in data.splitlines()]


def versions(objects: Mapping[str, bytes]) -> list[int]:
    return sorted(int(name[:20]) for name in log_files(objects) if name[20:] == ".json")


def commit(objects: Mapping[str, bytes], version: int) -> dict[str, list[dict[str, object]]]:
    """One version's actions by kind."""
    found: dict[str, list[dict[str, object]]] = {}
    for line in lines(log_files(objects)[f"{version:020d}.json"]):
        [(kind, action)] = line.items()
        found.setdefault(kind, []).append(action)
    return found


def shown(objects: Mapping[str, bytes], version: int) -> tuple[int, frozenset[str]]:
    """The journal sequence and the files of a version. Fails if it cannot be read."""
    files = log_files(objects)
    base = max((int(n[:20]) for n in files if n.endswith(".checkpoint.parquet") and int(n[:20]) <= version), default=-1)
    actions: list[dict[str, object]] = []
    if base >= 0:
        actions += pq.read_table(io.BytesIO(files[f"{base:020d}.checkpoint.parquet"])).to_pylist()
    for number in range(base + 1, version + 1):
        actions += lines(files[f"{number:020d}.json"])
    sequence, live = 0, set()
    for action in actions:
        if action.get("txn") and action["txn"]["appId"] == APP:  # type: ignore[index]
            sequence = action["txn"]["version"]  # type: ignore[index]
        if action.get("remove"):
            live.discard(action["remove"]["path"])  # type: ignore[index]
        if action.get("add"):
            assert action["add"]["path"] not in live, "a file is added twice"  # type: ignore[index]
            live.add(action["add"]["path"])  # type: ignore[index]
    assert any(a.get("protocol") for a in actions)
    assert any(a.get("metaData") for a in actions)
    return sequence, frozenset(live)


def newest(objects: Mapping[str, bytes]) -> tuple[int, frozenset[str]]:
    """The newest version; sequence 0 and no files if there is no table."""
    found = versions(objects)
    return shown(objects, found[-1]) if found else (0, frozenset())
