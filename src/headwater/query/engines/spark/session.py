"""The Spark session that answers queries. It is not the compactor's, and lives in a process of its own."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.lake.spark.archive import with_archive
from headwater.lake.spark.session import JAVA_OPTIONS, LOCAL_DEFAULTS, LOG_CONFIG

if TYPE_CHECKING:
    import pyarrow as pa

MIB = 1 << 20
ATTEMPTS = 4
"""How often a task of a query is tried."""
ROWS = 16_384
"""Rows of an Arrow batch that Spark gives."""
SPLIT_BYTES = 32 * MIB
"""Bytes of files that one task reads. The answer is fetched task by task, so this bounds memory too."""


def conf_of(memory_bytes: int, threads: int, directory: str) -> dict[str, str]:
    """Spark's settings: nothing but reading, and bounds on memory."""
    memory = max(512, memory_bytes // MIB)
    return {
        **LOCAL_DEFAULTS,
        "spark.driver.memory": f"{memory}m",
        "spark.driver.maxResultSize": f"{memory // 2}m",
        JAVA_OPTIONS: " ".join(
            (
                f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} -XX:+UseSerialGC",
                # Java may write to this directory, and to no other.
                f'"-Djava.io.tmpdir={directory}" "-XX:ErrorFile={directory}/error.log" -XX:-UsePerfData',
            )
        ),
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * threads),
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.python.worker.reuse": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


class Session:
    """A session. One thread works; `interrupt` and `percent` may be called by another."""

    def __init__(
        self,
        memory_bytes: int,
        threads: int,
        directory: str,
        java: str,
        class_path: str = "",
        hadoop: Mapping[str, str] | None = None,
    ) -> None:
        """`java` is Java's home. All that Spark writes is below `directory`. `hadoop` may have credentials."""
        os.environ["JAVA_HOME"] = java
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        from pyspark.sql import SparkSession

        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the gateway tells the caller
        builder = SparkSession.builder.master(f"local[{threads},{ATTEMPTS}]").appName("headwater-sql")
        conf = conf_of(memory_bytes, threads, directory)
        conf[JAVA_OPTIONS] = with_archive(conf[JAVA_OPTIONS], java)
        if class_path:
            conf["spark.driver.extraClassPath"] = class_path
        for name, value in conf.items():
            builder = builder.config(name, value)
        self._root = builder.getOrCreate()
        self._context: Any = self._root.sparkContext
        for name, value in (hadoop or {}).items():
            self._context._jsc.hadoopConfiguration().set(name, value)
        self._own: Any = None

    def begin(self) -> None:
        """Begin a query: views of earlier ones are not there."""
        self._own = self._root.newSession()

    def parsed(self, sql: str) -> Any:
        """A statement as Spark understands it, before names are looked up, as a document. Nothing is run."""
        return json.loads(self._own._jsparkSession.sessionState().sqlParser().parsePlan(sql).toJSON())

    def view(
        self,
        name: str,
        columns: pa.Schema,
        whole: Sequence[str],
        cut: Sequence[str],
        bounds: Sequence[tuple[int, int, int]],
    ) -> None:
        """A view of the rows of files. Of those that are cut only rows within bounds count.

        Columns and fields that a file does not have are null. All of it is Spark's own: data that Python gives would
        need processes of Python, which start slowly and may fail to.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(columns, prefer_timestamp_ntz=True)
        frame = self._read(whole, schema) if whole else self._empty(schema)
        if cut:
            values = ", ".join(f"({number}, {start}L, {min(end, (1 << 63) - 1)}L)" for number, start, end in bounds)
            names = "bound_partition, bound_start, bound_end"
            limits = self._own.sql(f"SELECT * FROM VALUES {values or '(-1, 0L, 0L)'} AS bounds({names})")
            rows = self._read(cut, schema)
            inside = (
                (rows["partition"] == limits["bound_partition"])
                & (rows["offset"] >= limits["bound_start"])
                & (rows["offset"] < limits["bound_end"])
            )
            frame = frame.unionAll(rows.join(f.broadcast(limits), inside, "leftsemi"))
        frame.createOrReplaceTempView(name)

    def _empty(self, schema: Any) -> Any:
        """No rows, with these columns."""
        from pyspark.sql import functions as f

        columns = [f.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
        return self._own.range(0).select(*columns)

    def _read(self, paths: Sequence[str], schema: Any) -> Any:
        return self._own.read.schema(schema).parquet(*paths)

    def prepared(self, sql: str, parameters: Mapping[str, Any]) -> Statement:
        """A statement with its columns known. Spark has looked all names up, and has run nothing."""
        return Statement(self._own, self._own.sql(sql, args=dict(parameters) or None))

    def interrupt(self) -> None:
        """End what runs."""
        self._context.cancelAllJobs()

    def percent(self) -> float:
        """How many of the tasks that are known are done; they become more as a query goes on."""
        tracker = self._context.statusTracker()
        total = done = 0
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                known = tracker.getStageInfo(stage)
                if known is not None:
                    total, done = total + known.numTasks, done + known.numCompletedTasks
        return 99.0 * done / total if total else 0.0


def without_directories(text: str) -> str:
    """A plan in which files have their names only."""
    return re.sub(r"[^\s,\]]+", _without_directory, text)


def _without_directory(found: re.Match[str]) -> str:
    word = found[0]
    begin, end = word.find("file:"), word.rfind("/")
    return word[:begin] + word[end + 1 :] if 0 <= begin < end else word


class Statement:
    """A statement that is ready to be run."""

    def __init__(self, session: Any, frame: Any) -> None:
        self._session = session
        self._frame = frame

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._frame.schema)

    @property
    def plan(self) -> str:
        """How Spark would run it, without the places of files."""
        return without_directories(str(self._frame._jdf.queryExecution().toString()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, task by task. Nothing is run ahead of the caller but one task."""
        import pyarrow as pa
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _local_iterator_from_socket

        java: Any = self._session.sparkContext._jvm
        served = java.PythonRDD.toLocalIteratorAndServe(self._frame._jdf.toArrowBatchRdd(), False)
        schema = self.schema
        for data in _local_iterator_from_socket(served, NoOpSerializer()):
            yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
