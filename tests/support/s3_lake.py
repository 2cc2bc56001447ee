"""Compactors in virtual time whose objects are in a real S3 server."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.s3 import S3Server
from harness.storage import Access
from headwater.app.node import Node
from headwater.objects import ObjectInfo, ObjectStore, open_store
from headwater.settings.objects import StoreOptions
from headwater.state.cluster.domain import Topic
from headwater.types import Pieces
from tests.support.lake import ONE, LakeWorld, Row, rows_of

PATIENCE_SECONDS = 60.0
_T = TypeVar("_T")


def store_options(s3: S3Server, endpoint: str = "") -> StoreOptions:
    """Options that lead to the server, or to a proxy in front of it, without environment variables."""
    own = Access.of(s3.environment)
    provider = {"access_key_id": own.key, "secret_access_key": own.secret, "region": own.region}
    return StoreOptions(provider={**provider, "endpoint": endpoint or own.endpoint})


class BridgedStore:
    """A real store for work in virtual time. Another loop makes the calls; virtual time does not advance meanwhile."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()
        self._inner: ObjectStore = self._do(_opened(url, options))

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def put(self, path: str, pieces: Pieces) -> None:
        self._do(_awaited(self._inner.put(path, pieces)))

    async def create(self, path: str, pieces: Pieces) -> bool:
        return self._do(self._inner.create(path, pieces))

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._do(self._inner.get(path, start, length))

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return self._do(self._inner.get_many(paths))

    async def size(self, path: str) -> int:
        return self._do(self._inner.size(path))

    async def delete(self, path: str) -> None:
        self._do(self._inner.delete(path))

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in self._do(_all(self._inner, prefix)):
            yield info

    async def close(self) -> None:
        """Nothing: the process that uses the store ends, but the store stays open for others."""

    @property
    def objects(self) -> list[str]:
        """The paths of all objects."""
        return [info.path for info in self._do(_all(self._inner, ""))]

    def end(self) -> None:
        self._do(self._inner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


async def _opened(url: str, options: StoreOptions) -> ObjectStore:
    return open_store(url, options)


async def _awaited(work: Any) -> None:
    await work


async def _all(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    return [info async for info in store.scan(prefix)]


class S3LakeWorld(LakeWorld):
    """A `LakeWorld` below a prefix of its own in S3. Engines read the objects there."""

    _numbers = itertools.count(1)

    def __init__(self, s3: S3Server) -> None:
        super().__init__(Path("/"))
        self._access = Access.of(s3.environment)
        self._bridge = BridgedStore(f"{s3.url}/world-{next(self._numbers)}", store_options(s3))
        self.store: Any = self._bridge

    def __enter__(self) -> "S3LakeWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self._bridge.end()

    def lay_out(self) -> None:
        """Nothing to do: engines read S3."""

    def delta_rows(self, node: Node, topic: Topic) -> list[Row]:
        from deltalake import DeltaTable

        root = f"{self.store.url}/{node.domains[ONE].state.tables[topic.id].root}"
        return rows_of(DeltaTable(root, storage_options=self._access.of_delta_rs).to_pyarrow_table())

    def iceberg_rows(self, node: Node, topic: Topic) -> list[Row]:
        from pyiceberg.table import StaticTable

        location = node.domains[ONE].state.tables[topic.id].followers["iceberg"].location
        own = {**self._access.of_iceberg, "s3.endpoint": self._access.endpoint, "s3.region": self._access.region}
        return rows_of(StaticTable.from_metadata(f"{self.store.url}/{location}", own).scan().to_arrow())
