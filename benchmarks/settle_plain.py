"""The plain way: PySpark appends the same rows from Parquet into an Iceberg table, by Iceberg's own connector."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settle_inputs import Input
from benchmarks.settle_measure import ICEBERG, LOG_SUMS, Meter, Sample, check, files_below, newest_metadata, sync
from benchmarks.systems import BenchError
from harness.tools import ROOT
from headwater.lake.spark.java import java_home
from headwater.lake.spark.session import LOG_CONFIG

SUBJECT = "plain PySpark append"
JARS = ROOT / ".tools" / "spark" / "jars"
CATALOG = "plain"
OPEN_COST = 4 << 20
"""What Spark adds to a file's size when it cuts its input into tasks."""


class Plain:
    """A session with Iceberg's connector and a catalog in a directory. Use `open_plain`."""

    def __init__(self, session: Any, directory: Path, master: str) -> None:
        self._session = session
        self._warehouse = directory
        self._master = master

    def append(self, name: str, data: Input, segments: list[Path], times: int) -> Iterator[Sample]:
        """Append the rows of segments that Headwater settled, so many times; each append is a sample."""
        # One task for each segment, so that the files come out as large as ours.
        largest = max(path.stat().st_size for path in segments)
        self._session.conf.set("spark.sql.files.maxPartitionBytes", str(largest + OPEN_COST))
        frame = self._session.read.parquet(*map(str, segments))
        table = f"{CATALOG}.db.{name}"
        codec = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}
        creator = frame.limit(0).writeTo(table).using("iceberg")
        for key, value in codec.items():
            creator = creator.tableProperty(key, value)
        creator.create()
        directory = self._warehouse / "db" / name
        for number in range(1, times + 1):
            before, meter = files_below(directory), Meter()
            frame.writeTo(table).append()
            new = files_below(directory) - before
            sync(new)
            spent = meter.read()
            wanted = (data.rows * number, data.rows * number * data.case.value_bytes, data.rows)
            check(table, f"iceberg_scan('{newest_metadata(directory)}')", ICEBERG, LOG_SUMS, wanted)
            sizes = [path.stat().st_size for path in new if path.suffix == ".parquet"]
            yield Sample(
                subject=SUBJECT, master=self._master, case=data.case.name, streams=1, rows=data.rows,
                value_bytes=data.case.value_bytes, files=len(sizes), file_bytes=sum(sizes), cpu=spent.cpu,
                wall=spent.wall, cpu_of=spent.cpu_of, others=spent.others,
            )  # fmt: skip


@contextmanager
def open_plain(directory: Path, master: str) -> Iterator[Plain]:
    jars = sorted(str(jar) for jar in JARS.glob("iceberg-spark-runtime-*.jar"))
    if not jars:
        raise BenchError("Iceberg's connector is missing under .tools/spark/jars: run scripts/setup-tools spark")
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    conf = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(directory),
    }
    builder = SparkSession.builder.master(master).appName("plain append")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield Plain(session, directory, master)
    finally:
        _end(session)


def _end(session: Any) -> None:
    """Stop the session and its JVM: the next one may be on another master."""
    from pyspark.core.context import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
