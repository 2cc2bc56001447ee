"""A data directory with content of every kind, and what is in it.

It has log and tables, a bulk append, groups of both protocols, users and rules,
transactions that are open, committed and aborted, settled and not settled, with staged offsets, checkpoints and records
after them; units with conditions and keys, and gaps in the offsets, settled and not settled; a hold of a process that
died, with a version that it names; a link with a topic that it copies and one that was promoted, and where its source
ends; schemas, tables with typed columns and a back-fill, a dead letter, and what the last settle has left in the WAL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from harness.patience import eventually
from harness.process import headwater
from headwater.app.core import Core
from headwater.clock import SystemChance, SystemClock
from headwater.errors import HeadwaterError
from headwater.ledger import open_ledger
from headwater.log.batch import check_batch
from headwater.log.write.part import Together
from headwater.objects import open_store
from headwater.query.holding import Holding
from headwater.replica.domains import Domains
from headwater.settings.settings import load
from headwater.state.commands.links import LinkPhase, NoteSourceEnds, SkipStreams
from headwater.state.commands.streams import Once, StartAt
from headwater.state.results import Done, Skipped, SkipVerdict, UnitResult, UnitVerdict
from headwater.types import Domain
from tests.faults.lake_running import LakeRunning
from tests.support.batches import batch
from tests.support.links import link
from tests.support.transactional import PLAIN, Writers, messages
from tests.support.virtual_nodes import LAX

SETTINGS = """
[housekeeping]
interval_ms = 300
checkpoint_bytes = 200

[lake]
interval_ms = 200
niceness = 0
"""
ACCESS = """
[security]
acls = true
super_users = "User:ANONYMOUS"
"""
START_MS = 1_700_000_000_000
PAYMENTS = "payments"
PAID, VOID, OPEN, STAGED = "paid", "void", "open", "staged"
"""Transactional ids: whose transactions were committed, were aborted, are open, and are open with staged offsets."""
GAPPED = "gapped"
"""A topic whose records were appended as units: with keys, and beyond the end."""
COPIED, PROMOTED = "copied", "promoted"
"""Topics of a link."""
TYPED, FILLED, LETTERS = "typed", "filled", "letters"
"""A topic with two versions of a schema and a dead letter, one of JSON that was settled before it had columns, and the
dead-letter topic."""
TYPED_SCHEMAS = (
    {"type": "record", "name": "Typed", "fields": [{"name": "n", "type": "long"}]},
    {
        "type": "record",
        "name": "Typed",
        "fields": [{"name": "n", "type": "long"}, {"name": "who", "type": ["null", "string"], "default": None}],
    },
)


def read_topic(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[list[Any]]:
    """All records as plain data, by partition and offset."""
    found = []
    for message in messages(bootstrap, topic, [ck.OFFSET_BEGINNING] * partitions, isolation):
        headers = [[name, value.decode()] for name, value in message.headers() or []]
        key, value = message.key(), message.value()
        found.append(
            [
                message.partition(), message.offset(), message.timestamp()[1],
                key.decode() if key is not None else None, value.decode() if value is not None else None, headers,
            ]
        )  # fmt: skip
    return found


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[str, int]:
    """What a group has committed, by partition."""
    asked = [ck.TopicPartition(topic, p) for p in range(partitions)]
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = {str(p.partition): p.offset for p in consumer.committed(asked, timeout=30)}
    consumer.close()
    return found


def _said(bootstrap: str, *arguments: str) -> Any:
    """What a command says."""
    done = headwater(*arguments, "--bootstrap", bootstrap, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def transactions(bootstrap: str) -> dict[str, Any]:
    """All transactional ids, with what no clock changes."""
    kept = ("state", "producer", "epoch", "timeout_ms", "partitions")
    return {row["id"]: {name: row[name] for name in kept} for row in _said(bootstrap, "txn", "list")}


LOOKS: dict[str, Callable[[str], Any]] = {
    "orders": lambda at: read_topic(at, "orders", 3),
    "events": lambda at: read_topic(at, "events", 1),
    "classic": lambda at: committed(at, "classic", "orders", 3),
    "consumer": lambda at: committed(at, "consumer", "orders", 3),
    "users": lambda at: _said(at, "user", "list"),
    "rules": lambda at: _said(at, "acl", "list"),
    "payments": lambda at: read_topic(at, PAYMENTS, 2),
    "payments, uncommitted": lambda at: read_topic(at, PAYMENTS, 2, "read_uncommitted"),
    "paid": lambda at: committed(at, PAID, "orders", 3),
    "transactions": transactions,
    "gapped": lambda at: read_topic(at, GAPPED, 1),
    COPIED: lambda at: read_topic(at, COPIED, 1),
    PROMOTED: lambda at: read_topic(at, PROMOTED, 1),
    TYPED: lambda at: read_topic(at, TYPED, 1),
    FILLED: lambda at: read_topic(at, FILLED, 1),
    LETTERS: lambda at: [row[3:5] for row in read_topic(at, LETTERS, 1)],
    "links": lambda at: [_said(at, "topic", "describe", name)["link"] for name in (COPIED, PROMOTED)],
}
"""What there is, as clients see it."""


STORED: dict[str, Callable[[Path], Any]] = {
    "schemas": lambda data: _told(data, "schema", "list"),
    "versions": lambda data: [_told(data, "schema", "show", f"{TYPED}-value", "--version", v) for v in "12"],
    "dead letters": lambda data: _told(data, "dlq", "list"),
    "columns": lambda data: {topic: columns(data, topic) for topic in (TYPED, FILLED)},
}
"""The same, of what commands and engines read without a server."""


def _told(data: Path, *arguments: str) -> Any:
    """What a command says of a data directory."""
    done = headwater(*arguments, "--data", str(data), "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def columns(data: Path, topic: str) -> list[dict[str, Any]]:
    """Delta's rows of a topic with their typed columns, in the order of their offsets."""
    [root] = (data / "objects" / "tables").glob(f"{topic}-*")
    table = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["offset", "decode_error", "value_data"])
    return list(table.sort_by("offset").to_pylist())


def look(bootstrap: str) -> dict[str, Any]:
    """What there is, as clients see it."""
    return {name: see(bootstrap) for name, see in LOOKS.items()}


def look_into(data: Path) -> dict[str, Any]:
    """What a data directory has, as commands and engines see it."""
    return {name: see(data) for name, see in STORED.items()}


def _produce(bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec})
    for i in range(first, first + count):
        value = f"value-{i}" if i % 10 else None
        producer.produce(topic, value, f"key-{i % 7}", headers=[("n", str(i)), ("n", "again")], timestamp=START_MS + i)
    assert producer.flush(60) == 0


def _transact(server: LakeRunning) -> None:
    """Transactions of every kind. What is before the open one is settled, aborted records among it."""
    kept = ("--config", "retention.ms=-1")
    _do("topic", "create", PAYMENTS, "--partitions", "2", *kept, "--bootstrap", server.bootstrap)
    writers = Writers(server.bootstrap)
    for i, name in enumerate((PAID, VOID, PAID, VOID)):
        for partition in range(2):
            writers.write(PLAIN, PAYMENTS, partition, b"plain", timestamp=START_MS)
            writers.write(name, PAYMENTS, partition, b"a", b"b", timestamp=START_MS + 10)
        writers.end(name, commit=not i % 2)
    _do("table", "settle", PAYMENTS, "--config", str(server.config), "--timeout", "600")
    writers.write(OPEN, PAYMENTS, 0, b"open", timestamp=START_MS + 20)
    writers.write(VOID, PAYMENTS, 0, b"c", b"d", timestamp=START_MS + 30)
    writers.end(VOID, commit=False)
    writers.stage(PAID, PAID, "orders", [10, 11, 12])
    writers.end(PAID, commit=True)
    writers.write(STAGED, PAYMENTS, 1, b"staged", timestamp=START_MS + 40)
    writers.stage(STAGED, STAGED, "orders", [20, 21, 22])
    writers.write(PLAIN, PAYMENTS, 1, b"last", timestamp=START_MS + 50)


@contextlib.asynccontextmanager
async def _joined(config: Path) -> AsyncIterator[Core]:
    """A process of the cluster."""
    settings = load(str(config), {})
    ledger, store = open_ledger(settings.ledger_url), open_store(settings.objects_url)
    core = Core(settings, ledger, store, SystemClock(), SystemChance())
    await core.start()
    yield core
    await core.stop()
    await ledger.close()
    await store.close()


async def _append(config: Path, values: Sequence[tuple[int, str]]) -> None:
    """Append records as units at given offsets, each under a key, as a process of the cluster."""
    async with _joined(config) as core:
        [stream] = core.cluster.state.names[GAPPED].streams
        for offset, value in values:
            done: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()
            key = Once(value.encode(), value.encode(), b"owner", b"note")
            data = check_batch(batch([value.encode()]), LAX, START_MS)
            unit = Together([(stream, data)], [StartAt(stream, offset), key], done.set_result)
            core.writers.of(1, "latency").append_unit(unit)
            outcome = await done
            assert isinstance(outcome, UnitResult) and outcome.verdict is UnitVerdict.ACCEPTED, outcome


async def _copy(config: Path) -> None:
    """Topics of a link: one that is copied, with gaps at its start and its end, and one that was promoted."""
    async with _joined(config) as core:
        for name in (COPIED, PROMOTED):
            found = await link(core, name, **{"retention.ms": "-1"})
            for start, value in ((5, b"a"), (6, b"b")):
                outcome = await found.copy(start, [value])
                assert isinstance(outcome, UnitResult) and outcome.verdict is UnitVerdict.ACCEPTED, outcome
            skip = SkipStreams([(int(found.stream().id), found.linked.generation, 7, 12)])
            [skipped] = await core.domains[Domain(1)].submit([skip])
            assert skipped == Skipped([(SkipVerdict.SKIPPED, 12)])
            ends = NoteSourceEnds(found.topic.id, found.linked.generation, [(0, 15)])
            assert await core.cluster.submit([ends]) == [Done()]
            if name == PROMOTED:
                await found.change(LinkPhase.PROMOTED)


def _leave_gaps(server: LakeRunning) -> None:
    """Gaps before, between and behind what is settled."""
    _do("topic", "create", GAPPED, "--partitions", "1", "--config", "retention.ms=-1", "--bootstrap", server.bootstrap)
    asyncio.run(_append(server.config, [(5, "a"), (6, "b"), (20, "c")]))
    _do("table", "settle", GAPPED, "--config", str(server.config), "--timeout", "600")
    asyncio.run(_append(server.config, [(30, "d"), (1 << 33, "far")]))


def _write_typed(server: LakeRunning, directory: Path) -> None:
    """Records of two versions of a schema, one that cannot be decoded, and JSON that gets its columns afterwards."""
    at, own = ("--bootstrap", server.bootstrap), ("--config", str(server.config))
    for number, schema in enumerate(TYPED_SCHEMAS):
        (directory / f"typed{number}.avsc").write_text(json.dumps(schema))
        _do("schema", "register", f"{TYPED}-value", str(directory / f"typed{number}.avsc"), *own)
    kept = ("--partitions", "1", "--config", "retention.ms=-1")
    schemas = ("--config", "headwater.value.schema=auto", "--config", f"headwater.dlq.topic={LETTERS}")
    _do("topic", "create", LETTERS, *kept, *at)
    late = ("--config", "headwater.table.freshness.ms=86400000")
    _do("topic", "create", TYPED, *kept, *schemas, *late, *at)
    _do("topic", "create", FILLED, *kept, *at)
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})

    def send(topic: str, *values: bytes) -> None:
        for value in values:
            producer.produce(topic, value, timestamp=START_MS)
        assert producer.flush(60) == 0

    send(TYPED, b"\0\0\0\0\1\2", b"\0\0\0\0\2\4\2\6ann", b"no schema")
    send(FILLED, b'{"a": 1}', b'{"a": 2, "b": {"c": "x"}}')
    for topic in (TYPED, FILLED):
        _do("table", "settle", topic, *own, "--timeout", "600")
    _do("topic", "alter", FILLED, "--config", "headwater.value.schema=json", *at)
    eventually(lambda: _filled(server.data), "the past has its columns", 120, every=0.5)
    eventually(lambda: LOOKS[LETTERS](server.bootstrap), "there is a dead letter", 120, every=0.5)
    _do("table", "settle", LETTERS, *own, "--timeout", "600")
    send(TYPED, b"\0\0\0\0\2\6\0")


def _filled(data: Path) -> bool:
    [root] = (data / "objects" / "tables").glob(f"{FILLED}-*")
    shown = deltalake.DeltaTable(str(root)).schema().to_arrow()
    return "value_data" in pa.schema(shown).names and all(row["value_data"] for row in columns(data, FILLED))


@contextlib.contextmanager
def _held(server: LakeRunning) -> Iterator[None]:
    """A process with a hold and a version by name. It does not leave: the hold stays in what is written."""
    taken, enough = threading.Event(), threading.Event()

    async def hold() -> None:
        domains = Domains.open(load(str(server.config), {}))
        await domains.follow()
        await domains.join()
        holding = Holding(domains)
        held = await holding.begin()
        await held.pin(domains.cluster.state.names["orders"].id, 0)
        taken.set()
        await asyncio.to_thread(enough.wait)
        await domains.background.close()
        await domains.ledger.close()
        await domains.store.close()

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    try:
        assert taken.wait(60), "the process does not get a hold"
        yield
    finally:
        enough.set()
        thread.join()


def holds(data: Path) -> list[dict[str, Any]]:
    """The holds in a data directory."""
    done = headwater("cluster", "describe", "--data", str(data), "--output", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["holds"]
    return found


def _consume(bootstrap: str, group: str, protocol: str, count: int) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer = ck.Consumer(settings)
    consumer.subscribe(["orders"])
    seen = 0
    while seen < count:
        message = consumer.poll(60)
        assert message is not None, f"{group} gets no records"
        if message.error() is None:
            seen += 1
        else:
            assert message.error().retriable(), message.error()
    consumer.commit(asynchronous=False)
    consumer.close()


def _do(*arguments: str) -> None:
    done = headwater(*arguments, timeout=700)
    assert done.returncode == 0, done.stdout + done.stderr


def _checkpoints(server: LakeRunning) -> dict[int, tuple[int, int]]:
    """By domain, where the newest checkpoint is, and the one before it."""
    done = headwater("cluster", "describe", "--data", str(server.data), "--output", "json")
    assert done.returncode == 0, done.stderr
    domains = json.loads(done.stdout)["domains"]
    return {d["domain"]: (d["checkpoint"] or 0, d["older_checkpoint"] or 0) for d in domains}


def _all_later(before: dict[int, tuple[int, int]], now: dict[int, tuple[int, int]]) -> bool:
    """Whether the older checkpoint of every domain is there, and that of streams is later than both were."""
    return all(older for _, older in now.values()) and now[1][1] > max(before[1])


def write(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Run a server and fill it; returns its data directory, and what is in it."""
    with LakeRunning(directory, settings=SETTINGS + ACCESS) as server:
        at = ("--bootstrap", server.bootstrap)
        kept = ("--config", "retention.ms=-1")
        _do("topic", "create", "orders", "--partitions", "3", *kept, *at)
        _do(
            "topic",
            "create",
            "events",
            "--partitions",
            "1",
            "--config",
            "message.timestamp.type=LogAppendTime",
            *at,
        )
        _do("topic", "create", "gone", "--partitions", "2", *at)
        _do("topic", "delete", "--yes", "gone", *at)
        for i, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
            _produce(server.bootstrap, "orders", i * 60, 60, codec)
        _produce(server.bootstrap, "events", 0, 40, "zstd")
        _do("table", "settle", "orders", "--config", str(server.config), "--timeout", "600")
        rows = pa.table({"key": [f"bulk-{i}" for i in range(50)], "value": [f"row-{i}" for i in range(50)]})
        pq.write_table(rows, directory / "rows.parquet")
        _do("table", "append", "orders", str(directory / "rows.parquet"), "--config", str(server.config))
        _consume(server.bootstrap, "classic", "classic", 100)
        _consume(server.bootstrap, "consumer", "consumer", 120)
        (directory / "password").write_text("secret")
        _do("user", "add", "ann", "--new-password-file", str(directory / "password"), *at)
        _do("acl", "add", "--principal", "User:ann", "--operation", "read", "--topic", "ord", "--prefix", *at)
        _transact(server)
        _leave_gaps(server)
        asyncio.run(_copy(server.config))
        for name in (COPIED, PROMOTED):
            _do("table", "settle", name, "--config", str(server.config), "--timeout", "600")
        _produce(server.bootstrap, PROMOTED, 0, 3, "none")
        _write_typed(server, directory)
        with _held(server):
            before = _checkpoints(server)
            eventually(lambda: _all_later(before, _checkpoints(server)), "both checkpoints are later", 120)
            _produce(server.bootstrap, "orders", 300, 30, "lz4")
            expected = look(server.bootstrap)
            assert server.stop() == 0  # and nobody is there to fence it
    return server.data, expected | look_into(server.data)
