"""The processes of an engine: when they are started, when they rest, and when their place is free."""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pyarrow as pa
import pytest

from harness import virtual
from headwater.clock import SystemChance
from headwater.errors import NoEngine, QueryFailed
from headwater.query.asking import Engine
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.cores import Sharing
from headwater.query.engines.frames import Failure, Kind, Setup, Why
from headwater.query.engines.pool import Pool, Rules
from headwater.query.engines.process import WorkerProcess
from headwater.query.engines.sending import stream_of
from headwater.settings.settings import Settings

COLUMNS = bytes(stream_of(pa.schema([("n", pa.int64())]), None))
TASK = EngineTask(id="q", sql="SELECT 1", parameters=(), tables=[])


class Process:
    """A worker without a process. It answers nothing but columns."""

    def __init__(self, pid: int, setup: Setup) -> None:
        self.pid = pid
        self.setup = setup
        self.alive = True
        self.ended = asyncio.Event()
        self.ended.set()
        self.frames: list[tuple[Kind, bytes]] = []

    async def send(self, kind: Kind, body: bytes = b"") -> None:
        self.frames = [(Kind.COLUMNS, COLUMNS), (Kind.DONE, b"")]
        if b"fail" in body:
            self.frames = [(Kind.FAILED, msgspec.msgpack.encode(Failure(Why.FAILED, "it failed")))]

    async def receive(self) -> tuple[Kind, bytes]:
        return self.frames.pop(0)

    async def kill(self) -> None:
        self.alive = False
        await self.ended.wait()


class World:
    """A pool, and the processes that it has started."""

    def __init__(self, directory: Path, sharing: Sharing | None = None, **rules: Any) -> None:
        self.started: list[Process] = []
        self.pids = itertools.count(1)
        known = {"engine": Engine.SPARK, "module": "some.module", "workers": 1, "waiting": 2, **rules}
        settings = Settings(data=str(directory))
        self.pool = Pool(Rules(**known), settings, 1 << 30, SystemChance(), start=self.start, sharing=sharing)

    async def start(self, module: str, setup: Setup) -> WorkerProcess:
        assert module == "some.module" and setup.memory_bytes == 1 << 30 and Path(setup.spill).is_dir()
        self.started.append(Process(next(self.pids), setup))
        return cast(WorkerProcess, self.started[-1])

    async def query(self, task: EngineTask = TASK) -> None:
        answer = await self.pool.run(task)
        assert [batch async for batch in answer.batches()] == []


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0)


def test_a_process_is_started_by_the_first_query_and_rests(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, idle_seconds=0)
        assert world.pool.pids == [] and "0 workers busy" in repr(world.pool)
        await world.query()
        await until(lambda: not world.pool.pids and not Path(world.started[0].setup.spill).exists())
        assert not world.started[0].alive and world.pool.workers.deaths == 0
        await world.query()
        assert len(world.started) == 2
        await world.pool.close()
        with pytest.raises(NoEngine):
            await world.query()

    run(main())


def test_a_process_that_is_used_again_does_not_rest(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, idle_seconds=3600, workers=2)
        for _ in range(3):
            await world.query()
        with pytest.raises(QueryFailed, match="it failed"):
            await world.query(msgspec.structs.replace(TASK, sql="fail"))
        assert len(world.started) == 1 and world.pool.workers.idle == 1 and world.pool.workers.deaths == 0
        await world.pool.close()

    run(main())


def test_cores_are_shared_while_there_are_queries_and_some_time_after(tmp_path: Path) -> None:
    told: list[str] = []

    class Watched(Sharing):
        def look(self, sessions: Collection[int]) -> None:
            assert list(sessions) == [1]
            told.append("look")

        def rest(self, sessions: Collection[int]) -> None:
            assert list(sessions) == [1]
            told.append("rest")

    async def main() -> None:
        world = World(tmp_path, Watched([0, 1], str, lambda session, cores: None))
        answer = await world.pool.run(TASK)
        await asyncio.sleep(60)
        assert len(told) > 100 and {*told} == {"look"}
        await answer.close()
        await asyncio.sleep(60)
        assert told.index("rest") == len(told) - 1
        await world.query()
        await asyncio.sleep(1)
        assert told[-1] == "look"
        await world.pool.close()

    virtual.run(main())


def test_warm_processes_stay(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, idle_seconds=0, workers=2, warm=1)
        await world.pool.open()
        await until(lambda: world.pool.pids)
        answers = [await world.pool.run(TASK) for _ in range(2)]
        for answer in answers:
            await answer.close()
        await until(lambda: len(world.pool.pids) == 1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(world.pool.pids) == 1
        await world.pool.close()

    run(main())


def test_the_place_of_a_process_is_free_when_it_has_ended(tmp_path: Path) -> None:
    """Two of them at once could take more memory than there is."""

    async def main() -> None:
        world = World(tmp_path)
        await world.query()
        first = world.started[0]
        first.alive = False
        first.ended.clear()
        waiting = [asyncio.ensure_future(world.query()) for _ in range(2)]
        await until(lambda: world.pool.workers.waiting == 2)
        with pytest.raises(NoEngine, match="all 1 processes of spark are busy, and 2 queries wait"):
            await world.query()
        assert len(world.started) == 1 and world.pool.workers.deaths == 1
        first.ended.set()
        await asyncio.gather(*waiting)
        assert len(world.started) == 2
        await world.pool.close()

    run(main())


def test_without_a_descriptor_a_query_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spent(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    async def main() -> None:
        world = World(tmp_path)
        setup = world.pool._setup
        monkeypatch.setattr(socket, "socketpair", spent)
        with pytest.raises(NoEngine, match="cannot be started"):
            await WorkerProcess.start("some.module", setup)
        monkeypatch.undo()
        await world.pool.close()

    asyncio.run(main())
