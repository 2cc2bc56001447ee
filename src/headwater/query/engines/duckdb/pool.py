"""DuckDB as an engine: a few processes, of which some are started before the first query."""

from __future__ import annotations

from headwater.clock import Chance
from headwater.query.asking import Engine
from headwater.query.engines.cores import shared_by
from headwater.query.engines.pool import Pool, Rules, Start
from headwater.query.engines.process import WorkerProcess
from headwater.settings.settings import Settings
from headwater.threads import Offload, inline

MODULE = "headwater.query.engines.duckdb.worker"


class DuckDB(Pool):
    """The processes of DuckDB."""

    def __init__(
        self, settings: Settings, chance: Chance, offload: Offload = inline, start: Start = WorkerProcess.start
    ) -> None:
        own = settings.sql
        rules = Rules(engine=Engine.DUCKDB, module=MODULE, workers=own.workers, warm=own.warm, waiting=own.waiting)
        super().__init__(rules, settings, own.memory_bytes, chance, offload, start, shared_by(own.niceness))
