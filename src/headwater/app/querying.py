"""SQL in a gateway: the engines with their processes, and the service that answers queries with them.

Imported late: an installation without the extra `sql` lacks the libraries.
"""

from __future__ import annotations

from headwater.app.equipment import Equipment
from headwater.gateway.services import Services
from headwater.ops.metrics import Metric
from headwater.query.asking import Engine
from headwater.query.engines.contract import EngineRunner
from headwater.query.engines.duckdb.pool import DuckDB
from headwater.query.engines.spark.runner import Spark
from headwater.query.queries import Queries
from headwater.replica.domains import Domains
from headwater.settings.settings import Settings


class Querying:
    """DuckDB, Spark where its Java can open the objects, and the service in front of both."""

    def __init__(self, settings: Settings, own: Equipment, domains: Domains, services: Services) -> None:
        opener = own.openers[0]
        self._duckdb = DuckDB(settings, own.chance, opener)
        self._spark = Spark(settings, own.chance, opener)
        engines: dict[Engine, EngineRunner] = {Engine.DUCKDB: self._duckdb}
        if Spark.can_read(settings):
            engines[Engine.SPARK] = self._spark
        self.queries = Queries(domains, services.holding, settings.sql, engines, services.offload, services.typings)

    def __repr__(self) -> str:
        return f"<Querying by {self._duckdb!r} and {self._spark!r}>"

    async def open(self) -> None:
        """Start the processes that wait for queries."""
        await self._duckdb.open()

    async def close(self) -> None:
        """End the queries, then the processes."""
        await self.queries.close()
        await self._duckdb.close()
        await self._spark.close()

    def metrics(self) -> list[Metric]:
        """The metrics of queries and processes."""
        return self.queries.metrics({Engine.DUCKDB: self._duckdb.workers, Engine.SPARK: self._spark.workers})
