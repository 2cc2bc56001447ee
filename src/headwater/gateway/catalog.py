"""A read-only Iceberg REST catalog: engines find the tables of topics through the pointers in the ledger.

There is one namespace, `topics`. The table of a topic has the topic's name, whatever characters it contains. A name
with a dot or a dash is one name, not a path: pyiceberg takes it as a tuple, `load_table(("topics", "web.clicks-v2"))`,
and Spark SQL quotes it with backticks, ``SELECT * FROM headwater.topics.`web.clicks-v2` ``.

Only Headwater writes these tables, so the catalog refuses all writes. It accepts reports of scan metrics and drops
them.

A request finds every table that was settled before it, in any process, because the process first reads the ledger up
to its end. While the ledger cannot be reached, the catalog serves tables as its process knows them.

To read a table is to read its topic: a caller needs the right to DESCRIBE the topic to list its table, and to READ the
topic to load it. Without DESCRIBE the answer is the same as for a table that does not exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

from headwater.errors import INSTEAD_OF_A_COMMIT, ObjectMissing, Retriable
from headwater.objects import ObjectStore
from headwater.ops.http import Page, Request
from headwater.replica.patience import LedgerTime
from headwater.replica.replica import Replica
from headwater.security.guard import Guard
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.state import ClusterState
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

MOUNT = "/iceberg/"
NAMESPACE = "topics"
FOLLOWER = "iceberg"
"""The follower whose pointers the ledger keeps."""
READ_ONLY = f"this catalog is read only. {INSTEAD_OF_A_COMMIT}"
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
]
"""The calls that clients may send. Writes are refused, by an answer that says what to do instead. A client that misses
them here would refuse them itself, and say nothing of the kind."""
CATCH_UP_SECONDS = 2.0
"""How long a request waits for the ledger. After that it is answered from the local state."""
NOTHING: Mapping[str, str] = {}


class Tables(Protocol):
    """The topic tables that can be read."""

    async def catch_up(self, name: str | None) -> None:
        """Bring the table of a topic, or all tables, up to date. Raises `Retriable` if that is not possible now."""

    def names(self) -> Iterable[str]:
        """Names of topics that have a table."""

    def location(self, name: str) -> str | None:
        """The path of the newest metadata of a topic's table, below the root of the store."""


class LedgerTables:
    """The tables in the replicas of a process."""

    def __init__(self, cluster: Replica[ClusterState], domains: Mapping[Domain, Replica[StreamsState]]) -> None:
        self._cluster = cluster
        self._domains = domains

    def __repr__(self) -> str:
        return f"<LedgerTables of {len(self._domains)} domains>"

    async def catch_up(self, name: str | None) -> None:
        await self._cluster.barrier()
        topic = self._cluster.state.names.get(name) if name is not None else None
        wanted = self._domains if name is None else [Domain(topic.domain)] if topic is not None else []
        await asyncio.gather(*(self._domains[domain].barrier() for domain in wanted if domain in self._domains))

    def names(self) -> Iterable[str]:
        return [name for name in self._cluster.state.names if self.location(name)]

    def location(self, name: str) -> str | None:
        topic = self._cluster.state.names.get(name)
        replica = self._domains.get(Domain(topic.domain)) if topic is not None else None
        if topic is None or replica is None:
            return None
        table = replica.state.tables.get(topic.id)
        follower = table.followers.get(FOLLOWER) if table is not None and not table.dropped else None
        return follower.location or None if follower is not None else None


class _Refusal(Exception):
    """An error in the form that Iceberg's clients understand. Used inside this module only."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.page = _json({"error": {"message": message, "type": kind, "code": status}}, status)


class RestCatalog:
    """Answers requests below `/iceberg/`."""

    def __init__(
        self, tables: Tables, store: ObjectStore, guard: Guard, properties: Mapping[str, str] = NOTHING
    ) -> None:
        """Clients get `properties` as defaults for their own; see `reader_properties`."""
        self._tables = tables
        self._store = store
        self._guard = guard
        self._properties = dict(properties)
        url = unquote(store.url) if store.url.startswith("file:") else store.url
        self._base = url if url.endswith("://") else url.rstrip("/")

    def __repr__(self) -> str:
        return f"<RestCatalog of {self._store!r}>"

    async def page(self, request: Request) -> Page:
        """The answer to a request."""
        parts = [unquote(part) for part in request.path.removeprefix(MOUNT).strip("/").split("/")]
        query = {name: values[-1] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
        try:
            return await self._answer(request, parts, query)
        except _Refusal as refusal:
            return refusal.page
        except Retriable as error:
            return _Refusal(503, "ServiceUnavailableException", str(error)).page

    async def _answer(self, request: Request, parts: list[str], query: Mapping[str, str]) -> Page:
        method = request.method
        match parts:
            case ["v1", "config"] if method in ("GET", "HEAD"):
                return _json({"defaults": self._properties, "overrides": {}, "endpoints": ENDPOINTS})
            case ["v1", "namespaces", namespace, "tables", table, "metrics"] if method == "POST":
                await self._location(request, namespace, table)
                return Page("", 204)
            case ["v1", *_] if method not in ("GET", "HEAD"):
                raise _Refusal(403, "ForbiddenException", READ_ONLY)
            case ["v1", "namespaces"]:
                return self._namespaces(query)
            case ["v1", "namespaces", namespace]:
                _check_namespace(namespace)
                return _found(method, {"namespace": [NAMESPACE], "properties": {}})
            case ["v1", "namespaces", namespace, "tables"]:
                _check_namespace(namespace)
                await self._catch_up(None)
                names = sorted(name for name in self._tables.names() if self._may(request, Operation.DESCRIBE, name))
                found = [{"namespace": [NAMESPACE], "name": name} for name in names]
                return _json({"identifiers": found, "next-page-token": None})
            case ["v1", "namespaces", namespace, "tables", table]:
                if method == "HEAD":
                    await self._location(request, namespace, table)
                    return Page("", 204)
                return await self._load(request, namespace, table, query)
            case _:
                raise _Refusal(404, "NoSuchEndpointException", f"this catalog has no /{'/'.join(parts)}")

    def _namespaces(self, query: Mapping[str, str]) -> Page:
        parent = query.get("parent", "")
        if parent:
            _check_namespace(parent)
        return _json({"namespaces": [] if parent else [[NAMESPACE]], "next-page-token": None})

    def _may(self, request: Request, operation: Operation, topic: str) -> bool:
        return self._guard.may(request.principal, request.host, operation, AclResource.TOPIC, topic)

    async def _catch_up(self, table: str | None) -> bool:
        """Whether the local state is up to date. If not, the request is answered from it nevertheless."""
        try:
            async with LedgerTime(CATCH_UP_SECONDS):
                await self._tables.catch_up(table)
        except Retriable:
            return False
        return True

    async def _location(self, request: Request, namespace: str, table: str) -> str:
        """The path of a table's metadata.

        In an unknown namespace the error is that the table is missing. Spark asks for `topics.orders.snapshots` like
        that, and only after this error takes the last part for a metadata table.
        """
        current = namespace != NAMESPACE or await self._catch_up(table)
        location = self._tables.location(table) if namespace == NAMESPACE else None
        if location is None or not self._may(request, Operation.DESCRIBE, table):
            name = f"{namespace}.{table}".replace("\x1f", ".")
            if not current:
                raise _Refusal(503, "ServiceUnavailableException", f"{name} is not known here; the ledger is away")
            raise _Refusal(404, "NoSuchTableException", f"there is no table {name}: no such topic, or not settled yet")
        return location

    async def _load(self, request: Request, namespace: str, table: str, query: Mapping[str, str]) -> Page:
        """The table with its metadata inline. If the metadata file was removed meanwhile, the pointer has moved."""
        location = await self._location(request, namespace, table)
        if not self._may(request, Operation.READ, table):
            raise _Refusal(
                403, "ForbiddenException", f"{namespace}.{table} can be read by users who may read the topic"
            )
        try:
            data = await self._store.get(location)
        except ObjectMissing:
            location = await self._location(request, namespace, table)
            try:
                data = await self._store.get(location)
            except ObjectMissing as error:
                raise _Refusal(503, "ServiceUnavailableException", f"{error}; try again") from error
        metadata = data.decode()
        if query.get("snapshots") == "refs":
            metadata = _only_named_snapshots(metadata)
        url = json.dumps(f"{self._base}/{location}")
        return Page(f'{{"metadata-location":{url},"metadata":{metadata},"config":{{}}}}')


def _only_named_snapshots(metadata: str) -> str:
    """The metadata without snapshots that no branch or tag names, for clients that load those when they need them."""
    table: dict[str, Any] = json.loads(metadata)
    named = {ref["snapshot-id"] for ref in table.get("refs", {}).values()}
    table["snapshots"] = [s for s in table.get("snapshots", []) if s["snapshot-id"] in named]
    return json.dumps(table)


def _check_namespace(namespace: str) -> None:
    if namespace != NAMESPACE:
        raise _Refusal(404, "NoSuchNamespaceException", f"there is no namespace {namespace!r}, only {NAMESPACE!r}")


_KINDS = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchEndpointException",
    429: "TooManyRequestsException",
    500: "InternalServerError",
    503: "ServiceUnavailableException",
}


def refused(status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Page:
    """The answer to a caller that is refused, in the form that Iceberg's clients understand."""
    page = _Refusal(status, _KINDS.get(status, _KINDS[400 if status < 500 else 500]), message).page
    return Page(page.body, status, headers=headers)


def _found(method: str, body: object) -> Page:
    return Page("", 204) if method == "HEAD" else _json(body)


def _json(body: object, status: int = 200) -> Page:
    return Page(json.dumps(body), status)
