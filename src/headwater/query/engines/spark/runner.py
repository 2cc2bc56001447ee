"""Spark as an engine: one process, which is started by the first query and ends when none has come for a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from headwater.background import Tasks
from headwater.clock import Chance
from headwater.query.asking import Engine, NoEngine
from headwater.query.engines.contract import Answer, EngineTask, Workers
from headwater.query.engines.frames import Setup
from headwater.query.engines.process import LentAnswer, WorkerProcess
from headwater.query.engines.spill import Spill
from headwater.settings.objects import local_path
from headwater.settings.settings import Settings
from headwater.threads import Offload, inline

MODULE = "headwater.query.engines.spark.worker"


class Spark:
    """The process of Spark. It answers one query at a time. `contract.EngineRunner` says how it is used."""

    engine = Engine.SPARK

    def __init__(
        self,
        settings: Settings,
        chance: Chance,
        offload: Offload = inline,
        start: Callable[[str, Setup], Awaitable[WorkerProcess]] = WorkerProcess.start,
    ) -> None:
        own = settings.sql
        self._own = own
        self._offload = offload
        self._start = start
        self._spill = Spill(settings.spill, chance)
        self._setup = Setup(
            store=settings.objects_url,
            options=settings.object_store,
            spill="",
            memory_bytes=own.spark_memory_bytes,
            spill_bytes=own.spill_bytes,
            hot_bytes=own.hot_bytes,
            threads=own.chosen_threads,
            niceness=own.niceness,
            log_level=settings.log_level,
            functions=own.functions,
        )
        self._worker: WorkerProcess | None = None
        self._directory = ""
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._starting = False
        self._deaths = 0
        self._opened = self._closed = False

    def __repr__(self) -> str:
        return f"<Spark: {self._worker!r}, {self._waiting} queries wait>"

    @staticmethod
    def can_read(settings: Settings) -> bool:
        """Whether Spark's Java can open the objects."""
        return local_path(settings.objects_url, "file") is not None

    @property
    def pid(self) -> int | None:
        """The process id, if there is a process."""
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    @property
    def workers(self) -> Workers:
        there = self.pid is not None
        busy = there and self._turn.locked()
        return Workers(
            busy=int(busy),
            idle=int(there and not busy),
            starting=int(self._starting),
            waiting=self._waiting,
            deaths=self._deaths,
        )

    async def run(self, task: EngineTask) -> Answer:
        """Give a task to the process, and start it if there is none. See `contract.EngineRunner`."""
        if self._closed:
            raise NoEngine("this gateway answers no queries at the moment")
        if self._waiting >= self._own.waiting:
            raise NoEngine(f"Spark answers another query, and {self._waiting} wait")
        async with self._in_line():
            await self._turn.acquire()
        try:
            worker = await self._ready()
            answer = LentAnswer(worker, task.id, self._give_back)
        except BaseException:
            self._turn.release()
            raise
        try:
            await answer.begin(task)
        except BaseException:
            await answer.close()
            raise
        return answer

    @contextlib.asynccontextmanager
    async def _in_line(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        await self._tasks.close()
        await self._end()
        if self._opened:
            await self._offload(self._spill.close)

    # --- the process -------------------------------------------------------------------------------

    async def _ready(self) -> WorkerProcess:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._closed:
            raise NoEngine("this gateway answers no queries at the moment")
        if self._worker is not None and self._worker.alive:
            return self._worker
        self._deaths += self._worker is not None
        await self._end()
        if not self._opened:
            await self._offload(self._spill.open)
            self._opened = True
        directory = await self._offload(self._spill.new)
        self._starting = True
        try:
            self._worker = await self._start(MODULE, msgspec.structs.replace(self._setup, spill=directory))
        finally:
            self._starting = False
        self._directory = directory
        return self._worker

    def _give_back(self, worker: WorkerProcess, *, usable: bool) -> None:
        if usable and not self._closed:
            seconds = self._own.spark_idle_seconds
            self._idle = asyncio.get_running_loop().call_later(seconds, self._too_long)
            self._turn.release()
        else:
            self._deaths += not self._closed
            self._tasks.spawn(self._replaced(), "sql-spark-end")

    async def _replaced(self) -> None:
        """End a process that did not give up its query, then let the next one in."""
        try:
            await self._end()
        finally:
            self._turn.release()

    def _too_long(self) -> None:
        """No query has come for a while."""
        self._idle = None
        if not self._turn.locked() and not self._closed:
            self._tasks.spawn(self._rest(), "sql-spark-rest")

    async def _rest(self) -> None:
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()
            await self._offload(self._spill.remove, self._directory)
