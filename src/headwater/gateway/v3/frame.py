"""What all calls of the REST Proxy share: the cluster in the path, links, and the form of resources and listings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from headwater.gateway.paging import MAX_CURSOR, Key, paged
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.services import Call, Services, TheCall
from headwater.gateway.v3.errors import kafka_errors, unknown_topic
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.streams.stream import Stream
from headwater.types import Domain

PREFIX, ROOT = "/v3", "/kafka"
"""The paths begin with `/v3`, or with `/kafka/v3` as they do in Confluent Cloud."""
MOST_ITEMS = 10_000
"""Items of one answer. Clients expect listings as a whole, so this is more than other listings give."""
T = TypeVar("T")
S = TypeVar("S")

ClusterId = Annotated[str, PathParameter(description="The id of the cluster.")]
TopicName = Annotated[str, PathParameter(description="The name of the topic.")]
PartitionId = Annotated[int, PathParameter(description="The number of the partition.")]
BrokerId = Annotated[int, PathParameter(description="The number of the broker.")]
ConfigName = Annotated[str, PathParameter(description="The name of the config.")]
PageSize = Annotated[int, QueryParameter(ge=1, description="Items of the answer at most.")]
PageToken = Annotated[
    str, QueryParameter(max_length=MAX_CURSOR, description="The token in the link `next` of the answer before.")
]


class Metadata(msgspec.Struct, frozen=True):
    """The links of a resource."""

    link: str = msgspec.field(name="self")
    """The URL of the resource."""
    resource_name: str | None = None
    """The name of the resource, in Confluent's notation."""


class Related(msgspec.Struct, frozen=True):
    """A link to other resources."""

    related: str
    """The URL."""


class ListMetadata(msgspec.Struct, frozen=True):
    """The links of a listing."""

    link: str = msgspec.field(name="self")
    """The URL of the listing."""
    next: str | None = None
    """The URL of the next part of the listing; null if this is the last."""


class ListOf(msgspec.Struct, Generic[T], frozen=True):
    """A listing."""

    kind: str
    """The kind of the listing."""
    metadata: ListMetadata
    """The links of the listing."""
    data: list[T]
    """The items."""


def base_of(request: Request[Any, Any, Any], services: Services) -> str:
    """The URL of the listing of clusters, as the client reaches it."""
    scope = request.scope
    host = request.headers.get("host", "")
    server = services.own.url.rstrip("/") or (f"{scope['scheme']}://{host}" if host else "")
    return f"{server}{scope.get('root_path', '')}{PREFIX}/clusters"


@dataclass(frozen=True, slots=True)
class Frame:
    """A call to one cluster: the request with its caller, and links."""

    call: Call
    base: str
    cluster_id: str

    @property
    def services(self) -> Services:
        """What handlers work with."""
        return self.call.services

    def url(self, *path: str | int) -> str:
        """The URL of a resource of the cluster."""
        return "/".join([self.base, *(quote(str(part), safe="") for part in (self.cluster_id, *path))])

    def related(self, *path: str | int) -> Related:
        """A link to a resource of the cluster."""
        return Related(self.url(*path))

    def metadata(self, *path: str | int) -> Metadata:
        """The links of a resource. The path has kinds and names in turns, such as `topics`, `orders`."""
        parts = [str(part) for part in path]
        pairs = [f"{kind.removesuffix('s')}={name}" for kind, name in zip(parts[::2], parts[1::2], strict=False)]
        alone = [parts[-1]] if len(parts) % 2 else []
        name = "/".join([f"crn:///kafka={self.cluster_id}", *pairs, *alone])
        return Metadata(self.url(*path), name)

    def listed(
        self,
        kind: str,
        path: Sequence[str | int],
        found: Sequence[S],
        key: Callable[[S], Key],
        item: Callable[[S], T],
        page: tuple[int, str] = (MOST_ITEMS, ""),
    ) -> ListOf[T]:
        """A listing of what was found, which is sorted by its keys. `page` is the size and the token of the part."""
        size, token = page
        part, then = paged(kind, found, key, limit=size, cursor=token, most=MOST_ITEMS)
        more: dict[str, str | int] = {"page_size": size, "page_token": then} if then else {}
        return ListOf(kind, self.list_metadata(path, more), [item(one) for one in part])

    def list_metadata(self, path: Sequence[str | int], then: Mapping[str, str | int]) -> ListMetadata:
        """The links of a listing. `then` is the query of the next part; empty if there is none."""
        url = self.url(*path)
        return ListMetadata(url, f"{url}?{urlencode(then)}" if then else None)

    async def topic(self, name: str, operation: Operation = Operation.DESCRIBE) -> Topic:
        """A topic on which the caller is allowed an operation."""
        with kafka_errors():
            return await self.call.topic(name, operation)

    async def partition(self, name: str, partition: int) -> tuple[Topic, Stream]:
        """A partition of a topic that the caller may describe, up to date."""
        topic = await self.topic(name)
        if not 0 <= partition < topic.ready:
            raise unknown_topic()
        return topic, await self.stream(topic, partition)

    async def stream(self, topic: Topic, partition: int) -> Stream:
        """The stream of a partition, up to date."""
        replica = self.services.domains[Domain(topic.domain)]
        await replica.barrier()
        stream = replica.state.streams.get(topic.streams[partition])
        if stream is None:  # deleted meanwhile
            raise unknown_topic()
        return stream


async def provide_frame(request: Request[Any, Any, Any], call: TheCall, cluster_id: ClusterId) -> Frame:
    """The parameter `frame` of handlers. Raises if the path names another cluster."""
    if cluster_id != call.services.state.cluster_id:
        raise Refusal(NOT_FOUND, f"Cluster {cluster_id} cannot be found.")
    return Frame(call, base_of(request, call.services), cluster_id)


TheFrame = NamedDependency[Frame]
"""The type of the parameter `frame` of handlers."""
