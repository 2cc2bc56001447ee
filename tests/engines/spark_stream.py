"""A program of a user: copies a topic into an Iceberg table, batch by batch, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from demo.readers import spark
from harness.jvm import OF_SPARK
from harness.storage import Place

NOWHERE = Place("", "", "http://127.0.0.1:1/iceberg", "")


def mine(warehouse: Path) -> dict[str, str]:
    """Settings of an Iceberg catalog of the user's own."""
    return {
        "spark.sql.catalog.mine": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.mine.type": "hadoop",
        "spark.sql.catalog.mine.warehouse": str(warehouse),
    }


def copying(session: Any, url: str, topic: str, checkpoint: Path, table: str, **options: str) -> Any:
    """A query that copies a topic into a table."""
    reader = session.readStream.format("headwater").options(url=url, topic=topic, **options)
    writer = reader.load().writeStream.format("iceberg").outputMode("append")
    return writer.option("checkpointLocation", str(checkpoint)).toTable(table)


def main(url: str, topic: str, checkpoint: str, warehouse: str, table: str) -> None:
    from headwater.spark import register

    with spark(NOWHERE, {**OF_SPARK, **mine(Path(warehouse))}) as session:
        register(session)
        copying(session, url, topic, Path(checkpoint), table, maxRowsPerBatch="150").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
