"""Spark as an engine: one process, which is started by the first query and ends when none has come for a while."""

from __future__ import annotations

from headwater.clock import Chance
from headwater.query.asking import Engine
from headwater.query.engines.cores import shared_by
from headwater.query.engines.pool import Pool, Rules, Start
from headwater.query.engines.process import WorkerProcess
from headwater.query.engines.spark.places import can_read
from headwater.settings.settings import Settings
from headwater.threads import Offload, inline

MODULE = "headwater.query.engines.spark.worker"


class Spark(Pool):
    """The process of Spark. It answers one query at a time."""

    def __init__(
        self, settings: Settings, chance: Chance, offload: Offload = inline, start: Start = WorkerProcess.start
    ) -> None:
        own = settings.sql
        rules = Rules(
            engine=Engine.SPARK,
            module=MODULE,
            workers=1,
            waiting=own.waiting,
            idle_seconds=own.spark_idle_seconds,
        )
        super().__init__(rules, settings, own.spark_memory_bytes, chance, offload, start, shared_by(own.niceness))

    @staticmethod
    def can_read(settings: Settings) -> bool:
        """Whether Spark's Java can open the objects."""
        return can_read(settings.objects_url, settings.sql.spark_jars)
