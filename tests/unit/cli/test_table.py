"""T5, T15: `headwater table` on a cluster's own data, with a compactor at work that needs no Spark."""

import asyncio
import contextlib
import io
import json
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.app.node import DOMAINS, Node
from headwater.cli import common
from headwater.cli import table as table_commands
from headwater.cli.table_versions import parse_duration
from headwater.clock import SystemChance, SystemClock
from headwater.config import Lake, Settings
from headwater.errors import ConfigError
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.spark.executor import perform
from headwater.lake.tables import make_followers
from headwater.lake.tasks import Task, TaskFacts
from headwater.metadata import open_ledger
from headwater.metadata.commands import Listener
from headwater.objects import open_store
from tests.support.batches import Rec, batch
from tests.support.virtual_nodes import sent, topic

LAKE = Lake(interval_ms=20, freshness_ms=1 << 40, merge_files=4, orphan_interval_ms=1 << 40)


class Cluster:
    """A broker without sockets and a compactor without Spark, in a thread of their own."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=str(data), lake=LAKE)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def start(self) -> None:
        clock, chance = SystemClock(), SystemChance()
        self._ledger, self._store = open_ledger(self.settings.ledger_url), open_store(self.settings.objects_url)
        listeners = (Listener("PLAINTEXT", "localhost", 9092),)
        self.node = Node(self.settings, self._ledger, self._store, clock, chance, listeners=listeners)
        await self.node.start()
        domains = {domain: self.node.domains[domain] for domain in DOMAINS}
        cluster = self.node.cluster
        self._compactor = Compactor(cluster, domains, self._store, self._run_job, LAKE, clock, chance, slots=2)
        followers = make_followers(self._store, LAKE)
        self._following = Following(cluster, domains, followers, self._compactor.lease, LAKE, clock, chance)
        self._compactor.start()
        self._following.start()

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        """In another thread, as the first job compiles for seconds, in which this process must show that it lives."""
        return await asyncio.to_thread(asyncio.run, self._perform(tasks))

    async def _perform(self, tasks: Sequence[Task]) -> list[TaskFacts]:
        store = open_store(self.settings.objects_url)
        try:
            return [await perform(store, task) for task in tasks]
        finally:
            await store.close()

    async def stop(self) -> None:
        await self._compactor.close()
        await self._following.close()
        await self.node.stop()
        await self._ledger.close()
        await self._store.close()

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


def test_a_look_at_tables(headwater: Commands) -> None:
    """T5"""
    assert [row["topic"] for row in headwater.json("list")] == ["empty", "orders"]
    described = headwater.json("describe", "orders")
    assert (described["rows"], described["pending_records"]) == (10, 0)
    assert {f["name"] for f in described["followers"]} == {"iceberg", "delta"}
    assert sum(f["rows"] for f in headwater.json("files", "orders")) == 10
    assert "orders" in headwater.ok("list")
    assert "iceberg" in headwater.ok("describe", "orders")
    assert ".parquet" in headwater.ok("files", "orders")


def test_snapshots(headwater: Commands) -> None:
    """T15: version, snapshot and offsets beside each other."""
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
    assert all(v["tags"] == [] and set(v["followers"]) == {"iceberg", "delta"} for v in found)
    assert [v["followers"]["delta"] for v in found] == list(range(len(found)))
    assert len({v["followers"]["iceberg"] for v in found}) == len(found)
    header, *lines = headwater.ok("snapshots", "orders").splitlines()
    assert header.split() == ["VERSION", "TIME", "OPERATION", "ADDED", "REMOVED", "ENDS", "ICEBERG", "DELTA", "TAGS"]
    assert len(lines) == len(found)
    assert headwater.json("snapshots", "empty") == []


def test_changes(headwater: Commands) -> None:
    """T15: the offsets that came, who can show them, and the records themselves."""
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


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["changes", "orders", "--from", "99"], 1, "no version 99 yet"),
        (["changes", "orders", "--from", "1", "--to", "99"], 1, "no version 99 yet"),
        (["changes", "orders", "--from", "2", "--to", "1"], 1, "newer than version 1"),
        (["changes", "orders"], 1, "--from"),
        (["changes", "empty", "--from", "0"], 1, "no table yet"),
        (["changes", "nothing", "--from", "0"], 1, "no topic 'nothing'"),
        (["expire", "empty"], 1, "no table yet"),
        (["expire", "orders", "--older-than", "soon"], 1, "not a duration"),
        (["expire", "orders", "--keep", "0"], 1, "--keep"),
    ],
)
def test_what_cannot_be(headwater: Commands, arguments: list[str], code: int, says: str) -> None:
    """T15, T5: clear errors."""
    result = headwater(*arguments)
    assert (result[0], result[1]) == (code, "")
    assert says in result[2]


def test_durations() -> None:
    """T5"""
    assert [parse_duration(text) for text in ("250ms", "90s", "30m", "12h", "7d", " 0s ")] == [
        250, 90_000, 1_800_000, 43_200_000, 604_800_000, 0,
    ]  # fmt: skip
    for text in ("", "s", "1", "1w", "-1s", "1.5h", "9" * 16 + "s"):
        with pytest.raises(ConfigError):
            parse_duration(text)


def test_expiry(tmp_path: Path) -> None:
    """T5: versions and files are gone when the command is done, and without a compactor it says so."""
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
        [table] = cluster.node.domains[DOMAINS[0]].state.tables.values()
        before = {file.name for file in table.files.values()}
        done = headwater.json("expire", "orders", "--keep", "1")
        assert [(f["version"], f["oldest"]) for f in done["followers"]] == [(6, 6), (6, 6)]
        assert done["files_removed"] >= 4
        assert [len(v["followers"]) for v in headwater.json("snapshots", "orders")] == [0, 0, 0, 0, 0, 2]
        stored = {f"_data/{path.name}" for path in Path(cluster.settings.data).rglob("_data/*.parquet")}
        assert stored & before == {file["file"] for file in headwater.json("files", "orders")}
        cluster.do(cluster._following.close())
        code, _, error = headwater("expire", "orders", "--keep", "1", "--timeout", "0.3")
        assert code == common.LEDGER
        assert "still waiting for" in error
        assert "iceberg" in error and "delta" in error
        assert headwater("expire", "orders", "--no-wait") == (0, "", "")
    finally:
        cluster.close()
