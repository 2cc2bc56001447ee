"""Engines read a topic's Iceberg table: by its metadata file, by its root alone, and through the catalog."""

import asyncio
import contextlib
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.table import StaticTable

from headwater.api.lead import CatalogLead
from headwater.gateway.catalog import RestCatalog
from headwater.gateway.server import HttpServer as Server
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects import open_store
from headwater.ops.http import HttpServer
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway
from tests.support.promise import promise
from tests.support.rules import NO_RULES
from tests.unit.lake.tables.iceberg.story import REF, ROOT, Story, rows

PROMISES = ("T3",)


class OneTable:
    """A catalog's view of one table."""

    def __init__(self, name: str, location: str) -> None:
        self._name = name
        self._location = location

    async def catch_up(self, name: str | None) -> None: ...

    def names(self) -> Iterable[str]:
        return [self._name]

    def location(self, name: str) -> str | None:
        return self._location if name == self._name else None


async def make_table(directory: Path) -> tuple[str, str]:
    """A table that was settled, merged and settled again; its store's URL and where its metadata lies."""
    store = open_store(directory.as_uri())
    follower, story = IcebergFollower(store), Story(directory)
    first = story.settle(0, 5, files=2)
    await story.follow(follower)
    second = story.settle(1, 4)
    await story.follow(follower)
    story.merge(*first, *second)
    story.settle(0, 3)
    standing = await story.follow(follower)
    await follower.announce(REF, standing.location)
    await store.close()
    return store.url, standing.location


EXPECTED = pa.concat_tables([rows(0, 0, 13), rows(1, 0, 4)])


def in_order(found: pa.Table) -> list[dict[str, object]]:
    """All rows. pyiceberg shows a list that is null as an empty one."""
    order = found.select(EXPECTED.column_names).sort_by([("partition", "ascending"), ("offset", "ascending")])
    return [{**row, "headers": row["headers"] or []} for row in order.to_pylist()]


@promise("T3")
def test_pyiceberg_reads_the_metadata_file(tmp_path: Path) -> None:
    """Rows, earlier versions, and filters that skip files."""
    url, location = asyncio.run(make_table(tmp_path))
    table = StaticTable.from_metadata(f"{url}/{location}")
    assert in_order(table.scan().to_arrow()) == in_order(EXPECTED)
    counts = [table.scan(snapshot_id=s.snapshot_id).to_arrow().num_rows for s in table.metadata.snapshots]
    assert counts == [10, 14, 17]
    assert len(list(table.scan(row_filter="partition = 0 and offset >= 10").plan_files())) == 1
    assert table.scan(row_filter="offset >= 10").to_arrow().num_rows == 3
    assert not list(table.scan(row_filter="timestamp < '2020-01-01T00:00:00+00:00'").plan_files())


@promise("T3")
def test_duckdb_reads_the_metadata_file(tmp_path: Path) -> None:
    """DuckDB sees the same rows."""
    url, location = asyncio.run(make_table(tmp_path))
    for extension in ("avro", "iceberg"):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute("LOAD avro; LOAD iceberg; SET TimeZone = 'UTC'")
        path = f"{tmp_path}/{location}"
        assert url == tmp_path.as_uri()
        found = connection.execute(
            f'SELECT partition, count(*), max("offset"), sum(octet_length(value)), count(key), '
            f"sum(len(headers)) FROM iceberg_scan('{path}') GROUP BY partition ORDER BY partition"
        ).fetchall()
        expected = [
            (
                partition,
                len(part),
                max(row["offset"] for row in part),
                sum(len(row["value"]) for row in part),
                sum(row["key"] is not None for row in part),
                sum(len(row["headers"] or ()) for row in part),
            )
            for partition in (0, 1)
            for part in [[row for row in EXPECTED.to_pylist() if row["partition"] == partition]]
        ]
        assert found == expected
        snapshots = connection.execute(f"SELECT count(*) FROM iceberg_snapshots('{path}')").fetchone()
        assert snapshots == (3,)


COUNTS = 'SELECT "partition", count(*), max("offset"), sum(length("value")) FROM {} GROUP BY 1 ORDER BY 1'
COUNTED = [(0, 13, 12, 29), (1, 4, 3, 8)]


def test_duckdb_finds_the_newest_metadata_by_the_root(tmp_path: Path) -> None:
    """Without a catalog, a version or a setting."""
    asyncio.run(make_table(tmp_path))
    for extension in ("avro", "iceberg"):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute("LOAD avro; LOAD iceberg")
        root = f"iceberg_scan('{tmp_path}/{ROOT}')"
        found = connection.execute(COUNTS.replace("length", "octet_length").format(root)).fetchall()
        assert found == COUNTED


def test_clickhouse_finds_the_newest_metadata_by_the_root(tmp_path: Path) -> None:
    """By the greatest number in the names, and by the hint. chDB reads below its working directory only."""
    asyncio.run(make_table(tmp_path))
    ways = ("", ", SETTINGS iceberg_use_version_hint = 1")
    statements = [COUNTS.format(f"icebergLocal('{tmp_path}/{ROOT}'{settings})") for settings in ways]
    asking = f"import chdb\nfor sql in {statements!r}:\n    print(chdb.query(sql, 'CSV'))"
    done = subprocess.run(
        [sys.executable, "-c", asking], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [tuple(map(int, line.split(","))) for line in done.stdout.split()] == 2 * COUNTED


@contextlib.asynccontextmanager
async def catalogs(directory: Path, name: str) -> AsyncIterator[tuple[str, str]]:
    """Two URLs of the catalog: that of a gateway, and that of the pages of a process, which lead there."""
    _, location = await make_table(directory)
    store = open_store(directory.as_uri())
    settings = Settings(gateway=Gateway(http="127.0.0.1:0"))
    async with gateway(settings) as found:
        found.services.catalog = RestCatalog(OneTable(name, location), store, NO_RULES)
        server = Server(settings, found.app, found.services.stats, found.core.background)
        await server.open()
        lead = HttpServer({"/iceberg/": CatalogLead(lambda: server.url, {}).page})
        port = await lead.listen("127.0.0.1", 0)
        try:
            yield f"{server.url}/iceberg", f"http://127.0.0.1:{port}/iceberg"
        finally:
            await lead.close()
            await server.close(0)
            await store.close()


@promise("T3")
def test_pyiceberg_reads_through_the_catalog(tmp_path: Path) -> None:
    """The catalog alone is enough to find and read a table whose name has a dot, also by its former URL."""

    async def run() -> list[pa.Table]:
        async with catalogs(tmp_path, "web.clicks-v2") as urls:
            return [await asyncio.to_thread(scan, url) for url in urls]

    def scan(url: str) -> pa.Table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            client = Client("headwater", uri=url)
            try:
                [name] = client.list_tables("topics")
                return client.load_table(name).scan().to_arrow()
            finally:
                client.close()

    for found in asyncio.run(run()):
        assert in_order(found) == in_order(EXPECTED)


@promise("T3")
def test_duckdb_reads_through_the_catalog(tmp_path: Path) -> None:
    """DuckDB attaches the catalog, also by its former URL."""

    async def run() -> list[Any]:
        async with catalogs(tmp_path, "orders") as urls:
            return [await asyncio.to_thread(count, url) for url in urls]

    def count(url: str) -> Any:
        for extension in ("httpfs", "avro", "iceberg"):
            import_extension(extension)
        with duckdb.connect() as connection:
            connection.execute("LOAD httpfs; LOAD avro; LOAD iceberg")
            connection.execute(f"ATTACH '' AS h (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
            return connection.execute('SELECT count(*), sum("offset") FROM h.topics.orders').fetchall()

    wanted = [(EXPECTED.num_rows, sum(EXPECTED["offset"].to_pylist()))]
    assert asyncio.run(run()) == [wanted, wanted]
