"""The broker object that handlers work with: the replicas, the writers and the reader of one broker process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from headwater.broker.clients.fetch_sessions import FetchSessions
from headwater.broker.clients.responses import Responses
from headwater.broker.clients.telemetry import Telemetry
from headwater.broker.groups.coordinator import Coordinator
from headwater.broker.groups.shares import GroupShares
from headwater.broker.request import Request
from headwater.broker.rotation.pace import Pace
from headwater.broker.rotation.routing import Routing, zone_of
from headwater.broker.transactions.watcher import Watcher
from headwater.broker.turns import Turns
from headwater.configs.topics import TopicConfig
from headwater.errors import HeadwaterError, LimitReached, NotAllowed, NotReady
from headwater.log.batch import Batch, BatchRules
from headwater.log.reader import Reader
from headwater.log.write.demands import rules_of, target_of
from headwater.log.write.opening import Opening, Target
from headwater.log.write.part import Part
from headwater.log.write.writer import Writer
from headwater.log.write.writers import Writers
from headwater.replica import topic_rules
from headwater.replica.domains import Domains
from headwater.replica.internal_topics import empty_stream, is_empty, topic_by_id, topic_by_name
from headwater.replica.replica import Replica
from headwater.replica.topics import Topics
from headwater.security.guard import Guard
from headwater.security.logins import Logins
from headwater.security.quotas import ClientQuotas
from headwater.settings.settings import INTERNAL, Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from headwater.state.cluster.domain import Process, Topic
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.transactions import Ending
from headwater.state.streams.stream import Stream
from headwater.threads import Offload, inline
from headwater.types import Domain, NodeId

NO_OPERATIONS = -(1 << 31)
"""The value of `operations` in answers to clients that did not ask for them."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic, with the effect of its configs on the write path."""

    topic: Topic
    config: TopicConfig
    rules: BatchRules
    writer: Writer
    replica: Replica[StreamsState]
    target: Target | None
    """The codec in which batches are stored; None if the topic leaves it to producers."""
    empty: bool
    """Whether the topic is an internal one, which has an empty log and takes no records."""

    def stream_id(self, partition: int) -> int | None:
        """The stream of a partition that can be used."""
        return self.topic.streams[partition] if 0 <= partition < self.topic.ready else None

    def stream(self, partition: int) -> Stream | None:
        """The head and index of a partition; None if the replica does not have it yet."""
        stream_id = self.stream_id(partition)
        if stream_id is None:
            return None
        return empty_stream(stream_id) if self.empty else self.replica.state.streams.get(stream_id)


@dataclass(slots=True)
class Stats:
    """Counters of the hot path, as plain integers. `/metrics` reads them."""

    connections: int = 0
    connections_total: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    """What limits and checks kept out, by reason."""
    requests: dict[int, int] = field(default_factory=dict)
    request_seconds: dict[int, float] = field(default_factory=dict)
    produced_bytes: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0
    throttled_requests: int = 0
    throttle_seconds: float = 0.0
    transactions_ended: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    """Transactions whose end this broker has entered into the ledger, by how they ended."""

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1


class Broker:
    """One broker. It owns no state that outlives it."""

    def __init__(
        self,
        settings: Settings,
        domains: Domains,
        writers: Writers,
        reader: Reader,
        openers: tuple[Offload, Offload] = (inline, inline),
    ) -> None:
        cluster, membership = domains.cluster, domains.membership
        clock, chance, background = domains.clock, domains.chance, domains.background
        self.settings = settings
        self.node = NodeId(settings.node)
        self.cluster = cluster
        self.domains = domains
        self.membership = membership
        self.writers = writers
        self.budget = writers.budget
        self.reader = reader
        self.clock = clock
        self.chance = chance
        self.background = background
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
            background=background,
            shares=GroupShares(settings.limits),
        )
        self.transactions = Watcher(
            cluster,
            domains[min(domains)],
            membership,
            settings.transactions,
            clock,
            node=settings.node,
            background=background,
        )
        self.sessions = FetchSessions(settings.limits.fetch_sessions, chance)
        self.quotas = ClientQuotas(settings.quotas, clock)
        self.telemetry = Telemetry(settings.quotas, clock, chance, offload=openers[1])
        self.opening = Opening(*openers, self.budget, self.produced, clock)
        self.deferred: dict[object, asyncio.Task[None]] = {}
        """By connection: the last Produce request that waits for metadata. It goes on without its connection."""
        self.stats = Stats()
        self.turns = Turns(clock)
        self.responses = Responses(settings.limits.broker_response_bytes, settings.limits.stalled_ms / 1000)
        self.logins = Logins(settings.security, cluster.state.access, clock, chance, cluster.barrier)
        self.draining = False
        self._views: dict[uuid.UUID, TopicView] = {}
        cluster.state.on_change = self._cluster_changed
        for replica in domains.values():
            replica.state.on_end = partial(self._transaction_ended, replica)

    def __repr__(self) -> str:
        return f"<Broker {self.node}, epoch {self.membership.epoch}>"

    def _cluster_changed(self) -> None:
        self._views.clear()
        self.routing.refresh()
        resources = self.cluster.state.resources
        self.quotas.refresh(resources.quotas, resources.quota_version)

    def _transaction_ended(self, replica: Replica[StreamsState], epoch: int, ending: Ending) -> None:
        """Count an end once in the cluster: by the broker that entered it into the ledger."""
        if epoch == replica.epoch:
            self.stats.transactions_ended[ending] += 1

    # --- topics ------------------------------------------------------------------------------------

    def by_name(self, name: str) -> TopicView | None:
        """A topic that can be used."""
        topic = topic_by_name(self.cluster.state, name)
        return self._view(topic) if topic is not None and topic.ready else None

    def by_id(self, topic_id: uuid.UUID | None) -> TopicView | None:
        """A topic that can be used."""
        topic = topic_by_id(self.cluster.state, topic_id)
        return self._view(topic) if topic is not None and topic.ready else None

    def check_free(self, name: str) -> None:
        """Raise if the topic exists or, as in Kafka, if one exists that differs only in dots and underscores."""
        topic_rules.check_free(self.cluster.state, name)

    def check_room(self, partitions: int) -> None:
        """Raise if the cluster may not have so many more partitions."""
        try:
            topic_rules.check_room(self.cluster.state, self.settings.limits, partitions)
        except LimitReached:
            self.stats.refuse("partitions")
            raise

    def _view(self, topic: Topic) -> TopicView:
        view = self._views.get(topic.id)
        if view is None:
            config = TopicConfig.of(topic.configs, self.cluster.state.resources.common)
            opened = self.settings.limits.opened_batch_bytes
            view = self._views[topic.id] = TopicView(
                topic,
                config,
                rules_of(config, opened),
                self.writers.of(topic.domain, config.profile or self.settings.default_profile),
                self.domains[Domain(topic.domain)],
                target_of(config, opened),
                is_empty(topic),
            )
        return view

    def produced(self, batch: Batch) -> None:
        """Count a batch that passed its checks."""
        self.stats.produced_bytes += len(batch.data)
        self.stats.produced_records += batch.offsets

    def withdraw(self, part: Part) -> bool:
        """Drop a batch whose request was answered. One that is being stored stays, and counts, until it is decided."""
        return self.opening.withdraw(part) or self.writers.withdraw(part)

    # --- access --------------------------------------------------------------------------------------

    def may(self, request: Request, operation: Operation, kind: AclResource, name: str = THE_CLUSTER) -> bool:
        """Whether the sender of a request is allowed an operation on a resource."""
        if not self.guard.enforced:
            return True
        peer = request.connection
        return self.guard.may(peer.principal, peer.host, operation, kind, name)

    def check_cluster(self, request: Request, operation: Operation) -> None:
        """Raise if the sender of a request is not allowed an operation on the cluster."""
        if not self.may(request, operation, AclResource.CLUSTER):
            raise NotAllowed("Authorization failed.")

    def visible(self, request: Request, operation: Operation, kind: AclResource, names: Iterable[str]) -> list[str]:
        """The names of the resources on which the sender of a request is allowed an operation."""
        return [name for name in names if self.may(request, operation, kind, name)]

    def may_any(self, request: Request, operation: Operation, kind: AclResource) -> bool:
        """Whether the sender of a request is allowed an operation on at least one resource of a kind."""
        if not self.guard.enforced:
            return True
        return self.guard.may_any(request.connection.principal, request.connection.host, operation, kind)

    def operations(self, request: Request, kind: AclResource, name: str = THE_CLUSTER) -> int:
        """The operations that the sender of a request is allowed on a resource, as the protocol's bit field."""
        return self.guard.operations(request.connection.principal, request.connection.host, kind, name)

    # --- the cluster ---------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self.cluster.state.cluster_id

    def check_contact(self) -> None:
        """Raise if the broker is out of contact with the cluster. The error makes clients try another broker."""
        if not self.membership.in_contact:
            raise NotReady(f"node {self.node} is out of contact with the cluster")

    async def read_cluster(self) -> HeadwaterError | None:
        """Bring the metadata of the cluster up to date, once for all items of a request. Returns the error, if any."""
        try:
            await self.cluster.barrier()
        except HeadwaterError as error:
            return error
        return None

    def nodes(self) -> list[Process]:
        """Members that serve clients."""
        return self.cluster.state.serving()

    @staticmethod
    def address(member: Process, listener: str) -> tuple[str, int] | None:
        """The address of a broker for clients of a listener. A broker without that listener gives its first one."""
        open_ones = [x for x in member.listeners if x.name != INTERNAL]
        named = [x for x in open_ones if x.name == listener] or open_ones[:1]
        return (named[0].host, named[0].port) if named else None

    def leader(self, stream_id: int, request: Request) -> int:
        """The node that a client should use for a stream. Every node can serve it."""
        return self.routing.leader(stream_id, zone_of(request.client_id))

    def turns_away(self, request: Request, stream_id: int) -> bool:
        """Whether the client must use another broker for a stream, because the settings enforce owners."""
        return self.settings.routing.enforce_owner and self.leader(stream_id, request) != self.node
