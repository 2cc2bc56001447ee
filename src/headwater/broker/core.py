"""What the handlers work with: the replicas, the writers and the reader of one broker process."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.broker.coordinator import Coordinator
from headwater.broker.faults import NotAuthorized
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.guard import Guard
from headwater.broker.logins import Logins
from headwater.broker.pace import Pace
from headwater.broker.quotas import ClientQuotas
from headwater.broker.registry import Request
from headwater.broker.routing import Routing, zone_of
from headwater.broker.telemetry import Telemetry
from headwater.clock import Chance, Clock
from headwater.config import INTERNAL, Settings
from headwater.errors import NotReady
from headwater.log.batch import BatchRules
from headwater.log.reader import Reader
from headwater.log.recompressing import Recompression, Target
from headwater.log.writer import Writer, Writers
from headwater.metadata.access import THE_CLUSTER, Operation, ResourceKind
from headwater.metadata.cluster import ClusterState, Member, Topic
from headwater.metadata.commands import AllocateProducers
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done
from headwater.metadata.streams import Stream, StreamsState
from headwater.metadata.topic_configs import PRODUCER, UNCOMPRESSED, TopicConfig
from headwater.metadata.topics import Topics
from headwater.threads import Offload, inline
from headwater.types import Domain, NodeId
from headwater.wire.codecs import NONE, WRITTEN

PRODUCER_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with what its configs mean to the write path."""

    topic: Topic
    config: TopicConfig
    rules: BatchRules
    writer: Writer
    replica: Replica[StreamsState]
    target: Target | None
    """The codec that batches are stored in, if the topic does not leave it to producers."""

    def stream_id(self, partition: int) -> int | None:
        """The stream of a partition that can be used."""
        return self.topic.streams[partition] if 0 <= partition < self.topic.ready else None

    def stream(self, partition: int) -> Stream | None:
        """The head and index of a partition, if it is there already."""
        stream_id = self.stream_id(partition)
        return None if stream_id is None else self.replica.state.streams.get(stream_id)


@dataclass(slots=True)
class Stats:
    """Counts that the hot path keeps as plain integers; `/metrics` reads them."""

    connections: int = 0
    connections_total: int = 0
    refused_frames: int = 0
    requests: dict[int, int] = field(default_factory=dict)
    request_seconds: dict[int, float] = field(default_factory=dict)
    produced_bytes: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0
    throttled_requests: int = 0
    throttle_seconds: float = 0.0
    refused_connections: int = 0


class Broker:
    """One broker. It owns nothing that outlives it."""

    def __init__(
        self,
        settings: Settings,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        membership: Membership,
        writers: Writers,
        reader: Reader,
        clock: Clock,
        chance: Chance,
        offload: Offload = inline,
    ) -> None:
        self.settings = settings
        self.node = NodeId(settings.node)
        self.cluster = cluster
        self.domains = domains
        self.membership = membership
        self.writers = writers
        self.reader = reader
        self.clock = clock
        self.chance = chance
        self.topics = Topics(cluster, domains, chance)
        self.routing = Routing(cluster.state, tell_all=settings.routing.tell_other_zones)
        self.guard = Guard(settings.security, cluster.state.access)
        self.pace = Pace()
        self.coordinator = Coordinator(
            cluster,
            domains[min(domains)],
            membership,
            settings.groups,
            clock,
            chance,
            node=settings.node,
            guard=self.guard,
            patience_ms=settings.brownout.groups_after_ms,
        )
        self.sessions = FetchSessions(settings.limits.fetch_sessions, chance)
        self.quotas = ClientQuotas(settings.quotas, clock)
        self.telemetry = Telemetry(settings.quotas, clock, chance)
        self.recompression = Recompression(offload)
        self.stats = Stats()
        self.logins = Logins(settings.security, cluster.state.access, clock, chance, cluster.barrier)
        self.draining = False
        self._views: dict[uuid.UUID, TopicView] = {}
        self._producer_ids: Iterator[int] = iter(())
        cluster.state.on_change = self._cluster_changed

    def __repr__(self) -> str:
        return f"<Broker {self.node}, epoch {self.membership.epoch}>"

    def _cluster_changed(self) -> None:
        self._views.clear()
        self.routing.refresh()
        resources = self.cluster.state.resources
        self.quotas.refresh(resources.quotas, resources.quota_version)

    # --- topics ------------------------------------------------------------------------------------

    def by_name(self, name: str) -> TopicView | None:
        """A topic that can be used."""
        topic = self.cluster.state.names.get(name)
        return self._view(topic) if topic is not None and topic.ready else None

    def by_id(self, topic_id: uuid.UUID | None) -> TopicView | None:
        """A topic that can be used."""
        topic = self.cluster.state.topics.get(topic_id) if topic_id is not None else None
        return self._view(topic) if topic is not None and topic.ready and not topic.deleting else None

    def _view(self, topic: Topic) -> TopicView:
        view = self._views.get(topic.id)
        if view is None:
            config = TopicConfig.of(topic.configs)
            rules = BatchRules(
                max_bytes=config.max_message_bytes,
                max_opened_bytes=self.settings.limits.opened_batch_bytes,
                timestamp_before_ms=config.timestamp_before_ms,
                timestamp_after_ms=config.timestamp_after_ms,
                append_time=config.append_time,
                compacted=config.compacted,
            )
            view = self._views[topic.id] = TopicView(
                topic,
                config,
                rules,
                self.writers.of(topic.domain, config.profile or self.settings.default_profile),
                self.domains[Domain(topic.domain)],
                self._target(config),
            )
        return view

    def _target(self, config: TopicConfig) -> Target | None:
        if config.compression == PRODUCER:
            return None
        codec = NONE if config.compression == UNCOMPRESSED else WRITTEN[config.compression]
        opened = self.settings.limits.opened_batch_bytes
        return Target(codec, config.compression_level, config.max_message_bytes, opened)

    # --- access --------------------------------------------------------------------------------------

    def may(self, request: Request, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        """Whether whoever sent a request may do something."""
        if not self.guard.enforced:
            return True
        peer = request.connection
        return self.guard.may(peer.principal, peer.host, operation, kind, name)

    def check_cluster(self, request: Request, operation: Operation) -> None:
        """Refuse whoever may not do something to the cluster as a whole."""
        if not self.may(request, operation, ResourceKind.CLUSTER):
            raise NotAuthorized("Authorization failed.")

    def visible(self, request: Request, operation: Operation, kind: ResourceKind, names: Iterable[str]) -> list[str]:
        """Those of some things that whoever sent a request may do something to."""
        return [name for name in names if self.may(request, operation, kind, name)]

    def may_any(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        """Whether whoever sent a request may do something to at least one thing of a kind."""
        if not self.guard.enforced:
            return True
        return self.guard.may_any(request.connection.principal, request.connection.host, operation, kind)

    def operations(self, request: Request, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        """All that whoever sent a request may do to a thing, as the protocol's bit field."""
        return self.guard.operations(request.connection.principal, request.connection.host, kind, name)

    # --- the cluster ---------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self.cluster.state.cluster_id

    def check_contact(self) -> None:
        """A broker that has lost the cluster answers nothing but errors that say: try another one."""
        if not self.membership.in_contact:
            raise NotReady(f"node {self.node} is out of contact with the cluster")

    def nodes(self) -> list[Member]:
        """Members that serve clients."""
        return self.cluster.state.serving()

    @staticmethod
    def address(member: Member, listener: str) -> tuple[str, int] | None:
        """Where clients of a listener reach a broker; one that has no such listener, at its first one."""
        open_ones = [x for x in member.listeners if x.name != INTERNAL]
        named = [x for x in open_ones if x.name == listener] or open_ones[:1]
        return (named[0].host, named[0].port) if named else None

    def leader(self, stream_id: int, request: Request) -> int:
        """The node that a client should use for a stream; every node can serve it."""
        return self.routing.leader(stream_id, zone_of(request.client_id))

    def turns_away(self, request: Request, stream_id: int) -> bool:
        """Whether a client is told to use another broker for a stream, because owners are to be kept to."""
        return self.settings.routing.enforce_owner and self.leader(stream_id, request) != self.node

    async def producer_id(self) -> int:
        """A producer id that nobody else has or had."""
        while True:
            fresh = next(self._producer_ids, None)
            if fresh is not None:
                return fresh
            [result] = await self.cluster.submit([AllocateProducers(PRODUCER_BLOCK)])
            if not isinstance(result, Done):
                raise NotReady(f"no producer ids were given out: {result}")
            self._producer_ids = iter(range(result.value, result.value + PRODUCER_BLOCK))
