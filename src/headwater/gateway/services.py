"""What handlers work with: log, metadata and rules (`Services`), and one request with its caller (`Call`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
from litestar.di import NamedDependency

from headwater.background import Background, launch
from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError, NotAuthenticated, NotReady, Retriable
from headwater.extras import command, has
from headwater.gateway.callers import Caller
from headwater.gateway.catalog import NOTHING, LedgerTables, RestCatalog
from headwater.gateway.limits import Bytes, Places
from headwater.gateway.load import Load
from headwater.gateway.metrics import Stats
from headwater.gateway.problems import NOT_ALLOWED, NOT_FOUND, Refusal
from headwater.gateway.quotas import CallerQuotas, Usage
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.finding import SchemaFinder
from headwater.lake.registries import BuiltIn
from headwater.log.reader import Reader
from headwater.log.write.writers import Writers
from headwater.query.asking import Asking
from headwater.query.holding import Holding
from headwater.query.lookups.lookups import Lookups
from headwater.query.typings import Typings, schemas_of
from headwater.replica.domains import Domains
from headwater.replica.patience import catch_up
from headwater.replica.schemas import Registry
from headwater.replica.topics import Topics
from headwater.security.guard import Guard
from headwater.security.http_logins import HttpLogins
from headwater.security.logins import Logins
from headwater.settings.settings import Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.threads import Offload, inline
from headwater.types import Domain

log = logging.getLogger("headwater.gateway")
_T = TypeVar("_T")
MAX_SCANS = 16
"""Scans of topics that a gateway answers at once. Further ones get 429."""
MAX_UNDECODED = 2
"""Readers of rows that could not be decoded at once. Each has a file in memory."""
MAX_CHUNKS = 4
"""Chunks of streams that are made at once. Other streams wait."""
REGISTRY_MS = 2_000
"""How long a query waits for an external schema registry."""
CATCH_UP_SECONDS = 2.0
"""How long a request waits for the ledger before it is refused."""


class Left(HeadwaterError):
    """The client has left, so nobody reads the answer."""


class Services:
    """The parts of a gateway process that handlers use. It owns no state that outlives the process."""

    def __init__(
        self,
        settings: Settings,
        domains: Domains,
        writers: Writers,
        reader: Reader,
        properties: Mapping[str, str] = NOTHING,
        offload: Offload = inline,
        asking: Offload = inline,
    ) -> None:
        """Readers of tables get `properties` from the catalog; see `reader_properties`.

        `asking` runs requests to an external schema registry, which block.
        """
        self.settings = settings
        self.offload = offload
        """Runs long work, such as encoding many records, beside the event loop."""
        self.own = settings.gateway
        self.domains = domains
        self.cluster = domains.cluster
        self.membership = domains.membership
        self.clock: Clock = domains.clock
        self.chance: Chance = domains.chance
        self.background: Background = domains.background
        self.writers = writers
        self.reader = reader
        self.topics = Topics(domains.cluster, domains, domains.chance)
        self.registry = Registry(domains.cluster, offload)
        """The schema registry of this cluster."""
        external = hasty(settings, domains, asking)
        self.schemas = SchemaFinder(external or BuiltIn(domains.cluster), domains.clock, offload, near=external is None)
        """Finds the schemas of records: in this cluster's registry, or in an external one."""
        known = schemas_of(domains.cluster, domains.clock, external)
        self.typings = Typings(known, offload)
        """How rows are decoded by their schemas."""
        access = domains.cluster.state.access
        self.guard = Guard(settings.security, access)
        self.logins = Logins(settings.security, access, self.clock, self.chance, domains.cluster.barrier)
        self.http_logins = HttpLogins(settings.security, self.logins)
        self.catalog = RestCatalog(LedgerTables(domains.cluster, domains), domains.store, self.guard, properties)
        self.stats = Stats()
        self.load = Load(self.own.late_ms, self.clock)
        self.quotas = CallerQuotas(settings.quotas, self.clock, lambda: domains.cluster.state.resources)
        self.requests = Places("requests", self.own.requests, self.own.requests_per_caller)
        self.strangers = Places("log-ins", *self.own.log_ins)
        """Requests that log in by a form. Others come in however many of these there are."""
        self.bodies = Bytes(self.own.bodies_bytes, self.own.caller_bodies_bytes)
        self.streams = Places("streams", self.own.streams, self.own.streams_per_caller)
        self.scans = Places("scans", MAX_SCANS, MAX_SCANS // 2)
        """Scans under way. Each holds a row group in memory."""
        self.undecoded = Places("readers of dead letters", MAX_UNDECODED, MAX_UNDECODED // 2)
        self.holding = Holding(domains)
        """Keeps what queries and scans read."""
        self.lookups = Lookups(
            domains.store,
            reader.cache,
            reader.segments,
            opened_limit=settings.limits.opened_batch_bytes,
            cache_bytes=self.own.lookup_bytes,
            offload=offload,
        )
        """Finds single records."""
        self.chunks = asyncio.Semaphore(MAX_CHUNKS)
        """Taken by a stream while it makes a chunk, so that many streams together do not hold up the event loop."""
        self.asking: Asking | None = None
        """Answers SQL; None if this gateway does not."""
        self.stopping = asyncio.Event()
        """Set when the process is about to stop. Streams end then."""
        self._until_stopping: asyncio.Task[Any] | None = None

    def __repr__(self) -> str:
        return f"<Services, epoch {self.membership.epoch}>"

    @property
    def state(self) -> ClusterState:
        """The metadata of the cluster, as far as this process has read the ledger."""
        return self.cluster.state

    def until_stopping(self) -> asyncio.Future[Any]:
        """A future for streams to wait for. It is done when the process is about to stop."""
        if self._until_stopping is None:
            self._until_stopping = launch(self.stopping.wait())
        return self._until_stopping

    async def unless_over(self, work: Awaitable[_T], gone: asyncio.Future[Any] | None = None) -> _T:
        """The outcome of some work. Raises if the gateway stops before, or `Left` if the client leaves (`gone`)."""
        task: asyncio.Task[_T] = launch(work)
        ends = {self.until_stopping()} if gone is None else {self.until_stopping(), gone}
        try:
            await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone is not None and gone.done():
                raise Left("the client has left")
            raise NotReady("the gateway stops")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()  # nobody waits for it any more

    def check_contact(self) -> None:
        """Raise `NotReady` if the process is out of contact with the cluster. What it knows may be old then."""
        if not self.membership.in_contact:
            raise NotReady("this gateway is out of contact with the cluster")

    async def catch_up(self, *domains: Domain) -> None:
        """Bring the metadata up to date, and that of further domains. Raises `NotReady` if the ledger takes too long.

        A call that answers "there is none", or that lists, does this first: another process may have created it.
        """
        await catch_up(CATCH_UP_SECONDS, self.cluster, *(self.domains[domain] for domain in domains))

    async def find_topic(self, name: str) -> Topic | None:
        """A topic that can be used, after a look at the ledger if it is not known here."""
        topic = self.state.names.get(name)
        if topic is None or not topic.ready:
            await self.catch_up()
            topic = self.state.names.get(name)
        return topic if topic is not None and topic.ready else None

    async def trouble(self) -> str:
        """The reason why this process cannot serve; empty if it can."""
        try:
            self.check_contact()
            await self.catch_up()
        except Retriable as error:
            return type(error).__name__
        return ""


def without_sql() -> str:
    """Why a gateway answers no statement, and what to do."""
    why = "`sql.enabled` is off in its settings" if has("sql") else f"its libraries are not installed: {command('sql')}"
    return f"this gateway answers no SQL: {why}"


def hasty(settings: Settings, domains: Domains, asking: Offload) -> ExternalRegistry | None:
    """The external schema registry, if there is one, for requests: they wait for it once, and not long."""
    own = settings.schema_registry
    if not own.url:
        return None
    quick = msgspec.structs.replace(own, retries=0, timeout_ms=min(own.timeout_ms, REGISTRY_MS))
    return ExternalRegistry(quick, asking, domains.clock)


class Taken(Protocol):
    """What a request has taken until its answer has ended."""

    def release(self) -> None:
        """Give it back. To do so twice does no harm."""
        ...


@dataclass(slots=True)
class Call:
    """One request, with its caller. Handlers take it as the parameter `call`."""

    services: Services
    caller: Caller
    request_id: str
    places: list[Taken] = field(default_factory=list)
    """What the request has taken. The front releases it when the answer has ended."""
    is_stream: bool = False
    """Whether the request or its answer goes on for as long as the client wants."""
    usage: Usage = field(init=False)
    """What the request uses of its caller's quotas. A handler that appends or reads records says so."""

    def __post_init__(self) -> None:
        self.usage = self.services.quotas.of(self.caller.principal)

    def may(self, operation: Operation, kind: AclResource, name: str = THE_CLUSTER) -> bool:
        """Whether the caller is allowed an operation on a resource. Raises if the call's token has expired since."""
        until_ms = self.caller.until_ms
        if until_ms is not None and self.services.clock.wall_ms() >= until_ms:
            raise NotAuthenticated("the token of the call has expired")
        return self.services.guard.may(self.caller.principal, self.caller.host, operation, kind, name)

    def check(self, operation: Operation, kind: AclResource, name: str = THE_CLUSTER) -> None:
        """Raise unless the caller is allowed an operation. What the caller may not DESCRIBE does not exist."""
        if self.may(operation, kind, name):
            return
        what = kind.name.lower().replace("_", " ")
        if kind is not AclResource.CLUSTER and not self.may(Operation.DESCRIBE, kind, name):
            raise missing(what, name)
        on = what if kind is AclResource.CLUSTER else f"{what} {name!r}"
        raise Refusal(NOT_ALLOWED, f"{self.caller.principal} may not {operation.name} the {on}")

    async def topic(self, name: str, operation: Operation = Operation.DESCRIBE) -> Topic:
        """A topic on which the caller is allowed an operation."""
        if not self.may(Operation.DESCRIBE, AclResource.TOPIC, name):
            raise missing("topic", name)
        topic = await self.services.find_topic(name)
        if topic is None:
            raise missing("topic", name)
        self.check(operation, AclResource.TOPIC, name)
        return topic

    def as_stream(self) -> None:
        """Make this a stream: it counts as one from now on, and no longer as a request.

        Raises if there are too many. A stream must end soon after `services.stopping` is set. Its body may be of any
        length and take any time, as long as the client does not stop sending: the handler limits what it gathers.
        """
        taken = self.services.streams.enter(self.caller.account)
        for place in self.places:
            place.release()
        self.places.append(taken)
        self.is_stream = True


TheCall = NamedDependency[Call]
"""The type of the parameter `call` of handlers."""


def missing(what: str, name: str) -> Refusal:
    """The answer for what does not exist, and for what the caller may not describe."""
    return Refusal(NOT_FOUND, f"there is no {what} {name!r}")
