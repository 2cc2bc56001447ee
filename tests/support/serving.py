"""A gateway on a socket, in a thread of the test, with a compactor that settles when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from headwater.gateway.application import build
from headwater.gateway.server import HttpServer
from headwater.gateway.services import Services
from headwater.settings.schema_registry import SchemaRegistry
from headwater.threads import Threads
from tests.support.asking import ONE, QueryWorld, query_world

_T = TypeVar("_T")


class Served:
    """The gateway, as another thread sees it."""

    def __init__(self, world: QueryWorld, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self.url = url
        self._loop = loop

    def run(self, work: Callable[[QueryWorld], Coroutine[Any, Any, _T]]) -> _T:
        """Do something in the thread of the gateway, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work(self.world), self._loop).result()

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A new topic. In names of configs `_` stands for a dot."""
        self.run(lambda world: world.topic(name, partitions, **configs))

    def write(self, name: str, *values: bytes) -> None:
        """Append records."""
        self.run(lambda world: world.write(name, values))

    def settle(self) -> None:
        """Settle all that there is, and let the gateway see it."""

        async def settled(world: QueryWorld) -> None:
            for _ in range(3):
                await world.settle()
            await world.core.domains[ONE].barrier()

        self.run(settled)


@contextlib.contextmanager
def served(directory: Path, registry: SchemaRegistry | None = None, **sql: Any) -> Iterator[Served]:
    """A gateway. `registry` is the external one for the schemas of records."""
    begun, over = threading.Event(), threading.Event()
    found: list[Served | BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        asking = Threads(2, "registry")
        try:
            async with query_world(directory, registry=registry, **sql) as world:
                core = world.core
                services = Services(world.settings, core.domains, core.writers, core.reader, asking=asking.run)
                services.asking = world.ask_through(services.typings)
                server = HttpServer(world.settings, build(services), services.stats, core.background)
                await server.open()
                found.append(Served(world, f"http://127.0.0.1:{server.port}", loop))
                begun.set()
                await loop.run_in_executor(None, over.wait)
                await server.close(0)
        finally:
            await asking.close()

    def serve() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            found.append(error)
            raise
        finally:
            begun.set()

    thread = threading.Thread(target=serve, name="gateway")
    thread.start()
    begun.wait()
    try:
        first = found[0]
        if isinstance(first, BaseException):
            raise first
        yield first
    finally:
        over.set()
        thread.join()
