"""Topics in a Spark session of yours: `spark.read.format("headwater")` and `spark.readStream.format("headwater")`.

    from headwater.spark import register

    register(spark)
    spark.read.format("headwater").option("url", "http://127.0.0.1:8081").load("orders").show()

PySpark is imported by `register`. Executors need this package too. `docs/guides/spark.md` explains the options.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["register"]


class _Sources(Protocol):
    def register(self, dataSource: Any) -> None: ...


class Session(Protocol):
    """What is needed of a Spark session."""

    @property
    def dataSource(self) -> _Sources: ...


def register(session: Session) -> None:
    """Make the format `headwater` known to a Spark session. Every session needs it once."""
    from headwater.spark.source import HeadwaterSource

    session.dataSource.register(HeadwaterSource)
