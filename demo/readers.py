"""The readers of a topic. Each returns the number of rows and a checksum that does not depend on their order.

Every reader opens the data with its own code: a Kafka client, Spark with Iceberg's and Delta's own connectors,
pyiceberg, delta-rs, DuckDB.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.storage import Place
from harness.tools import TOOLS

JARS = TOOLS / "spark" / "jars"
S3_JARS = TOOLS / "spark-s3" / "libs"
COLUMNS = ["partition", "offset", "key", "value"]
MASK = (1 << 64) - 1
SILENT_POLLS = 300
CATALOG = "headwater"
NAMESPACE = "topics"
NOTHING_MORE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of rows, and their checksum."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, (self.checksum + other.checksum) & MASK)

    def __str__(self) -> str:
        return f"{self.rows:>10,} rows  checksum {self.checksum:016x}"


def sum_of(rows: Iterable[tuple[int, int, bytes | None, bytes | None]]) -> Sum:
    """The sum of (partition, offset, key, value)."""
    count = total = 0
    for partition, offset, key, value in rows:
        start = zlib.crc32(b"%d:%d" % (partition, offset))
        total += zlib.crc32(value or b"", zlib.crc32(key or b"", start))
        count += 1
    return Sum(count, total & MASK)


def sum_of_arrow(batches: Iterable[Any]) -> Sum:
    """The sum of Arrow batches or tables."""
    found = Sum()
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        found += sum_of(zip(*columns, strict=True))
    return found


# --- readers -------------------------------------------------------------------------------------------------


def kafka(place: Place) -> Sum:
    """librdkafka, every partition from its beginning to its end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "demo", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(place.topic, timeout=30).topics[place.topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(place.topic, p), timeout=30)[1] for p in partitions}
        consumer.assign([TopicPartition(place.topic, p, 0) for p in partitions])
        left = {p for p, end in ends.items() if end}
        found, silent = Sum(), 0
        while left:
            messages = consumer.consume(10_000, timeout=0.1)
            silent = 0 if messages else silent + 1
            if silent > SILENT_POLLS:
                raise RuntimeError(f"the consumer got nothing more of {place.topic}, partitions {sorted(left)}")
            rows: list[tuple[int, int, bytes | None, bytes | None]] = []
            for message in messages:
                partition, offset = message.partition(), message.offset()
                if message.error() or partition is None or offset is None:
                    raise RuntimeError(str(message.error()))
                if offset + 1 >= ends[partition]:
                    left.discard(partition)
                rows.append((partition, offset, message.key(), message.value()))
            found += sum_of(rows)
        return found
    finally:
        consumer.close()


def pyiceberg(place: Place) -> Sum:
    """pyiceberg, through the REST catalog."""
    table = _table(place)
    return sum_of_arrow(table.scan(selected_fields=tuple(COLUMNS)).to_arrow_batch_reader())


def _table(place: Place) -> Any:
    """The topic's table from the REST catalog. The catalog has the address of the objects, `place` the credentials."""
    from pyiceberg.catalog.rest import RestCatalog

    own = place.access.of_iceberg if place.access else {}
    return RestCatalog(CATALOG, uri=place.catalog, **own).load_table((NAMESPACE, place.topic))


def delta_rs(place: Place) -> Sum:
    """delta-rs, by path."""
    from deltalake import DeltaTable

    options = place.access.of_delta_rs if place.access else None
    return sum_of_arrow([DeltaTable(place.root, storage_options=options).to_pyarrow_table(columns=COLUMNS)])


def duckdb_iceberg(place: Place) -> Sum:
    """DuckDB's Iceberg reader, on the metadata file that the REST catalog names."""
    return _duckdb(place, f"iceberg_scan('{_table(place).metadata_location}')", "avro", "iceberg")


def duckdb_attached(place: Place) -> Sum:
    """DuckDB with the REST catalog attached as a database."""
    attach = f"ATTACH '' AS {CATALOG} (TYPE iceberg, ENDPOINT '{place.catalog}', AUTHORIZATION_TYPE 'none')"
    return _duckdb(place, f'{CATALOG}.{NAMESPACE}."{place.topic}"', "avro", "iceberg", first=attach)


def duckdb_delta(place: Place) -> Sum:
    """DuckDB's Delta reader, by path."""
    return _duckdb(place, f"delta_scan('{place.root}')", "delta")


def _duckdb(place: Place, source: str, *extensions: str, first: str = "") -> Sum:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    try:
        for name in ("httpfs", *extensions) if place.access or first else extensions:
            import_extension(name)
            connection.execute(f"LOAD {name}")
        if place.access:
            connection.execute(place.access.of_duckdb)
        if first:
            connection.execute(first)
        chosen = ", ".join(f'"{name}"' for name in COLUMNS)
        return sum_of_arrow(connection.execute(f"SELECT {chosen} FROM {source}").to_arrow_reader(100_000))
    finally:
        connection.close()


def catalog_settings(place: Place) -> dict[str, str]:
    """Settings of a Spark session that reads a topic: Headwater's REST catalog, and how to reach the objects."""
    return {
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "rest",
        f"spark.sql.catalog.{CATALOG}.uri": place.catalog,
        **(place.access.of_spark(CATALOG) if place.access else {}),
    }


@contextmanager
def spark(place: Place, more: Mapping[str, str] = NOTHING_MORE) -> Iterator[Any]:
    """A Spark session with Iceberg's and Delta's own connectors, Headwater's REST catalog, and further settings."""
    from headwater.lake.spark.archive import with_archive
    from headwater.lake.spark.java import java_home
    from headwater.lake.spark.session import JAVA_OPTIONS, drop_gateway

    os.environ["JAVA_HOME"] = home = java_home()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    folders = (JARS, S3_JARS) if place.access else (JARS,)
    jars = [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]
    if not all(any(folder.glob("*.jar")) for folder in folders):
        raise RuntimeError("Spark's connectors are missing: run scripts/setup-tools spark spark-s3")
    delta, iceberg = "io.delta.sql.DeltaSparkSessionExtension", "org.apache.iceberg.spark.extensions"
    conf = {
        "spark.jars": ",".join(jars),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": f"{iceberg}.IcebergSparkSessionExtensions,{delta}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else VACUUM lists files with 10,000 tasks
        **catalog_settings(place),
        **more,
    }
    conf[JAVA_OPTIONS] = with_archive(conf.get(JAVA_OPTIONS, ""), home)
    builder = SparkSession.builder.master("local[2]").appName("readers")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        drop_gateway()  # the next session may need other jars, which a JVM loads only at its start


def spark_iceberg(place: Place, session: Any) -> Sum:
    """Spark, Iceberg's connector, through the REST catalog."""
    return _spark(session.table(f"{CATALOG}.{NAMESPACE}.`{place.topic}`"))


def spark_delta(place: Place, session: Any) -> Sum:
    """Spark, Delta's connector, by path."""
    return _spark(session.read.format("delta").load(place.root.replace("s3://", "s3a://", 1)))


def _spark(frame: Any) -> Sum:
    """Sum up the rows on Spark's workers. Only the sums come back."""

    def add_up(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from demo.readers import sum_of_arrow as summed

        found = summed(batches)
        yield pa.record_batch([pa.array([found.rows]), pa.array([str(found.checksum)])], ["n", "checksum"])

    rows = frame.select(*COLUMNS).mapInArrow(add_up, "n long, checksum string").collect()
    found = Sum()
    for row in rows:
        found += Sum(row["n"], int(row["checksum"]))
    return found


PLAIN = {
    "Kafka consumer (librdkafka)": kafka,
    "pyiceberg, REST catalog": pyiceberg,
    "DuckDB, Iceberg": duckdb_iceberg,
    "DuckDB, REST catalog attached": duckdb_attached,
    "delta-rs": delta_rs,
    "DuckDB, Delta": duckdb_delta,
}
ON_SPARK = {"Spark, Iceberg, REST catalog": spark_iceberg, "Spark, Delta": spark_delta}
