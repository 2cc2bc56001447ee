"""`headwater table` on a cluster's own data, with a compactor at work that needs no Spark."""

import asyncio
import contextlib
import io
import json
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from harness.patience import eventually
from headwater.app.node import Node
from headwater.cli import common, errors
from headwater.cli import table as table_commands
from headwater.clock import SystemChance, SystemClock
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.spark.executor import perform
from headwater.lake.tables import make_followers
from headwater.lake.tasks import Task, TaskFacts
from headwater.ledger import open_ledger
from headwater.objects import open_store
from headwater.replica.domains import Domains
from headwater.settings.settings import Lake, Settings
from headwater.state.commands.cluster import Listener
from headwater.types import STREAM_DOMAINS
from tests.support.batches import Rec, batch
from tests.support.promise import promise
from tests.support.transactions import PLAIN, ObjectWriter, submitting
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T5", "T15")

LAKE = Lake(interval_ms=20, freshness_ms=1 << 40, merge_files=4, orphan_interval_ms=1 << 40, foreign_retry_ms=100)
FOREIGN = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
"""A file that another writer adds to a Delta table."""


class Cluster:
    """A broker without sockets and a compactor without Spark, in a thread of their own."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=str(data), lake=LAKE)
        self.other: Domains | None = None
        self.may_work = asyncio.Event()
        """Jobs wait for it."""
        self.may_work.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def start(self, *, compacts: bool = True) -> None:
        clock, chance = SystemClock(), SystemChance()
        self._ledger, self._store = open_ledger(self.settings.ledger_url), open_store(self.settings.objects_url)
        listeners = (Listener("PLAINTEXT", "localhost", 9092),)
        self.node = Node(self.settings, self._ledger, self._store, clock, chance, listeners=listeners)
        await self.node.start()
        self._compactor = Compactor(self.node.domains, self._run_job, LAKE, slots=2)
        followers = make_followers(self._store, LAKE)
        self._following = Following(self.node.domains, followers, self._compactor.lease, LAKE)
        if compacts:
            await self.compact()

    async def compact(self) -> None:
        self._compactor.start()
        self._following.start()

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        """In another thread, as the first job compiles for seconds, in which this process must show that it lives."""
        await self.may_work.wait()
        return await asyncio.to_thread(asyncio.run, self._perform(tasks))

    async def _perform(self, tasks: Sequence[Task]) -> list[TaskFacts]:
        store = open_store(self.settings.objects_url)
        try:
            return [await perform(store, task) for task in tasks]
        finally:
            await store.close()

    async def stop(self) -> None:
        if self.other is not None:
            await self.other.leave()
        await self._compactor.close()
        await self._following.close()
        await self.node.stop()
        await self._ledger.close()
        await self._store.close()

    async def object_writer(self) -> ObjectWriter:
        """A process beside the node that writes transactions."""
        self.other = Domains(self._ledger, self._store, SystemClock(), SystemChance())
        await self.other.follow()
        await self.other.join()
        replica = self.other[STREAM_DOMAINS[0]]
        return ObjectWriter(replica.epoch, submitting(replica), self._store, STREAM_DOMAINS[0])

    def close(self) -> None:
        self.do(self.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def produce(self, name: str, partition: int, *values: bytes) -> None:
        made = self.node.cluster.state.names[name]
        await sent(self.node, made.streams[partition], batch([Rec(value, key=b"\xff") for value in values]))


class Commands:
    """Runs `headwater table …` in this process."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
        self._app.callback()(lambda: None)
        table_commands.register(self._app)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = common.call(self._app, ["table", *arguments, "--data", self.cluster.settings.data])
            out.flush()
        return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]

    def ok(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))


@pytest.fixture(scope="module")
def headwater(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Six versions of one topic: five settles and one merge."""
    cluster = Cluster(tmp_path_factory.mktemp("tables") / "data")
    cluster.do(cluster.start())
    commands = Commands(cluster)
    try:
        cluster.do(topic(cluster.node, "orders", 2, retention_ms="-1"))
        cluster.do(topic(cluster.node, "empty", 1))
        for number in range(5):
            cluster.do(cluster.produce("orders", number % 2, b"%d-a" % number, b"%d-b" % number))
            commands.ok("settle", "orders", "--timeout", "60")
        yield commands
    finally:
        cluster.close()


@promise("T5")
def test_a_look_at_tables(headwater: Commands) -> None:
    assert {"empty", "orders"} <= {row["topic"] for row in headwater.json("list")}
    described = headwater.json("describe", "orders")
    assert (described["rows"], described["pending_records"]) == (10, 0)
    assert {f["name"] for f in described["followers"]} == {"iceberg", "delta"}
    assert sum(f["rows"] for f in headwater.json("files", "orders")) == 10
    assert "orders" in headwater.ok("list")
    assert "iceberg" in headwater.ok("describe", "orders")
    assert ".parquet" in headwater.ok("files", "orders")


@promise("T5")
def test_how_fresh_tables_are(headwater: Commands) -> None:
    """0 while all is settled, else the age of what waits, in list and description."""
    cluster = headwater.cluster
    assert {row["freshness_seconds"] for row in headwater.json("list") if row["topic"] in ("empty", "orders")} == {0}
    described = headwater.json("describe", "orders")
    assert [(f["behind_seconds"], f["held"]) for f in described["followers"]] == [(0, None), (0, None)]
    assert "0.0 s behind its log" in headwater.ok("describe", "orders")
    assert headwater.ok("list").splitlines()[0].split()[-1] == "FRESHNESS_SECONDS"
    cluster.do(topic(cluster.node, "waiting", 1))
    cluster.do(cluster.produce("waiting", 0, b"x"))
    eventually(lambda: headwater.json("describe", "waiting")["freshness_seconds"] > 0, "the record grows old")
    headwater.ok("settle", "waiting")
    assert headwater.json("describe", "waiting")["freshness_seconds"] == 0


@promise("T5")
def test_settle_says_what_it_settled(headwater: Commands) -> None:
    """For people and for programs, also if there was nothing to do."""
    cluster = headwater.cluster
    cluster.do(topic(cluster.node, "said", 2))
    assert headwater.ok("settle", "said") == "said: there was nothing to settle, version 0\n"
    cluster.do(cluster.produce("said", 1, b"a", b"b", b"c"))
    said = headwater.ok("settle", "said").splitlines()
    assert said[0] == "said: 3 records settled, 1 segments, version 1"
    assert [line.split() for line in said[2:]] == [["PARTITION", "FROM", "TO"], ["1", "0", "3"]]
    cluster.do(cluster.produce("said", 1, b"d"))
    cluster.do(cluster.produce("said", 0, b"e", b"f"))
    assert headwater.json("settle", "said") == {
        "topic": "said",
        "records": 3,
        "files": 1,
        "version": 2,
        "pending_records": 0,
        "held_records": 0,
        "held_by": [],
        "partitions": [{"partition": 0, "from": 0, "to": 2}, {"partition": 1, "from": 3, "to": 4}],
    }
    cluster.do(cluster.produce("said", 1, b"g"))
    assert headwater.ok("settle", "said", "--no-wait") == "said: 1 records are to be settled\n"


@promise("T1", "T5")
def test_settle_returns_at_the_stable_offset(headwater: Commands) -> None:
    """It does not wait for open transactions, and says how many records they hold back."""
    cluster = headwater.cluster
    [stream] = cluster.do(topic(cluster.node, "txn", 1)).streams
    writer = cluster.do(cluster.object_writer())

    def write(*parts: tuple[str, list[bytes]]) -> None:
        now_ms = SystemClock().wall_ms()  # so that retention leaves the records
        sent = [(stream, name, [Rec(value, None, now_ms) for value in values]) for name, values in parts]
        cluster.do(writer.write(*sent, created_ms=now_ms))

    write((PLAIN, [b"a", b"b"]), ("one", [b"c"]), (PLAIN, [b"d"]), ("two", [b"e"]))
    assert headwater.json("describe", "txn")["pending_records"] == 2
    said = headwater.ok("settle", "txn", "--timeout", "60").splitlines()
    assert said[0] == "txn: 2 records settled, 1 segments, version 1"
    assert said[-1] == "txn: 3 records are held back by open transactions of one, two"
    assert headwater.ok("settle", "txn").splitlines() == [
        "txn: there was nothing to settle, version 1",
        "txn: 3 records are held back by open transactions of one, two",
    ]
    described = headwater.json("describe", "txn")
    assert (described["rows"], described["pending_records"], described["held_records"]) == (2, 0, 3)
    assert described["partitions"] == [{"partition": 0, "start": 0, "settled": 2, "stable": 2, "end": 5}]
    assert described["freshness_seconds"] == 0, "a table is not behind because of an open transaction"
    assert "txn: 3 records are held back" in headwater.ok("describe", "txn")
    cluster.do(writer.end("one", commit=False))
    assert described["held_by"] == ["one", "two"]
    held = headwater.json("settle", "txn", "--timeout", "60")
    assert (held["held_records"], held["held_by"]) == (2, ["two"])
    cluster.do(writer.end("two", commit=True))
    settled = headwater.json("settle", "txn", "--timeout", "60")
    assert (settled["pending_records"], settled["held_records"]) == (0, 0)
    assert sum(f["rows"] for f in headwater.json("files", "txn")) == 4
    assert "held back" not in headwater.ok("describe", "txn")


@promise("T5")
def test_settle_that_is_late_says_why(tmp_path: Path) -> None:
    """No compactor, one that is at work, one with other work, followers, and what transactions hold back."""
    cluster = Cluster(tmp_path / "data")
    cluster.do(cluster.start(compacts=False))
    headwater = Commands(cluster)

    def late(name: str) -> str:
        code, out, error = headwater("settle", name, "--timeout", "0.2")
        assert (code, out) == (errors.REFUSED, "")
        return error

    try:
        cluster.do(topic(cluster.node, "first", 1))
        cluster.do(cluster.produce("first", 0, b"a", b"b"))
        none = "no compactor is running: start one with `headwater compactor`"
        assert f"settling of first is late: 2 records wait after 0.2 s; {none}\n" in late("first")
        cluster.may_work.clear()
        cluster.do(cluster.compact())
        running = f"a compactor is running (epoch {cluster.node.domains[STREAM_DOMAINS[0]].epoch})"
        eventually(lambda: f"2 records wait after 0.2 s; {running}, but has not" in late("first"), "it has the lease")
        [stream] = cluster.do(topic(cluster.node, "second", 1)).streams
        writer, now_ms = cluster.do(cluster.object_writer()), SystemClock().wall_ms()
        sent = [(stream, name, [Rec(b"x", None, now_ms)]) for name in (PLAIN, "one", "two", "three", "four")]
        cluster.do(writer.write(*sent, created_ms=now_ms))
        error = late("second")
        assert f"settling of second is late: 1 record waits after 0.2 s; {running} and busy: another topic" in error
        assert "besides, 4 records are held back by open transactions of one, two, three and 1 more\n" in error
    finally:
        cluster.do(_let(cluster.may_work))
        cluster.close()


async def _let(event: asyncio.Event) -> None:
    event.set()


@promise("T5")
def test_settle_waits_for_followers_that_have_not_begun(headwater: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a new topic are there when `settle` returns, not only its segments."""
    cluster = headwater.cluster
    cluster.do(topic(cluster.node, "new", 1, retention_ms="-1"))
    cluster.do(cluster.produce("new", 0, b"first"))
    with monkeypatch.context() as patch:
        patch.setattr(Following, "_is_shown", lambda self, table: False)
        eventually(lambda: not headwater.json("settle", "new", "--no-wait")["pending_records"], "the log is settled")
        code, _, said = headwater("settle", "new", "--timeout", "0.2")
        assert code and "the log is settled, but iceberg and delta cannot show it yet after 0.2 s" in said
    headwater.ok("settle", "new", "--timeout", "60")
    assert {f["name"]: f["version"] for f in headwater.json("describe", "new")["followers"]} == {
        "iceberg": 1,
        "delta": 1,
    }


@promise("T4", "T5")
def test_a_follower_that_is_held(headwater: Commands) -> None:
    """The commands say which one, why, and what to do, and do not wait for it."""
    cluster = headwater.cluster
    cluster.do(topic(cluster.node, "held", 1))
    cluster.do(cluster.produce("held", 0, b"a"))
    headwater.ok("settle", "held")
    [log] = Path(cluster.settings.data).rglob("held-*/_delta_log")
    foreign = log / f"{1:020d}.json"
    foreign.write_text(json.dumps({"add": FOREIGN}))
    cluster.do(cluster.produce("held", 0, b"b"))
    code, _, error = headwater("settle", "held", "--timeout", "60")
    assert code == errors.TABLE
    assert "held is settled, but its follower delta is held: version 1 of the Delta table" in error
    assert f"Delete {foreign.relative_to(Path(cluster.settings.data) / 'objects')}" in error
    assert "produce to the topic or use `headwater table append`" in error
    described = {f["name"]: f for f in headwater.json("describe", "held")["followers"]}
    assert described["iceberg"]["held"] is None
    assert "is not Headwater's" in described["delta"]["held"]
    assert described["delta"]["version"] < described["iceberg"]["version"]
    assert "delta is held: version 1" in headwater.ok("describe", "held")
    foreign.unlink()
    headwater.ok("settle", "held", "--timeout", "60")
    assert "is held" not in headwater.ok("describe", "held")


@promise("L8")
def test_rows_that_are_too_old(headwater: Commands, tmp_path: Path) -> None:
    """Nothing is appended without --yes; with it a warning stays."""
    cluster, file = headwater.cluster, tmp_path / "rows.parquet"
    cluster.do(topic(cluster.node, "old", 1, retention_ms="3600000"))
    now = SystemClock().wall_ms()
    pq.write_table(pa.table({"value": ["a", "b", "c"], "timestamp": [now, now - 4_000_000, 1_000]}), file)
    code, out, error = headwater("append", "old", str(file))
    assert (code, out) == (errors.INPUT, "")
    assert "2 of 3 records are older than retention.ms of old (3600 s)" in error
    assert "nothing was appended" in error and "--yes" in error
    code, out, error = headwater("append", "old", str(file), "--yes")
    assert (code, error.count("2 of 3 records")) == (0, 1)
    assert out.startswith("3 records appended to old")
    assert headwater.json("describe", "old")["rows"] == 3


@promise("T15")
def test_snapshots(headwater: Commands) -> None:
    """Version, snapshot and offsets beside each other."""
    found = headwater.json("snapshots", "orders")
    assert [v["operation"] for v in found].count("merge") >= 1
    settles = [v for v in found if v["operation"] == "settle"]
    assert [v["ends"] for v in settles] == [
        {"0": 2},
        {"0": 2, "1": 2},
        {"0": 4, "1": 2},
        {"0": 4, "1": 4},
        {"0": 6, "1": 4},
    ]
    assert all(set(v["followers"]) == {"iceberg", "delta"} for v in found)
    assert sum(len(v["tags"]) for v in found) <= 1, "an hour may have ended meanwhile, not two"
    assert [v["followers"]["delta"] for v in found] == list(range(len(found)))
    assert len({v["followers"]["iceberg"] for v in found}) == len(found)
    header, *lines = headwater.ok("snapshots", "orders").splitlines()
    assert header.split() == ["VERSION", "TIME", "OPERATION", "ADDED", "REMOVED", "ENDS", "ICEBERG", "DELTA", "TAGS"]
    assert len(lines) == len(found)
    assert headwater.json("snapshots", "empty") == []


@promise("T15")
def test_changes(headwater: Commands) -> None:
    """The offsets that came, who can show them, and the records themselves."""
    found = headwater.json("snapshots", "orders")
    second = [v for v in found if v["operation"] == "settle"][1]["version"]
    change = headwater.json("changes", "orders", "--from", str(second))
    assert (change["from"], change["to"]) == (second, len(found))
    assert change["partitions"] == [
        {"partition": 0, "start": 2, "end": 6},
        {"partition": 1, "start": 2, "end": 4},
    ]
    assert change["operations"]["settle"] == 3
    assert change["followers"] == {
        name: {"from": found[second - 1]["followers"][name], "to": found[-1]["followers"][name]}
        for name in ("iceberg", "delta")
    }
    assert change["files"]
    assert "`partition` = 1 AND `offset` >= 2" in change["predicate"]
    assert "in any later version" in headwater.ok("changes", "orders", "--from", "0", "--to", "1")
    lines = headwater.ok("changes", "orders", "--from", str(second), "--records").splitlines()
    records = [json.loads(line) for line in lines]
    assert [(r["partition"], r["offset"], r["value"]) for r in records] == [
        (0, 2, "2-a"), (0, 3, "2-b"), (0, 4, "4-a"), (0, 5, "4-b"), (1, 2, "3-a"), (1, 3, "3-b"),
    ]  # fmt: skip
    assert records[0]["key_encoding"] == "base64"
    assert headwater.ok("changes", "orders", "--from", str(len(found)), "--records") == ""


@promise("T15", "T5")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["changes", "orders", "--from", "99"], 1, "no version 99 yet"),
        (["changes", "orders", "--from", "1", "--to", "99"], 1, "no version 99 yet"),
        (["changes", "orders", "--from", "2", "--to", "1"], 1, "newer than version 1"),
        (["changes", "orders"], 1, "--from"),
        (["changes", "empty", "--from", "0"], 2, "no table yet"),
        (["changes", "nothing", "--from", "0"], 2, "no topic 'nothing'"),
        (["expire", "empty"], 2, "no table yet"),
        (["expire", "orders", "--older-than", "soon"], 1, "not a duration"),
        (["expire", "orders", "--keep", "0"], 1, "--keep"),
    ],
)
def test_what_cannot_be(headwater: Commands, arguments: list[str], code: int, says: str) -> None:
    """Clear errors."""
    result = headwater(*arguments)
    assert (result[0], result[1]) == (code, "")
    assert says in result[2]


@promise("T5")
def test_expiry(tmp_path: Path) -> None:
    """Versions and files are gone when the command is done, and without a compactor it says so."""
    cluster = Cluster(tmp_path / "data")
    cluster.do(cluster.start())
    headwater = Commands(cluster)
    try:
        cluster.do(topic(cluster.node, "orders", 1, retention_ms="-1"))
        for number in range(5):
            cluster.do(cluster.produce("orders", 0, b"%d" % number))
            headwater.ok("settle", "orders", "--timeout", "60")
        assert len(headwater.json("snapshots", "orders")) == 6
        headwater.ok("expire", "orders", "--older-than", "7d")
        assert all(len(v["followers"]) == 2 for v in headwater.json("snapshots", "orders"))
        [table] = cluster.node.domains[STREAM_DOMAINS[0]].state.tables.values()
        before = {file.name for file in table.files.values()}
        done = headwater.json("expire", "orders", "--keep", "1")
        assert [(f["version"], f["oldest"]) for f in done["followers"]] == [(6, 6), (6, 6)]
        assert done["files_removed"] >= 4
        assert [len(v["followers"]) for v in headwater.json("snapshots", "orders")] == [0, 0, 0, 0, 0, 2]
        stored = {f"_data/{path.name}" for path in Path(cluster.settings.data).rglob("_data/*.parquet")}
        assert stored & before == {file["file"] for file in headwater.json("files", "orders")}
        cluster.do(cluster._following.close())
        code, _, error = headwater("expire", "orders", "--keep", "1", "--timeout", "0.3")
        assert code == errors.REFUSED
        assert "still waiting for" in error
        assert "iceberg" in error and "delta" in error
        assert headwater("expire", "orders", "--no-wait") == (0, "", "")
    finally:
        cluster.close()
