"""T3: Spark's own Iceberg connector reads topic tables through the REST catalog."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.api.catalog import RestCatalog
from headwater.lake.spark.java import java_home
from headwater.objects import open_store
from headwater.ops.http import HttpServer
from tests.engines.iceberg_session import JARS, SESSION
from tests.engines.test_iceberg_readers import OneTable, make_table
from tests.faults.running import needs
from tests.support.rules import NO_RULES

TABLE = "headwater.topics.`web.clicks-v2`"

PROGRAM = f"""
{SESSION}ask = lambda text: [list(row) for row in spark.sql(text).collect()]
snapshots = ask("SELECT snapshot_id, operation, summary['headwater.journal.last'] FROM {TABLE}.snapshots "
                "ORDER BY committed_at")
found = {{
    "namespaces": ask("SHOW NAMESPACES IN headwater"),
    "tables": ask("SHOW TABLES IN headwater.topics"),
    "partitions": ask("SELECT partition, count(*), max(offset), count(key), sum(coalesce(size(headers), 0)) "
                      "FROM {TABLE} GROUP BY partition ORDER BY partition"),
    "late": ask("SELECT count(*) FROM {TABLE} WHERE partition = 0 AND offset >= 10"),
    "snapshots": [row[1:] for row in snapshots],
    "before": ask(f"SELECT count(*) FROM {TABLE} VERSION AS OF {{snapshots[0][0]}}"),
    "files": ask("SELECT count(*), sum(record_count) FROM {TABLE}.files"),
}}
try:
    spark.sql("DELETE FROM {TABLE} WHERE partition = 0")
    found["delete"] = "allowed"
except Exception as error:
    found["delete"] = "refused" if "does not support endpoint: POST" in str(error) else str(error)
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.mark.timeout(300)
def test_spark_reads_through_the_catalog(tmp_path: Path) -> None:
    """T3: rows, filters, earlier versions and metadata tables; writing is refused."""
    needs("Spark's Iceberg connector in .tools/spark/jars: run scripts/setup-tools spark", bool(JARS))

    async def run() -> str:
        _, location = await make_table(tmp_path)
        store = open_store(tmp_path.as_uri())
        http = HttpServer({"/iceberg/": RestCatalog(OneTable("web.clicks-v2", location), store, NO_RULES).page})
        port = await http.listen("127.0.0.1", 0)
        try:
            return await asyncio.to_thread(spark, f"http://127.0.0.1:{port}/iceberg")
        finally:
            await http.close()
            await store.close()

    def spark(uri: str) -> str:
        environment = {
            **os.environ,
            "JAVA_HOME": java_home(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-c", PROGRAM, str(JARS[-1]), uri]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path)
        told = [line for line in done.stderr.splitlines() if "Exception" in line or "Error" in line]
        assert done.returncode == 0, "\n".join(told)
        return done.stdout

    [line] = [line for line in asyncio.run(run()).splitlines() if line.startswith("FOUND ")]
    assert json.loads(line.removeprefix("FOUND ")) == {
        "namespaces": [["topics"]],
        "tables": [["topics", "web.clicks-v2", False]],
        "partitions": [[0, 13, 12, 8, 12], [1, 4, 3, 2, 4]],
        "late": [[3]],
        "snapshots": [["append", "1"], ["append", "2"], ["overwrite", "4"]],
        "before": [[10]],
        "files": [[2, 17]],
        "delete": "refused",
    }
