"""Followers on a real S3 server: a line that loses answers and delays requests, catalogs of others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import load_catalog

from harness.proxy import Proxy
from harness.s3 import PROGRAM, S3Server
from harness.tools import needs
from headwater.errors import OutcomeUnknown, Retriable
from headwater.lake.tables import make_followers
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.lake.tables.follower import Standing, TableFollower
from headwater.lake.tables.storage import reader_properties
from headwater.objects import ObjectStore, open_store
from headwater.settings.settings import Lake
from headwater.types import Pieces
from tests.support.promise import promise
from tests.support.s3_lake import store_options
from tests.unit.lake.tables.delta.making import REF, ROOT, Journal, newest, versions
from tests.unit.lake.tables.iceberg import story as iceberg

PROMISES = ("T2", "T4", "M7")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    needs("versitygw: scripts/setup-tools s3", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class BadLine:
    """A way to the store on which something happens to creations."""

    def __init__(self, inner: ObjectStore, around: Callable[[Awaitable[bool]], Awaitable[bool]]) -> None:
        self._inner = inner
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, path: str, pieces: Pieces) -> bool:
        return await self._around(self._inner.create(path, pieces))


class World:
    """A journal, a store with a good and one with a bad line, and what lies in it."""

    def __init__(self, s3: S3Server, proxy: Proxy, name: str) -> None:
        self.journal = Journal()
        self.proxy = proxy
        quick = msgspec.structs.replace(
            store_options(s3, f"http://{proxy.address}"), attempt_ms=2_000, total_ms=2_000, retries=0
        )
        self.good = open_store(f"{s3.url}/{name}", store_options(s3))
        self._bad = open_store(f"{s3.url}/{name}", quick)
        self.known = DeltaFollower(self.good)

    def follower(self, around: Callable[[Awaitable[bool]], Awaitable[bool]]) -> DeltaFollower:
        store: Any = BadLine(self._bad, around)
        return DeltaFollower(store)

    async def commit(self, follower: DeltaFollower, after: int) -> Standing:
        return await follower.commit(REF, "", self.journal.batch(after))

    async def objects(self) -> dict[str, bytes]:
        paths = [info.path async for info in self.good.scan(f"{ROOT}/_delta_log/")]
        return {path: data for path, data in zip(paths, await self.good.get_many(paths), strict=True) if data}

    async def check(self, last: int) -> None:
        """The table shows what the journal has, every entry in one version."""
        found = await self.objects()
        assert newest(found) == (last, self.journal.shown[last])
        assert versions(found) == list(range(len(versions(found))))


def told(s3: S3Server, name: str, tell: Callable[[World], Awaitable[None]]) -> None:
    async def whole(proxy: Proxy) -> None:
        world = World(s3, proxy, name)
        world.journal.settle()
        assert (await world.commit(world.known, 0)).cursor == 1
        await tell(world)
        await world.good.close()

    with Proxy(s3.port) as proxy:
        asyncio.run(whole(proxy))


@promise("T2", "M7")
def test_an_answer_is_lost(s3: S3Server) -> None:
    """The commit stands, nobody heard of it, and a repetition finds it."""

    async def tell(world: World) -> None:
        async def around(create: Awaitable[bool]) -> bool:
            world.proxy.drop_replies()
            try:
                return await create
            finally:
                world.proxy.resume()

        world.journal.settle()
        with pytest.raises(OutcomeUnknown):
            await world.commit(world.follower(around), 1)
        before = await world.objects()
        assert versions(before) == [0, 1]
        assert await world.commit(world.known, 1) == Standing(2, 1, "")
        assert await world.objects() == before
        await world.check(2)

    told(s3, "lost", tell)


@promise("T2", "M7")
def test_a_commit_arrives_late(s3: S3Server) -> None:
    """By then its version's number is taken by a longer commit, which stays as it is."""

    async def tell(world: World) -> None:
        async def around(create: Awaitable[bool]) -> bool:
            world.proxy.hold()
            sending = asyncio.ensure_future(create)
            while not world.proxy.held_bytes:
                await asyncio.sleep(0.001)  # polls for a state that the loop checks
            world.proxy.strand()
            return await sending

        world.journal.settle()
        late = world.follower(around)
        with pytest.raises(Retriable):
            await world.commit(late, 1)
        world.journal.settle()
        assert (await world.commit(world.known, 1)).cursor == 3
        before = await world.objects()
        assert versions(before) == [0, 1]
        world.proxy.resume()
        while world.proxy.held_bytes:
            await asyncio.sleep(0.001)  # polls for a state that the loop checks
        world.journal.settle()
        assert (await world.commit(world.known, 3)).cursor == 4
        after = await world.objects()
        assert {path: after[path] for path in before} == before
        await world.check(4)

    told(s3, "late", tell)


@promise("T2", "M7")
def test_a_line_is_cut(s3: S3Server) -> None:
    """Whether or not the commit got through, a repetition brings the table to where it belongs."""

    async def tell(world: World) -> None:
        async def around(create: Awaitable[bool]) -> bool:
            sending = asyncio.ensure_future(create)
            await asyncio.sleep(0)
            world.proxy.cut()
            return await sending

        bad = world.follower(around)
        for sequence in range(2, 12):
            world.journal.settle()
            try:
                await world.commit(bad, sequence - 1)
            except Retriable:
                await world.commit(world.known, sequence - 1)
        await world.check(11)

    told(s3, "cut", tell)


@promise("T2", "M7")
def test_two_followers_at_once(s3: S3Server) -> None:
    """Of two that commit the same, one does, and both learn where the table is."""

    async def tell(world: World) -> None:
        other = DeltaFollower(world.good)
        for sequence in range(2, 15):
            world.journal.settle()
            both = await asyncio.gather(*(world.commit(f, sequence - 1) for f in (world.known, other)))
            assert [standing.cursor for standing in both] == [sequence, sequence]
        await world.check(14)

    told(s3, "two", tell)


async def insistently(step: Callable[[], Awaitable[Standing]]) -> Standing:
    """As a compactor does it: what may succeed later is tried again. Of pyarrow's uploads this server refuses some."""
    for _ in range(20):
        try:
            return await step()
        except Retriable:
            await asyncio.sleep(0)
    return await step()


@promise("T2", "T4", "M7")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_catalog_of_somebody_else(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg writes its metadata into S3 beside ours, with keys that only the environment has."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    url = f"{s3.url}/catalog"
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": url}

    async def tell() -> None:
        store = open_store(url)
        [follower] = make_followers(store, Lake(catalogs={"lake": properties}, followers=(), keep_versions=2))
        story = iceberg.Story()
        try:
            files = [number for _ in range(3) for number in await settled(story, follower)]
            story.merge(*files)
            assert (await insistently(lambda: story.follow(follower))).cursor == 4
            await insistently(lambda: follower.expire(iceberg.REF, ""))
            assert await follower.shown(iceberg.REF, "") == story.names()
        finally:
            await follower.close()
            await store.close()

    async def settled(story: iceberg.Story, follower: TableFollower) -> list[int]:
        found = story.settle(0, 3)
        await insistently(lambda: story.follow(follower))
        return found

    asyncio.run(tell())
    catalog = load_catalog("lake", **reader_properties(url, s3.environment, {}, properties))
    try:
        table = catalog.load_table(("topics", iceberg.NAME))
        assert table.location() == f"{url}/{iceberg.ROOT}"
        assert table.metadata_location.startswith(f"{url}/{iceberg.ROOT}/_iceberg-lake/")
        assert len(table.snapshots()) == 2
        assert len(list(table.scan().plan_files())) == 1
    finally:
        catalog.close()
