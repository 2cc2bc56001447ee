"""The processes of an engine, as the gateway sees them: some are started before the first query."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from headwater.background import Tasks
from headwater.clock import Chance
from headwater.errors import HeadwaterError, NoEngine
from headwater.query.asking import Engine
from headwater.query.engines.contract import Answer, EngineTask, Workers
from headwater.query.engines.cores import LINGER_SECONDS, TICK_SECONDS, Sharing
from headwater.query.engines.frames import Setup
from headwater.query.engines.process import LentAnswer, WorkerProcess
from headwater.query.engines.spill import Spill
from headwater.settings.settings import Settings
from headwater.threads import Offload, inline

log = logging.getLogger("headwater.sql")
Start = Callable[[str, Setup], Awaitable[WorkerProcess]]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes there are, and when."""

    engine: Engine
    module: str
    """What a process runs."""
    workers: int
    """Processes at most. Each answers one query at a time."""
    warm: int = 0
    """Processes that are started before the first query, and stay."""
    waiting: int
    """Queries that wait for a process at most."""
    idle_seconds: float | None = None
    """How long a process that is not a warm one stays without a query. None: for ever."""


class Pool:
    """The processes of one engine. `contract.EngineRunner` says how it is used."""

    def __init__(
        self,
        rules: Rules,
        settings: Settings,
        memory_bytes: int,
        chance: Chance,
        offload: Offload = inline,
        start: Start = WorkerProcess.start,
        sharing: Sharing | None = None,
    ) -> None:
        """`memory_bytes` is what one process may have. `offload` runs what blocks, such as removing directories.

        Without `sharing` the processes stay on the cores that they begin with.
        """
        self._rules = rules
        self._start = start
        self._offload = offload
        self._spill = Spill(settings.spill, chance)
        own = settings.sql
        self._setup = Setup(
            store=settings.objects_url,
            options=settings.object_store,
            spill="",
            memory_bytes=memory_bytes,
            spill_bytes=own.spill_bytes,
            hot_bytes=own.hot_bytes,
            threads=own.chosen_threads,
            niceness=own.niceness,
            log_level=settings.log_level,
            functions=own.functions,
            jars=own.spark_jars,
        )
        self._directories: dict[int, str] = {}
        """Of workers, by their process ids."""
        self._idle: deque[WorkerProcess] = deque()
        self._resting: dict[int, asyncio.TimerHandle] = {}
        """What ends idle workers, by their process ids."""
        self._busy: set[WorkerProcess] = set()
        self._starting = self._ending = 0
        self._preparing = 0
        """How many of those that start are for anybody."""
        self._line: deque[asyncio.Future[None]] = deque()
        self._tasks = Tasks()
        self._deaths = 0
        self._opening = asyncio.Lock()
        self._opened = self._closed = False
        self._sharing = sharing
        self._looking = False

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self._busy)} workers busy, {len(self._idle)} idle, "
            f"{len(self._line)} queries wait>"
        )

    @property
    def engine(self) -> Engine:
        return self._rules.engine

    @property
    def pids(self) -> list[int]:
        """The process ids of all workers."""
        return [worker.pid for worker in (*self._idle, *self._busy)]

    @property
    def workers(self) -> Workers:
        return Workers(
            busy=len(self._busy),
            idle=len(self._idle),
            starting=self._starting,
            waiting=len(self._line),
            deaths=self._deaths,
        )

    async def open(self) -> None:
        """Take the directory for spilled data, and start to start the warm workers. Does not wait for them.

        Without it the first query does that.
        """
        async with self._opening:
            if not self._opened:
                await self._offload(self._spill.open)
                self._opened = True
        self._replenish()

    async def run(self, task: EngineTask) -> Answer:
        """Give a task to a worker that is free, or will be. See `contract.EngineRunner`."""
        if not self._opened and not self._closed:
            await self.open()
        worker = await self._take()
        self._look_at_cores()
        answer = LentAnswer(worker, task.id, self._give_back)
        try:
            await answer.begin(task)
        except BaseException:
            await answer.close()
            raise
        return answer

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        for timer in self._resting.values():
            timer.cancel()
        await self._tasks.close()
        for worker in (*self._idle, *self._busy):
            await worker.kill()
        self._idle.clear()
        for waiter in self._line:
            if not waiter.done():
                waiter.cancel()
        if self._opened:
            await self._offload(self._spill.close)

    # --- workers -----------------------------------------------------------------------------------

    async def _take(self) -> WorkerProcess:
        """A worker without a query."""
        rules = self._rules
        while True:
            if self._closed:
                raise NoEngine("this gateway answers no queries at the moment")
            while self._idle:
                worker = self._idle.pop()
                self._keep(worker)
                if worker.alive:
                    self._busy.add(worker)
                    return worker
                self._forget(worker)
            coming = self._preparing > len(self._line)  # one that nobody waits for will be ready soon
            if len(self._busy) + self._starting + self._ending < rules.workers and not coming:
                worker = await self._started()
                self._busy.add(worker)
                return worker
            if len(self._line) >= rules.waiting and not coming:
                name, count = rules.engine.value, len(self._line)
                raise NoEngine(f"all {rules.workers} processes of {name} are busy, and {count} queries wait")
            await self._wait()

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._line:
                self._line.remove(waiter)
            elif waiter.cancelled():
                self._wake()  # the turn goes to the next one

    def _wake(self) -> None:
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _started(self) -> WorkerProcess:
        self._starting += 1
        try:
            directory = await self._offload(self._spill.new)
            try:
                setup = msgspec.structs.replace(self._setup, spill=directory)
                worker = await self._start(self._rules.module, setup)
            except BaseException:
                self._spill.remove(directory)
                raise
        finally:
            self._starting -= 1
            self._wake()
        self._directories[worker.pid] = directory
        return worker

    def _give_back(self, worker: WorkerProcess, *, usable: bool) -> None:
        self._busy.discard(worker)
        if usable and worker.alive and not self._closed:
            self._idle.append(worker)
            self._rest_later(worker)
        else:
            self._forget(worker)
            self._replenish()
        self._wake()

    def _forget(self, worker: WorkerProcess, *, died: bool = True) -> None:
        """Clean up after a worker that is not used any more. Its place is free when it has ended."""
        self._deaths += died and not self._closed
        self._ending += 1

        async def clean() -> None:
            try:
                await worker.kill()
                directory = self._directories.pop(worker.pid, None)
                if directory is not None:
                    await self._offload(self._spill.remove, directory)
            finally:
                self._ending -= 1
                self._wake()

        self._tasks.spawn(clean(), "sql-clean")

    def _look_at_cores(self) -> None:
        """Let workers have all cores while no other process needs them, as long as there are queries."""
        if self._sharing is not None and not self._looking:
            self._looking = True
            self._tasks.spawn(self._share(self._sharing), "sql-cores")

    async def _share(self, sharing: Sharing) -> None:
        left = 0.0
        try:
            while left < LINGER_SECONDS:
                await self._offload(sharing.look, self.pids)
                await asyncio.sleep(TICK_SECONDS)
                left = 0.0 if self._busy else left + TICK_SECONDS
            await self._offload(sharing.rest, self.pids)
        finally:
            self._looking = False

    # --- more of them, and fewer -------------------------------------------------------------------

    def _replenish(self) -> None:
        """Start workers, so that `warm` of them are there."""
        wanted = self._rules.warm - len(self._idle) - len(self._busy) - self._starting
        for _ in range(wanted if not self._closed else 0):
            self._tasks.spawn(self._prepare(), "sql-start")

    async def _prepare(self) -> None:
        if len(self._idle) + len(self._busy) + self._starting >= self._rules.warm:
            return
        self._preparing += 1
        try:
            self._idle.append(await self._started())
        except HeadwaterError as error:
            log.warning("a process for queries does not start", extra={"reason": str(error)})
        finally:
            self._preparing -= 1
            self._wake()

    def _rest_later(self, worker: WorkerProcess) -> None:
        """End a worker if no query has come for a while."""
        if self._rules.idle_seconds is not None:
            loop = asyncio.get_running_loop()
            self._resting[worker.pid] = loop.call_later(self._rules.idle_seconds, self._rest, worker)

    def _keep(self, worker: WorkerProcess) -> None:
        timer = self._resting.pop(worker.pid, None)
        if timer is not None:
            timer.cancel()

    def _rest(self, worker: WorkerProcess) -> None:
        self._resting.pop(worker.pid, None)
        if worker in self._idle and len(self._idle) + len(self._busy) > self._rules.warm and not self._closed:
            self._idle.remove(worker)
            self._forget(worker, died=False)
