"""Spark's own Iceberg connector reads topic tables through the REST catalog, as they are and as they were.

One Spark session reads for all tests, each through a catalog of its own.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.api.lead import CatalogLead
from headwater.gateway.catalog import RestCatalog
from headwater.lake.tables.follower import HOUR_MS
from headwater.lake.tables.iceberg.retention import hour_tag
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.lake.versions import changes, span
from headwater.objects import ObjectStore, open_store
from headwater.ops.http import HttpServer
from headwater.query.scan import schema_of
from headwater.sdk.scan import Rows, Scan
from tests.engines.conftest import Open
from tests.engines.test_iceberg_readers import OneTable, make_table
from tests.support.promise import promise
from tests.support.rules import NO_RULES
from tests.unit.lake.tables.iceberg.story import REF, Story

PROMISES = ("T3", "T15")

NAME = "web.clicks-v2"
# py4j leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_catalogs = itertools.count(1)


@pytest.fixture(scope="module")
def session(open_session: Open) -> Any:
    return open_session()


Ask = Callable[[str], list[list[Any]]]


@asynccontextmanager
async def served(session: Any, store: ObjectStore, location: str) -> AsyncIterator[str]:
    """Serve a table by the REST catalog; its name for Spark, which has the URL of a page that leads there."""
    catalog = HttpServer({"/iceberg/": RestCatalog(OneTable(NAME, location), store, NO_RULES).page})
    url = f"http://127.0.0.1:{await catalog.listen('127.0.0.1', 0)}"
    http = HttpServer({"/iceberg/": CatalogLead(lambda: url, {}).page})
    port = await http.listen("127.0.0.1", 0)
    name = f"catalog{next(_catalogs)}"
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest",
                       ".uri": f"http://127.0.0.1:{port}/iceberg"}.items():  # fmt: skip
        session.conf.set(f"spark.sql.catalog.{name}{key}", value)
    try:
        yield name
    finally:
        await http.close()
        await catalog.close()
        await store.close()


def asking(session: Any) -> Ask:
    return lambda text: [list(row) for row in session.sql(text).collect()]


@promise("T3")
def test_spark_reads_through_the_catalog(session: Any, tmp_path: Path) -> None:
    """Rows, filters, earlier versions and metadata tables; writing is refused."""

    def look(catalog: str) -> dict[str, Any]:
        ask, table = asking(session), f"{catalog}.topics.`{NAME}`"
        snapshots = ask(
            f"SELECT snapshot_id, operation, summary['headwater.journal.last'] FROM {table}.snapshots "
            "ORDER BY committed_at"
        )
        found: dict[str, Any] = {
            "namespaces": ask(f"SHOW NAMESPACES IN {catalog}"),
            "tables": ask(f"SHOW TABLES IN {catalog}.topics"),
            "partitions": ask(
                "SELECT partition, count(*), max(offset), count(key), sum(coalesce(size(headers), 0)) "
                f"FROM {table} GROUP BY partition ORDER BY partition"
            ),
            "late": ask(f"SELECT count(*) FROM {table} WHERE partition = 0 AND offset >= 10"),
            "snapshots": [row[1:] for row in snapshots],
            "before": ask(f"SELECT count(*) FROM {table} VERSION AS OF {snapshots[0][0]}"),
            "files": ask(f"SELECT count(*), sum(record_count) FROM {table}.files"),
        }
        with pytest.raises(Exception, match="produce to the topic"):
            session.sql(f"DELETE FROM {table} WHERE partition = 0")
        return found

    async def run() -> dict[str, Any]:
        _, location = await make_table(tmp_path)
        async with served(session, open_store(tmp_path.as_uri()), location) as catalog:
            return await asyncio.to_thread(look, catalog)

    assert asyncio.run(run()) == {
        "namespaces": [["topics"]],
        "tables": [["topics", "web.clicks-v2", False]],
        "partitions": [[0, 13, 12, 8, 12], [1, 4, 3, 2, 4]],
        "late": [[3]],
        "snapshots": [["append", "1"], ["append", "2"], ["overwrite", "4"]],
        "before": [[10]],
        "files": [[2, 17]],
    }


@promise("T15")
def test_spark_reads_versions(session: Any, tmp_path: Path) -> None:
    """`VERSION AS OF` a tag; incremental reads over merges, by snapshots and by the offset predicate."""
    story, ended = Story(tmp_path), dict[str, list[list[int]]]()

    def shown() -> list[list[int]]:
        return [[p, offset] for p, end in sorted(story.ends.items()) for offset in range(end)]

    def rows(frame: Any) -> list[list[int]]:
        return sorted(list(row) for row in frame.select("partition", "offset").collect())

    def look(catalog: str, spans: list[tuple[int, int, str]]) -> tuple[dict[str, Any], list[Any], list[Any]]:
        table = f"{catalog}.topics.`{NAME}`"
        tags = {tag: rows(session.sql(f"SELECT * FROM {table} VERSION AS OF '{tag}'")) for tag in sorted(ended)[:-1]}
        by_snapshots, by_predicates = [], []
        for after, upto, predicate in spans:
            reader = session.read.format("iceberg").option("end-snapshot-id", upto).option("start-snapshot-id", after)
            by_snapshots.append(rows(reader.load(table)))
            by_predicates.append(rows(session.sql(f"SELECT * FROM {table} WHERE {predicate}")))
        return tags, by_snapshots, by_predicates

    async def run() -> None:
        store = open_store(tmp_path.as_uri())
        follower = IcebergFollower(store, tag_hours=48)
        for number in range(9):
            story.ms += HOUR_MS // 2
            added = story.settle(number % 2, 3)
            await story.follow(follower)
            if number % 3 == 2:
                story.merge(added[0] - 1, added[0])
                await story.follow(follower)
            ended[hour_tag(story.ms)] = shown()
        versions = await follower.versions(REF, story.known(follower).location)
        spans, wanted = [], []
        for after, upto in ((1, 2), (2, 8), (3, 12), (4, 5)):
            found, change = span(versions, after, upto), changes(story.table, after, upto)
            assert found is not None
            assert found.after is not None
            spans.append((found.after, found.upto, change.predicate))
            wanted.append([[r.partition, offset] for r in change.ranges for offset in range(r.start, r.end)])
        async with served(session, store, story.known(follower).location) as catalog:
            tags, by_snapshots, by_predicates = await asyncio.to_thread(look, catalog, spans)
        assert len(tags) >= 4
        assert tags == {name: ended[name] for name in sorted(ended)[:-1]}
        assert by_snapshots == wanted
        assert by_predicates == wanted

    asyncio.run(run())


@promise("H5")
def test_scans_become_data_frames(session: Any) -> None:
    """`Scan.to_spark`, with nulls, headers and bytes that are not text."""
    row = {"partition": 1, "offset": 2**40, "timestamp_ms": 5, "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
           "key": None, "value": b"\xff", "headers": [{"key": "h", "value": None}], "headers_raw": None,
           "attributes": 0, "producer_id": -1, "producer_epoch": -1, "sequence": -1}  # fmt: skip
    rows = pa.RecordBatch.from_pylist([row, {**row, "offset": 3, "headers": []}], schema=schema_of())
    frame = Scan(lambda: Rows(rows.schema, iter([rows])), schema_of, "topic 't'").to_spark(session)
    assert frame.columns == schema_of().names
    first, second = frame.orderBy("offset").collect()
    assert (first.offset, second.offset, bytes(second.value), second.key) == (3, 2**40, b"\xff", None)
    assert second.headers[0].key == "h" and second.headers[0].value is None and first.headers == []
    assert frame.where("offset > 3").count() == 1
