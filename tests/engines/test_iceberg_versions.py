"""T15: Spark's own Iceberg connector reads what came between two snapshots, and a table as it was at an hour's end."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.api.catalog import RestCatalog
from headwater.lake.spark.java import java_home
from headwater.lake.tables.follower import HOUR_MS
from headwater.lake.tables.iceberg import IcebergFollower
from headwater.lake.tables.iceberg_retention import hour_tag
from headwater.lake.versions import changes, span
from headwater.objects import open_store
from headwater.ops.http import HttpServer
from tests.engines.iceberg_session import JARS, SESSION
from tests.engines.test_iceberg_readers import OneTable
from tests.faults.running import needs
from tests.support.rules import NO_RULES
from tests.unit.lake.iceberg_story import REF, Story

NAME = "web.clicks-v2"
TABLE = f"headwater.topics.`{NAME}`"

PROGRAM = f"""
{SESSION}asked = json.loads(sys.argv[3])
rows = lambda frame: sorted(list(row) for row in frame.select("partition", "offset").collect())
found = {{"tags": {{}}, "spans": [], "predicates": []}}
for tag in asked["tags"]:
    found["tags"][tag] = rows(spark.sql(f"SELECT * FROM {TABLE} VERSION AS OF '{{tag}}'"))
for after, upto, predicate in asked["spans"]:
    reader = spark.read.format("iceberg").option("end-snapshot-id", upto).option("start-snapshot-id", after)
    found["spans"].append(rows(reader.load("{TABLE}")))
    found["predicates"].append(rows(spark.sql(f"SELECT * FROM {TABLE} WHERE {{predicate}}")))
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.mark.timeout(300)
def test_spark_reads_versions(tmp_path: Path) -> None:
    """T15: `VERSION AS OF` a tag; incremental reads over merges, by snapshots and by the offset predicate."""
    needs("Spark's Iceberg connector in .tools/spark/jars: run scripts/setup-tools spark", bool(JARS))
    story, ended = Story(tmp_path), dict[str, list[list[int]]]()

    def shown() -> list[list[int]]:
        return [[p, offset] for p, end in sorted(story.ends.items()) for offset in range(end)]

    async def run() -> tuple[str, list[tuple[int, int, str]], list[list[list[int]]]]:
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
        http = HttpServer(
            {"/iceberg/": RestCatalog(OneTable(NAME, story.known(follower).location), store, NO_RULES).page}
        )
        port = await http.listen("127.0.0.1", 0)
        try:
            question = json.dumps({"tags": sorted(ended)[:-1], "spans": spans})
            return await asyncio.to_thread(spark, f"http://127.0.0.1:{port}/iceberg", question), spans, wanted
        finally:
            await http.close()
            await store.close()

    def spark(uri: str, question: str) -> str:
        environment = {
            **os.environ,
            "JAVA_HOME": java_home(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-c", PROGRAM, str(JARS[-1]), uri, question]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path)
        told = [line for line in done.stderr.splitlines() if "Exception" in line or "Error" in line]
        assert done.returncode == 0, "\n".join(told)
        return done.stdout

    output, _, wanted = asyncio.run(run())
    [line] = [line for line in output.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert len(found["tags"]) >= 4
    assert found["tags"] == {name: ended[name] for name in sorted(ended)[:-1]}
    assert found["spans"] == wanted
    assert found["predicates"] == wanted
