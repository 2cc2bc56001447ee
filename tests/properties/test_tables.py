"""Properties 1, 2, 4, 5, 8, 9, 26 and 28: what holds of every table, whatever its history.

Files and their places, who says which of them are shown, versions, snapshots, and what is merged.
"""

from __future__ import annotations

import re
import uuid

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from harness.virtual import run
from headwater.lake.merging import mergeable
from headwater.lake.planning import Limits, table_root
from headwater.log.segment.schema import segment_schema
from headwater.objects.store import checked_path
from headwater.state.commands.columns import FillFiles, Replace, SettleFiles
from headwater.state.commands.tables import Fill, Merge, Release, Retire, Settle, SettleRuns
from headwater.state.records import decode
from headwater.state.results import Done
from headwater.state.streams.state import StreamsState
from headwater.types import Position
from tests.properties.lakes import lakes, tables
from tests.unit.query.test_snapshot import ONE

PROMISES = ("T1", "T2")

PATH = re.compile(r"tables/[a-zA-Z0-9._-]{1,249}-[0-9a-f-]{36}/_data/\d+-\d+-[0-9a-f]{32}\.parquet")
"""Topic and id, then the epoch and the job of the writer and a number of the attempt's own."""
CHANGES = (Settle, SettleRuns, SettleFiles, Merge, Replace, Retire, Fill, FillFiles)
"""Commands that change a table."""
names = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


def test_files_are_parquet() -> None:
    """1: each file that the ledger names is a Parquet file below its table, and has the facts that the ledger has."""
    for lake, table in tables():
        for file in table.files.values():
            data = lake.store.objects[f"{table.root}/{file.name}"]
            found = parquet.ParquetFile(pa.BufferReader(data))
            assert (len(data), found.metadata.num_rows, found.num_row_groups) == (file.size, file.rows, file.groups)
            assert found.schema_arrow.equals(segment_schema())
            offsets = found.read(["offset"]).column("offset").to_pylist()
            assert (min(offsets), max(offsets)) == (file.first_offset, file.last_offset)


def test_paths_of_files() -> None:
    """2: committed or not, each file has a path of one form, which begins with the path of its table."""
    for lake in lakes():
        for path in lake.files():
            assert PATH.fullmatch(path), path
            assert checked_path(path) == path


@given(names, names, st.uuids(), st.uuids())
def test_each_topic_has_a_path_of_its_own(name: str, other: str, topic: uuid.UUID, another: uuid.UUID) -> None:
    """2: a topic that is deleted and created again gets another path, and no table is inside another one."""
    root, beside = table_root(name, topic), table_root(other, another)
    assert PATH.fullmatch(f"{root}/_data/1-2-{topic.hex}.parquet")
    assert (root == beside) == ((name, topic) == (other, another))
    assert not f"{beside}/".startswith(f"{root}/") or root == beside


def test_the_ledger_alone_says_what_is_shown() -> None:
    """4: a version shows what the journal added and did not remove, whatever else there is in the store."""
    for lake, table in tables():
        for path in lake.files()[:3]:
            stranger = lake.store.objects.setdefault(f"{path.removesuffix('.parquet')}0.parquet", b"no Parquet")
            assert stranger == b"no Parquet"
        live: set[int] = set()
        for entry in table.journal:
            assert live >= set(entry.removed) and not live & set(entry.added)
            live = live - set(entry.removed) | set(entry.added)
            shown = {file.path for file in lake.take(version=entry.sequence).files}
            assert shown == {f"{table.root}/{table.files[number].name}" for number in live}
        assert run(lake.rows()) == lake.visible()
        for path in [path for path, data in lake.store.objects.items() if data == b"no Parquet"]:
            del lake.store.objects[path]


def test_each_commit_makes_one_version() -> None:
    """5: a commit makes one version and is told its number; what is refused, or does not change a table, makes none."""
    made = 0
    for lake in lakes():
        for commit in lake.noted.commits:
            if isinstance(commit.command, CHANGES) and isinstance(commit.result, Done):
                assert commit.after == commit.before + 1 == commit.result.value
                made += 1
            elif not isinstance(commit.command, Release):
                assert commit.after == commit.before
        if lake.table is not None:
            assert [entry.sequence for entry in lake.table.journal] == list(range(1, lake.version + 1))
    assert made >= 250


def test_a_snapshot_stays_as_it_was() -> None:
    """8: a version shows the rows that it showed when it was new, and so does a snapshot that was taken earlier."""
    later = 0
    for lake in lakes():
        [early] = lake.early
        assert sorted(run(lake.scanned(early.snapshot))) == early.rows
        assert run(lake.rows(version=early.snapshot.version)) == early.settled
        later += early.snapshot.version < lake.version
    assert later > 50, "most tables have gone on since"


def test_records_applied_again_give_the_same_files() -> None:
    """9: who applies the records of a ledger has the same versions with the same files, however often."""
    for lake, table in tables():
        images = []
        for _ in range(2):
            state = StreamsState(ONE)
            for position, record in enumerate(lake.scribe.records, 1):
                state.apply(Position(position), decode(record))
            images.append(state.image())
            again = state.tables[table.topic]
            assert again.journal == table.journal
            assert {number: file.name for number, file in again.files.items()} == {
                number: file.name for number, file in table.files.items()
            }
        assert images[0] == images[1] == lake.state.image()


def test_small_files_are_candidates() -> None:
    """26: only live files below the size are merged, enough of them at once, and none twice."""
    found = 0
    for lake, table in tables():
        sizes = sorted(file.size for file in table.live()) or [1]
        limits = Limits(
            merge_files=lake.chance.randint(2, 3),
            small_file_bytes=lake.chance.choice(sizes) + 1,
            file_bytes=lake.chance.choice((3 * sizes[-1], 1 << 30)),
        )
        runs = list(mergeable(table, list(lake.state.streams.values()), limits))
        chosen = [file for files in runs for file in files]
        assert len({file.number for file in chosen}) == len(chosen)
        assert all(not file.removed and file.references and file.size < limits.small_file_bytes for file in chosen)
        assert all(len(files) >= limits.merge_files for files in runs)
        assert all(sum(file.size for file in files) <= limits.file_bytes for files in runs)
        found += bool(runs)
    assert found >= 10


def test_a_merge_is_one_step() -> None:
    """28: a version shows the old files or the new one. None shows both, or neither."""
    merges = 0
    for lake, table in tables():
        for entry in table.journal:
            if not entry.replaces:
                continue
            before = {file.path for file in lake.take(version=entry.sequence - 1).files}
            after = {file.path for file in lake.take(version=entry.sequence).files}
            old, new = (
                {f"{table.root}/{table.files[number].name}" for number in numbers}
                for numbers in (entry.removed, entry.added)
            )
            assert old and new and before - after == old and after - before == new
            merges += 1
    assert merges >= 30
