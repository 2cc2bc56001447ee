"""The read-only Iceberg REST catalog, asked by hand and by pyiceberg's own client over a socket."""

import asyncio
import json
import warnings
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema

from headwater.errors import StoreUnavailable
from headwater.gateway.catalog import ENDPOINTS, READ_ONLY, LedgerTables, RestCatalog
from headwater.lake.tables.iceberg.table import IcebergFollower
from headwater.objects.memory import MemoryStore
from headwater.ops.http import HttpServer, Request
from headwater.security.guard import Guard
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.rules import NO_RULES
from tests.unit.lake.tables.iceberg.story import Story

PROMISES = ("T3",)

NAMES = ["a.b", "a_b", "a-b", "orders"]


class FixedTables:
    """Tables by name."""

    def __init__(self, tables: dict[str, str]) -> None:
        self.tables = tables
        self.later: dict[str, str] = {}
        """Tables that the ledger has and this process has not read yet."""
        self.ledger_is_away = self.ledger_hangs = False

    async def catch_up(self, name: str | None) -> None:
        if self.ledger_is_away:
            raise StoreUnavailable("the ledger is away")
        if self.ledger_hangs:
            await asyncio.Event().wait()
        self.tables.update(self.later)

    def names(self) -> Iterable[str]:
        return self.tables

    def location(self, name: str) -> str | None:
        return self.tables.get(name)


class World:
    """A catalog of a few tables; each has the rows of one more settle than the one before."""

    def __init__(self, guard: Guard = NO_RULES) -> None:
        self.store = MemoryStore()
        self.tables = FixedTables({})
        self.catalog = RestCatalog(self.tables, self.store, guard)

    async def fill(self) -> None:
        story, follower = Story(), IcebergFollower(self.store)
        for name in NAMES:
            story.settle()
            self.tables.tables[name] = (await story.follow(follower)).location

    async def ask(self, path: str, method: str = "GET", query: str = "") -> tuple[int, Any]:
        page = await self.catalog.page(Request(method, f"/iceberg/{path}", query))
        return page.status, json.loads(page.body) if page.body else None


def ask(path: str, method: str = "GET", query: str = "") -> tuple[int, Any]:
    async def run() -> tuple[int, Any]:
        world = World()
        await world.fill()
        return await world.ask(path, method, query)

    return asyncio.run(run())


@promise("T3")
def test_config() -> None:
    """Clients are told what they may ask."""
    assert ask("v1/config", query="warehouse=x") == (200, {"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS})


@promise("T3")
def test_namespaces() -> None:
    """There is one namespace, with nothing below it."""
    assert ask("v1/namespaces")[1]["namespaces"] == [["topics"]]
    assert ask("v1/namespaces", query="parent=topics")[1]["namespaces"] == []
    assert ask("v1/namespaces", query="parent=other")[0] == 404
    assert ask("v1/namespaces/topics") == (200, {"namespace": ["topics"], "properties": {}})
    assert ask("v1/namespaces/topics", "HEAD") == (204, None)
    status, body = ask("v1/namespaces/other")
    assert (status, body["error"]["type"], body["error"]["code"]) == (404, "NoSuchNamespaceException", 404)
    assert ask("v1/namespaces/other/tables")[0] == 404


@promise("T3")
def test_tables() -> None:
    """Topics that are settled are tables, under their own names."""
    status, body = ask("v1/namespaces/topics/tables")
    assert status == 200
    assert body["identifiers"] == [{"namespace": ["topics"], "name": name} for name in sorted(NAMES)]
    assert ask("v1/namespaces/topics/tables/a%2Eb", "HEAD") == (204, None)
    assert ask("v1/namespaces/topics/tables/b", "HEAD")[0] == 404
    for path in ("topics/tables/b", "topics%1Forders/tables/snapshots", "other/tables/orders"):
        status, body = ask(f"v1/namespaces/{path}")
        assert (status, body["error"]["type"]) == (404, "NoSuchTableException")


@promise("T3")
def test_loading_a_table() -> None:
    """A table comes with its metadata; if the client wants so, only with the snapshots that have a name."""
    status, body = ask("v1/namespaces/topics/tables/a_b")
    assert status == 200
    assert body["metadata-location"].startswith("memory:///tables/orders-")
    assert body["config"] == {}
    assert len(body["metadata"]["snapshots"]) == 2
    _, body = ask("v1/namespaces/topics/tables/a_b", query="snapshots=refs")
    assert [s["snapshot-id"] for s in body["metadata"]["snapshots"]] == [body["metadata"]["current-snapshot-id"]]


@promise("T3")
def test_a_table_is_found_once_it_is_settled() -> None:
    """A process that has not read the ledger to its end does so before it says that there is none."""

    async def run() -> None:
        world = World()
        await world.fill()
        path = "v1/namespaces/topics/tables"
        for ask in (f"{path}/orders", f"{path}/orders/metrics", path):
            world.tables.later, world.tables.tables = {**world.tables.tables}, {}
            status, body = await world.ask(ask, "POST" if ask.endswith("metrics") else "GET")
            assert status in (200, 204), body
        assert len(body["identifiers"]) == len(NAMES)

    asyncio.run(run())


class LateReplica:
    """Knows nothing before its first barrier."""

    def __init__(self, **known: Any) -> None:
        self.state = SimpleNamespace(names={}, tables={})
        self._known = SimpleNamespace(**known)

    async def barrier(self) -> None:
        self.state = self._known


@promise("T3")
@pytest.mark.parametrize("asked", ["orders", None])
def test_catching_up_with_the_ledger(asked: str | None) -> None:
    """A topic that this process has not heard of, in a domain that it has not read, is known after catching up."""
    table = SimpleNamespace(dropped=False, followers={"iceberg": SimpleNamespace(location="where")})
    cluster: Any = LateReplica(names={"orders": SimpleNamespace(id=7, domain=2)})
    domains: Any = {Domain(1): LateReplica(tables={}), Domain(2): LateReplica(tables={7: table})}
    tables = LedgerTables(cluster, domains)
    assert tables.location("orders") is None
    asyncio.run(tables.catch_up("nothing"))
    assert tables.location("orders") is None
    asyncio.run(tables.catch_up(asked))
    assert tables.location("orders") == "where"
    assert list(tables.names()) == ["orders"]


@promise("T3")
@pytest.mark.parametrize("hangs", [False, True])
def test_without_the_ledger(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is served while the ledger is away; of what is not known nothing is said."""
    monkeypatch.setattr("headwater.gateway.catalog.CATCH_UP_SECONDS", 0.05)

    async def run() -> None:
        world = World()
        await world.fill()
        world.tables.ledger_is_away, world.tables.ledger_hangs = not hangs, hangs
        assert (await world.ask("v1/namespaces/topics/tables/orders"))[0] == 200
        assert len((await world.ask("v1/namespaces/topics/tables"))[1]["identifiers"]) == len(NAMES)
        status, body = await world.ask("v1/namespaces/topics/tables/later")
        assert (status, body["error"]["type"]) == (503, "ServiceUnavailableException")

    asyncio.run(run())


@promise("T3")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "v1/namespaces"),
        ("DELETE", "v1/namespaces/topics"),
        ("POST", "v1/namespaces/topics/properties"),
        ("POST", "v1/namespaces/topics/tables"),
        ("POST", "v1/namespaces/topics/register"),
        ("POST", "v1/namespaces/topics/tables/orders"),
        ("DELETE", "v1/namespaces/topics/tables/orders"),
        ("POST", "v1/tables/rename"),
        ("POST", "v1/transactions/commit"),
        ("PUT", "v1/namespaces/topics/tables/orders"),
    ],
)
def test_nobody_else_writes(method: str, path: str) -> None:
    """Everything that writes is refused, with a reason."""
    status, body = ask(path, method)
    assert status == 403
    assert body == {"error": {"message": READ_ONLY, "type": "ForbiddenException", "code": 403}}


@promise("T3")
def test_metrics_are_accepted() -> None:
    """Engines report their scans; nobody keeps that."""
    assert ask("v1/namespaces/topics/tables/orders/metrics", "POST") == (204, None)
    assert ask("v1/namespaces/topics/tables/other/metrics", "POST")[0] == 404


@promise("T3")
@pytest.mark.parametrize(
    "path", ["", "v1", "v2/config", "v1/namespaces/topics/views", "v1/namespaces/topics/tables/a/b/c"]
)
def test_what_there_is_not(path: str) -> None:
    """Unknown paths are answered in Iceberg's words too."""
    status, body = ask(path)
    assert status == 404
    assert body["error"]["code"] == 404


@promise("T3")
def test_a_pointer_that_moves_meanwhile() -> None:
    """Metadata that was removed since is looked for again at the newest pointer; a store that is down is a 503."""

    async def run() -> None:
        world = World()
        await world.fill()
        newest = world.tables.tables["orders"]
        answers = ["gone", newest, "gone", "gone"]
        world.tables.location = lambda name: answers.pop(0)  # type: ignore[method-assign]
        status, body = await world.ask("v1/namespaces/topics/tables/orders")
        assert (status, body["metadata-location"]) == (200, f"memory:///{newest}")
        status, body = await world.ask("v1/namespaces/topics/tables/orders")
        assert (status, body["error"]["type"]) == (503, "ServiceUnavailableException")

        async def down(path: str, start: int = 0, length: int | None = None) -> bytes:
            raise StoreUnavailable("the store is down")

        answers.append(newest)
        world.store.get = down  # type: ignore[method-assign]
        status, body = await world.ask("v1/namespaces/topics/tables/orders")
        assert (status, body["error"]["message"]) == (503, "the store is down")

    asyncio.run(run())


def with_client(check: Callable[[Client], None]) -> None:
    """Run a check with pyiceberg's client in a thread, against the real HTTP server."""

    async def run() -> None:
        world = World()
        await world.fill()
        http = HttpServer({"/iceberg/": world.catalog.page})
        port = await http.listen("127.0.0.1", 0)

        def client() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                catalog = Client(
                    "headwater",
                    uri=f"http://127.0.0.1:{port}/iceberg",
                    **{"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"},
                )
                try:
                    check(catalog)
                finally:
                    catalog.close()

        try:
            await asyncio.to_thread(client)
        finally:
            await http.close()

    asyncio.run(run())


@promise("T3")
def test_pyiceberg_reads_the_catalog() -> None:
    """pyiceberg's client lists and loads every table, whatever characters its name has."""

    def check(client: Client) -> None:
        assert client.list_namespaces() == [("topics",)]
        assert client.namespace_exists("topics")
        assert not client.namespace_exists("other")
        assert sorted(client.list_tables("topics")) == [("topics", name) for name in sorted(NAMES)]
        for versions, name in enumerate(NAMES, 1):
            assert client.table_exists(("topics", name))
            assert len(client.load_table(("topics", name)).snapshots()) == versions
        assert client.load_table("topics.orders").metadata.properties["headwater.topic"] == "orders"
        with pytest.raises(NoSuchTableError):
            client.load_table(("topics", "b"))
        with pytest.raises(NoSuchNamespaceError):
            client.list_tables("other")

    with_client(check)


@promise("T3")
def test_pyiceberg_cannot_write() -> None:
    """What pyiceberg would write is refused, and it shows what to do instead."""

    def check(client: Client) -> None:
        for write in (
            lambda: client.create_namespace("mine"),
            lambda: client.create_table(("topics", "mine"), Schema()),
            lambda: client.drop_table(("topics", "orders")),
            lambda: client.load_table(("topics", "orders")).transaction().set_properties(a="b").commit_transaction(),
        ):
            with pytest.raises(ForbiddenError, match="produce to the topic"):
                write()

    with_client(check)
