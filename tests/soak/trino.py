"""Trino reads topics by the URL of a gateway and their names, in a directory and in S3, with passwords too.

A topic has several partitions, null keys and values, headers, committed and aborted transactions, and two versions.
Trino reads every row of both, filters, aggregates, travels in time, and looks at Iceberg's metadata tables. All of its
writes are refused, with words that say what to do instead, and nothing of the table is touched, nor by its removal of
orphan files. It reads the same files as a Delta table.

python -m tests.soak.trino
"""

from __future__ import annotations

import argparse
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.headwater import QUICK_LAKE, Headwater
from harness.ports import free_port
from harness.process import Process, environment
from harness.s3 import S3Server
from harness.storage import Place, stored
from harness.trino import Trino, TrinoFailed, delta, iceberg, quoted
from headwater.gateway.catalog import NAMESPACE
from tests.engines.everyone import OURS, PARTITIONS, TOPIC, Sent, produced
from tests.soak.common import Verdict, workplace
from tests.support.transactional import PLAIN, Writers

PROMISES = ("T9", "S2")

INSTEAD = "produce to the topic"
COMMITTED, ABORTED = "committed", "aborted"
MIXED = "Mixed.Case-2"
"""A topic whose name Trino can only show in small letters."""
TWINS = ("twin", "Twin")
"""Topics that Trino cannot tell apart."""
SECRET = "pass:word with spaces, commas and 'quotes'"
OPEN = f"""{QUICK_LAKE}niceness = 0
[security]
acls = true
super_users = "User:ANONYMOUS"
"""
SECURED = """
[security.http]
authentication = "basic"
"""
TABLE = f'{NAMESPACE}."{TOPIC}"'
WRITES = {
    "INSERT": "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
    "DELETE of rows": 'DELETE FROM {table} WHERE "offset" % 7 = 3',
    "DELETE of a partition": "DELETE FROM {table} WHERE partition = 1",
    "DELETE of all": "DELETE FROM {table}",
    "UPDATE": "UPDATE {table} SET value = X'00' WHERE partition = 1",
    "MERGE": "MERGE INTO {table} t USING (VALUES 1) s(p) ON t.partition = s.p WHEN MATCHED THEN DELETE",
    "TRUNCATE": "TRUNCATE TABLE {table}",
    "DROP TABLE": "DROP TABLE {table}",
    "CREATE TABLE": "CREATE TABLE {catalog}.topics.fresh (a bigint)",
    "CREATE TABLE AS": "CREATE TABLE {catalog}.topics.fresh AS SELECT 1 AS a",
    "ADD COLUMN": "ALTER TABLE {table} ADD COLUMN more bigint",
    "RENAME": "ALTER TABLE {table} RENAME TO {catalog}.topics.fresh",
    "OPTIMIZE": "ALTER TABLE {table} EXECUTE optimize",
    "expire_snapshots": "ALTER TABLE {table} EXECUTE expire_snapshots(retention_threshold => '0d')",
    "CREATE SCHEMA": "CREATE SCHEMA {catalog}.fresh",
    "DROP SCHEMA": "DROP SCHEMA {catalog}.topics",
}

BY_ITSELF = {"expire_snapshots": "GC is disabled", "DROP SCHEMA": "Cannot drop non-empty schema"}
"""What Trino refuses without asking the catalog to do it, and what it says then."""


def hasty(catalog: str) -> dict[str, str]:
    """Session properties with which Trino expires versions and removes files of any age."""
    return {f"{catalog}.{what}_min_retention": "0s" for what in ("expire_snapshots", "remove_orphan_files")}


class World:
    """A topic and what it must show, in both versions of its table."""

    def __init__(self, server: Headwater) -> None:
        self.server = server
        self.before: list[Sent] = produced(server)
        writers = Writers(server.bootstrap)
        for partition in range(PARTITIONS):
            writers.write(PLAIN, TOPIC, partition, b"plain")
            writers.write(COMMITTED, TOPIC, partition, b"one", b"two")
            writers.write(ABORTED, TOPIC, partition, b"gone", b"gone")
        writers.end(COMMITTED, commit=True)
        writers.end(ABORTED, commit=False)
        server.table("settle", TOPIC, "--timeout", "240")
        more: list[Sent] = [(p, offset, key, value, [], ms) for p, offset, ms, key, value in writers.committed(TOPIC)]
        self.after = sorted([*self.before, *more], key=lambda record: record[:2])
        for topic in (MIXED, *TWINS):
            server.create(topic, 1, **{"retention.ms": "-1"})
            writers.write(PLAIN, topic, 0, b"1", b"2", b"3")
            server.table("settle", topic, "--timeout", "240")
        self.place = server.place(TOPIC)

    def files(self) -> set[str]:
        """What the table is made of."""
        folder = self.place.root.partition("/tables/")[2]
        found = stored(self.server.objects, f"tables/{folder}", environment(self.server.variables))
        return {path for path in found if path.partition(f"{folder}/")[2].startswith(OURS)}


def rows_of(trino: Trino, table: str, version: str = "") -> list[Sent]:
    """All rows of a table, as they were sent."""
    columns = 'partition, "offset", key, value, headers, timestamp_ms'
    found = trino.rows(f'SELECT {columns} FROM {table} {version} ORDER BY partition, "offset"')
    return [
        (p, offset, _bytes(key), _bytes(value), [(name, _bytes(content)) for name, content in headers or ()], ms)
        for p, offset, key, value, headers, ms in found
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def check_reads(trino: Trino, catalog: str, world: World) -> None:
    """Every row and column, filters, aggregates, versions, metadata tables."""
    table, sent = f"{catalog}.{TABLE}", world.after
    assert [TOPIC] in trino.rows(f"SHOW TABLES FROM {catalog}.{NAMESPACE}")
    assert [MIXED.lower()] in trino.rows(f"SHOW TABLES FROM {catalog}.{NAMESPACE}")
    for name in (MIXED, MIXED.lower()):
        assert trino.rows(f'SELECT count(*) FROM {catalog}.{NAMESPACE}."{name}"') == [[3]]
    for name in TWINS:
        refused = _refused(trino, f'SELECT count(*) FROM {catalog}.{NAMESPACE}."{name}"')
        assert refused is not None and any("Duplicate" in cause for cause in refused.causes), refused and refused.causes
    assert trino.rows(f"SELECT count(*) FROM {table}") == [[len(sent)]]
    assert rows_of(trino, table) == sent
    grouped = f'SELECT partition, count(*), sum("offset"), count(key), count(value) FROM {table} GROUP BY 1 ORDER BY 1'
    wanted = [
        [p, len(own), sum(r[1] for r in own), sum(r[2] is not None for r in own), sum(r[3] is not None for r in own)]
        for p, own in ((p, [record for record in sent if record[0] == p]) for p in range(PARTITIONS))
    ]
    assert trino.rows(grouped) == wanted
    some = [record for record in sent if record[0] == 1 and 100 <= record[1] < 200]
    within = 'partition = 1 AND "offset" >= 100 AND "offset" < 200'
    filtered = f"SELECT count(*), max(timestamp_ms) FROM {table} WHERE {within}"
    assert trino.rows(filtered) == [[len(some), max(record[5] for record in some)]]
    key = next(record[2] for record in sent if record[2])
    by_key = sum(record[2] == key for record in sent)
    assert trino.rows(f"SELECT count(*) FROM {table} WHERE key = X'{key.hex()}'") == [[by_key]]
    check_versions(trino, catalog, world)


def check_versions(trino: Trino, catalog: str, world: World) -> None:
    table = f"{catalog}.{TABLE}"
    metadata = f'{catalog}.{NAMESPACE}."{TOPIC}${{}}"'
    columns = "snapshot_id, CAST(committed_at AS varchar)"
    ids = trino.rows(f"SELECT {columns} FROM {metadata.format('snapshots')} ORDER BY committed_at")
    counts = [trino.rows(f"SELECT count(*) FROM {table} FOR VERSION AS OF {id}")[0][0] for id, _ in ids]
    assert len(world.before) in counts and counts[-1] == len(world.after), counts
    [id, time] = ids[len(counts) - 1 - counts[::-1].index(len(world.before))]
    assert rows_of(trino, table, f"FOR VERSION AS OF {id}") == world.before
    assert rows_of(trino, table, f"FOR TIMESTAMP AS OF TIMESTAMP {quoted(time)}") == world.before
    assert trino.rows(f"SELECT sum(record_count) FROM {metadata.format('files')}") == [[len(world.after)]]
    assert trino.rows(f"SELECT sum(record_count) FROM {metadata.format('partitions')}") == [[len(world.after)]]
    assert len(trino.rows(f"SELECT * FROM {metadata.format('history')}")) == len(ids)
    assert trino.rows(f"SELECT count(*) FROM {metadata.format('refs')} WHERE name = 'main'") == [[1]]


def check_writes(trino: Trino, catalog: str, world: World) -> dict[str, str]:
    """All writes are refused, and say what to do instead. What users see of each, by its name."""
    before, shown = world.files(), {}
    for name, statement in WRITES.items():
        try:
            trino.rows(statement.format(catalog=catalog, table=f"{catalog}.{TABLE}"), hasty(catalog))
        except TrinoFailed as failed:
            wanted = BY_ITSELF.get(name, INSTEAD)
            assert any(wanted in cause for cause in failed.causes), (name, failed, failed.causes)
            shown[name] = str(failed)
        else:
            raise AssertionError(f"{name} was not refused")
    _check_untouched(trino, catalog, world, before)
    return shown


def check_orphans(trino: Trino, catalog: str, world: World) -> None:
    """Trino removes files that no version has without asking anybody. Those of the table stay."""
    before = world.files()
    remove = f"ALTER TABLE {catalog}.{TABLE} EXECUTE remove_orphan_files(retention_threshold => '0s')"
    trino.rows(remove, hasty(catalog))
    _check_untouched(trino, catalog, world, before)


def _check_untouched(trino: Trino, catalog: str, world: World, before: set[str]) -> None:
    assert before <= world.files(), "something of the table is gone"
    assert rows_of(trino, f"{catalog}.{TABLE}") == world.after


def check_delta(trino: Trino, catalog: str, world: World, directory: Path) -> None:
    """The same rows by the path of the Delta table."""
    directory.mkdir()
    trino.attach(catalog, delta(directory, world.place.access))
    trino.rows(f"CREATE SCHEMA {catalog}.topics WITH (location = {quoted((directory / 'topics').as_uri())})")
    root = world.place.root if "://" in world.place.root else Path(world.place.root).as_uri()
    given = f"schema_name => 'topics', table_name => {quoted(TOPIC)}, table_location => {quoted(root)}"
    trino.rows(f"CALL {catalog}.system.register_table({given})")
    assert rows_of(trino, f"{catalog}.{TABLE}") == world.after


@contextmanager
def secured(world: World, directory: Path) -> Iterator[Place]:
    """A second gateway of the same cluster, which wants passwords. Alice may read the topic, bob may not."""
    server, log = world.server, directory / "secured.log"
    config = directory / "secured.toml"
    config.write_text(server.config.read_text() + SECURED)
    (directory / "password").write_text(SECRET)
    for name in ("alice", "bob"):
        server.cli("user", "add", name, "--config", str(config), "--new-password-file", str(directory / "password"))
    allowed = ("--principal", "User:alice", "--operation", "read", "--topic", TOPIC)
    server.cli("acl", "add", *allowed, "--bootstrap", server.bootstrap)
    address = f"127.0.0.1:{free_port()}"
    gateway = Process(
        "gateway", config, log, server.variables, options=["--http", "127.0.0.1:0", "--gateway-http", address]
    )
    gateway.launch()
    try:
        gateway.wait_until_ready()
        yield replace(world.place, catalog=f"http://{address}/iceberg")
        assert SECRET not in log.read_text()
        assert gateway.stop() == 0
    finally:
        gateway.kill()


def check_passwords(trino: Trino, world: World, directory: Path) -> None:
    """With a name and a password Trino sees what the user may; without, or with wrong ones, nothing."""
    with secured(world, directory) as place:
        trino.attach("alices", iceberg(place, credential=f"alice:{SECRET}"))
        assert trino.rows(f"SHOW TABLES FROM alices.{NAMESPACE}") == [[TOPIC]]
        assert rows_of(trino, f"alices.{TABLE}") == world.after
        check_versions(trino, "alices", world)
        check_writes(trino, "alices", world)
        trino.attach("bobs", iceberg(place, credential=f"bob:{SECRET}"))
        assert trino.rows(f"SHOW TABLES FROM bobs.{NAMESPACE}") == []
        refused = _refused(trino, f"SELECT count(*) FROM bobs.{TABLE}")
        assert refused is not None and "does not exist" in str(refused), refused
        for name, credential in (("wrong", "alice:guess"), ("nobody", f"nobody:{SECRET}"), ("unknown", "")):
            trino.attach(name, iceberg(place, credential=credential))
            refused = _refused(trino, f"SELECT count(*) FROM {name}.{TABLE}")
            assert refused is not None and any("not authenticated" in cause for cause in refused.causes), refused


def _refused(trino: Trino, statement: str) -> TrinoFailed | None:
    try:
        trino.rows(statement)
    except TrinoFailed as failed:
        return failed
    return None


@contextmanager
def in_s3(directory: Path) -> Iterator[Headwater]:
    directory.mkdir()
    with S3Server(directory) as s3:
        objects = f"{s3.url}/lakes/first"
        with Headwater(
            directory / "headwater", lake=True, settings=OPEN, objects=objects, variables=s3.environment
        ) as server:
            yield server


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    verdict = Verdict("topics in Trino")
    with workplace("trino") as directory, Trino(directory / "trino") as trino:
        with Headwater(directory / "local", lake=True, settings=OPEN) as server:
            world = World(server)
            trino.attach("lake", iceberg(world.place))
            check_reads(trino, "lake", world)
            shown = check_writes(trino, "lake", world)
            told = {name for name, text in shown.items() if INSTEAD in text}
            verdict.fact("refused, and users see what to do instead", ", ".join(sorted(told)))
            verdict.fact("refused, and it is in the cause, if at all", ", ".join(sorted(shown.keys() - told)))
            check_orphans(trino, "lake", world)
            check_passwords(trino, world, directory)
            check_delta(trino, "deltas", world, directory / "deltas")
            server.doctor()
        verdict.floor("rows read in a directory", len(world.after), 1)
        with in_s3(directory / "s3") as server:
            world = World(server)
            trino.attach("bucket", iceberg(world.place))
            check_reads(trino, "bucket", world)
            check_writes(trino, "bucket", world)
            check_orphans(trino, "bucket", world)
            check_delta(trino, "bucket_deltas", world, directory / "bucket_deltas")
            server.doctor()
        verdict.floor("rows read in S3", len(world.after), 1)
    verdict.leave()


if __name__ == "__main__":
    main()
