"""A gateway without sockets, on a ledger in memory: tests send it requests through httpx."""

from __future__ import annotations

import contextlib
import functools
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec

from headwater.app.core import Core
from headwater.client.records import Record, decode_batches
from headwater.clock import SystemChance
from headwater.gateway.application import MODULES, STYLES, RouteModule, build, calls_of
from headwater.gateway.asgi import App
from headwater.gateway.front import Front
from headwater.gateway.server import HttpServer
from headwater.gateway.services import Services
from headwater.ledger.memory import MemoryLedger
from headwater.log.batch import check_batch
from headwater.log.write.part import Outcome, Part
from headwater.objects.memory import MemoryStore
from headwater.replica.users import put_user
from headwater.settings.settings import Gateway, HttpSecurity, Oauth, Security, Settings
from headwater.state.cluster.domain import Topic
from headwater.state.commands.access import Acl, PutAcls
from headwater.state.commands.cluster import Listener, TakeEpoch
from headwater.state.results import Verdict
from headwater.threads import Offload, inline
from headwater.types import Domain
from tests.support.batches import Rec, batch
from tests.support.secured import PASSWORDS, MovingClock
from tests.support.virtual_nodes import LAX, One

ALICE, BOB = "User:alice", "User:bob"


class InGateway:
    """A gateway and a client of it."""

    def __init__(self, core: Core, services: Services, app: App, clock: MovingClock) -> None:
        self.core = core
        self.services = services
        self.app = app
        self.clock = clock
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 40_000))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost:8081")

    async def get(self, path: str, user: str = "", **options: Any) -> httpx.Response:
        return await self.ask("GET", path, user, **options)

    async def ask(self, method: str, path: str, user: str = "", **options: Any) -> httpx.Response:
        """The answer to a request of a user."""
        headers = {**(basic(user) if user else {}), **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """A new topic."""
        return await self.services.topics.create(name, partitions, configs)

    async def fill(self, name: str, records: int, partition: int = 0, timestamp: int = 1_700_000_000_000) -> None:
        """Append records to a partition of a topic."""
        topic, caller = self.services.state.names[name], One()
        data = check_batch(batch([Rec(b"value", timestamp=timestamp)] * records), LAX, timestamp)
        self.core.writers.of(topic.domain, "latency").append(Part(topic.streams[partition], data, caller, 0))
        outcome = await caller.done
        assert isinstance(outcome, Outcome) and outcome.verdict is Verdict.ACCEPTED, outcome

    async def records(self, name: str, partition: int = 0) -> list[Record]:
        """All records of a partition, as Kafka's consumers get them."""
        topic = self.services.state.names[name]
        replica, stream = self.core.domains[Domain(topic.domain)], topic.streams[partition]
        end, at = replica.state.streams[stream].end, 0
        got: list[Record] = []
        while at < end:
            for found in decode_batches((await self.core.reader.read(replica, stream, at, 1 << 20, True)).records):
                got += found.records
                at = found.next_offset
        return got

    async def broker(self, node: int) -> None:
        """Let the metadata have a broker."""
        listener = Listener("CLIENTS", "127.0.0.1", 9_092 + node)
        level, build = self.services.state.level, "test"
        await self.core.cluster.submit([TakeEpoch(f"broker-{node}", node, "zone-a", (listener,), level, build)])

    async def allow(self, *rules: Acl) -> None:
        await self.core.cluster.submit([PutAcls(rules)])


def basic(user: str, password: str | None = None) -> dict[str, str]:
    """The header of a user's name and password."""
    text = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"Authorization": "Basic " + b64encode(text.encode()).decode()}


def secured(http: HttpSecurity | None = None, oauth: Oauth | None = None, /, **more: Any) -> Settings:
    """Settings of a cluster with users and rules. `User:admin` may do everything. `more` are of the gateway."""
    http = http or HttpSecurity(authentication="basic")
    security = Security(
        acls=True, super_users="User:admin", failed_login_delay_ms=0, reload_ms=20, http=http, oauth=oauth or Oauth()
    )
    return msgspec.structs.replace(Settings(gateway=Gateway(**more)), security=security)


@functools.cache
def _all_calls() -> App:
    """The calls of all modules. They take a while to make, and no gateway changes them."""
    return calls_of()


@contextlib.asynccontextmanager
async def gateway(
    settings: Settings | None = None,
    modules: Sequence[RouteModule] = MODULES,
    *,
    users: bool = False,
    offload: Offload = inline,
) -> AsyncIterator[InGateway]:
    """A gateway that has joined its cluster. With `users` it has those of `tests/support/secured.py`."""
    clock = MovingClock()
    core = Core(settings or Settings(), MemoryLedger(), MemoryStore(), clock, SystemChance())
    services = Services(core.settings, core.domains, core.writers, core.reader, offload=offload)
    await core.start()
    if users:
        for name, password in PASSWORDS.items():
            await put_user(core.cluster, SystemChance(), name, "SCRAM-SHA-256", password, 4096)
    app = Front(_all_calls(), services, STYLES) if modules is MODULES else build(services, modules)
    found = InGateway(core, services, app, clock)
    try:
        async with found.client:
            yield found
    finally:
        await core.stop()


@contextlib.asynccontextmanager
async def listening(found: InGateway) -> AsyncIterator[HttpServer]:
    """The gateway on a socket. Its settings should have port 0."""
    server = HttpServer(found.core.settings, found.app, found.services.stats, found.core.background)
    await server.open()
    try:
        yield server
    finally:
        await server.close(0)
