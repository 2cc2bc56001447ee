"""Which broker gets a request: connections, metadata, leaders, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headwater.client.connection import CONNECT_SECONDS, REQUEST_SECONDS, Connection, connect
from headwater.client.errors import AnswerLost, KafkaError, ProtocolError, Unreachable, check, kafka_error
from headwater.client.model import Broker, Cluster, Partition, Topic
from headwater.client.security import ClientSecurity
from headwater.clock import Chance, Clock, SystemChance, SystemClock
from headwater.errors import ConfigError, HeadwaterError, OutcomeUnknown, Retriable
from headwater.settings.settings import parse_address

METADATA, FIND_COORDINATOR = 3, 10
GROUP_KEY, TRANSACTION_KEY = 0, 1
MAX_BOOTSTRAP = 64
MAX_CACHED_TOPICS = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Time limits and security of a client."""

    connect_s: float = CONNECT_SECONDS
    request_s: float = REQUEST_SECONDS
    retry_s: float = 30.0
    """How long a call is retried."""
    attempts: int = 1_000
    impatient_s: float = 1.0
    """The same if retries are unlikely to help: no broker ever answered, a topic is unknown, a batch is corrupt."""
    first_pause_s: float = 0.02
    longest_pause_s: float = 1.0
    metadata_age_s: float = 300.0
    security: ClientSecurity = field(default_factory=ClientSecurity)
    """TLS and the user that logs in."""
    secrets: Callable[[], ClientSecurity] | None = None
    """Reads `security` anew, for every connection and every renewed log-in: passwords change, tokens expire."""


class Repeat(Enum):
    """When a failed attempt may be retried."""

    ALWAYS = auto()
    """Always: the call may be made twice."""
    IF_NOT_DONE = auto()
    """Only if the failed attempt certainly changed nothing."""
    IF_NOT_SENT = auto()
    """Only if no broker has seen the failed attempt."""


_IN_DOUBT = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.not_leader_or_follower,
        ErrorCode.kafka_storage_error,
    }
)
_UNLIKELY = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.corrupt_message})


def in_doubt(error: HeadwaterError) -> bool:
    """Whether a failed write may have taken effect."""
    return isinstance(error, OutcomeUnknown) or (isinstance(error, KafkaError) and error.code in _IN_DOUBT)


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of concurrent calls. Waits for all of them; then raises the first failure."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`HOST:PORT[,HOST:PORT…]`."""
    addresses = [parse_address(part) for part in text.split(",") if part.strip()]
    if not 0 < len(addresses) <= MAX_BOOTSTRAP:
        raise ConfigError(f"{text!r} must name 1 to {MAX_BOOTSTRAP} brokers as HOST:PORT, separated by commas")
    return addresses


class Router:
    """The part of a client that finds brokers."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "headwater",
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        self.settings = settings or ClientSettings()
        self.clock: Clock = clock or SystemClock()
        self.chance: Chance = chance or SystemChance()
        self._client_id = client_id
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._connecting: dict[tuple[str, int], asyncio.Lock] = {}
        self._cluster: Cluster | None = None
        self._topics: dict[str, tuple[float, Topic]] = {}
        self._closed = False
        self.on_retry: Callable[[HeadwaterError], None] = lambda error: None
        """Called with every failure before the attempt is repeated."""

    def __repr__(self) -> str:
        known = len(self._cluster.brokers) if self._cluster else 0
        return f"<{type(self).__name__} of {known} brokers, {len(self._topics)} topics known>"

    async def close(self) -> None:
        """Close all connections; the client cannot be used again."""
        self._closed = True
        connections, self._connections = self._connections, {}
        await all_of(connection.close() for connection in connections.values())

    # --- connections ---------------------------------------------------------------------------------

    async def connection_to(self, host: str, port: int) -> Connection:
        """The open connection to an address, or a new one."""
        key = (host, port)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            return connection
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.closed:
                if self._closed:
                    raise Unreachable("the client is closed")
                own = self.settings
                connection = await connect(host, port, self._client_id, own.connect_s, own.security, own.secrets)
                self._connections[key] = connection
        return connection

    async def any_broker(self) -> Connection:
        """A connection to any broker: an open one, else the first one that answers."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = [(b.host, b.port) for b in self._cluster.brokers] if self._cluster else []
        failures = []
        for host, port in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self.connection_to(host, port)
            except Unreachable as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise Unreachable("no broker can be reached: " + "; ".join(map(str, failures)))

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The live brokers of the last metadata; none before the first."""
        return self._cluster.brokers if self._cluster else ()

    async def _node(self, node: int) -> Connection:
        for broker in self._cluster.brokers if self._cluster else ():
            if broker.node == node:
                return await self.connection_to(broker.host, broker.port)
        raise Unreachable(f"broker {node} is not among the live brokers")

    async def all_brokers(self) -> list[Connection]:
        """Connections to every live broker in the last metadata."""
        return [await self.connection_to(b.host, b.port) for b in (self._cluster.brokers if self._cluster else ())]

    async def controller(self) -> Connection:
        """A broker for changes: the controller, or any broker if the cluster forwards them."""
        await self.load_metadata([])
        assert self._cluster is not None
        if any(broker.node == self._cluster.controller for broker in self._cluster.brokers):
            return await self._node(self._cluster.controller)
        return await self.any_broker()

    async def coordinator(self, name: str, key_type: int) -> Connection:
        """The broker that coordinates a group or a transactional id."""
        connection = await self.any_broker()
        response = await connection.request(
            FIND_COORDINATOR,
            within=self.settings.request_s,
            key=name,
            key_type=key_type,
            coordinator_keys=[name],
        )
        answers = response.coordinators if hasattr(response, "coordinators") else [response]
        what = f"coordinator of {'group' if key_type == GROUP_KEY else 'transactional id'} {name!r}"
        if len(answers) != 1:
            raise ProtocolError(f"{what}: {len(answers)} answers to a request for one item")
        check(answers[0].error_code, what, getattr(answers[0], "error_message", None))
        return await self.connection_to(answers[0].host, answers[0].port)

    # --- metadata ------------------------------------------------------------------------------------

    async def load_metadata(
        self, names: list[str] | None, *, create: bool = False, asked: Connection | None = None
    ) -> list[Any]:
        """Ask any broker for topics by name, all of them if `None`. Also updates the live brokers.

        A given broker is asked for what it knows itself, and updates nothing.
        """
        connection = asked or await self.any_broker()
        topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
        try:
            response = await connection.request(
                METADATA, within=self.settings.request_s, topics=topics, allow_auto_topic_creation=create
            )
        except AnswerLost as error:
            if self._cluster is not None or self.settings.security.mechanism:
                raise
            raise AnswerLost(f"{error} (the broker may require a log-in)") from error
        if asked is not None:
            return list(response.topics)
        brokers = tuple(Broker(b.node_id, b.host, b.port, getattr(b, "rack", None)) for b in response.brokers)
        self._cluster = Cluster(getattr(response, "cluster_id", None), getattr(response, "controller_id", -1), brokers)
        return list(response.topics)

    async def cluster(self) -> Cluster:
        """The live brokers, from a new request."""

        async def attempt() -> Cluster:
            await self.load_metadata([])
            assert self._cluster is not None
            return self._cluster

        return await self.retrying(attempt)

    async def topic_now(self, name: str, *, create: bool = False) -> Topic:
        """A topic as the cluster knows it, from the cache if it is fresh; one attempt."""
        now = self.clock.monotonic()
        cached = self._topics.get(name)
        if cached is not None and now - cached[0] < self.settings.metadata_age_s:
            return cached[1]
        (answer,) = await self.load_metadata([name], create=create)
        check(answer.error_code, f"topic {name!r}")
        topic = topic_of(answer)
        if len(self._topics) >= MAX_CACHED_TOPICS:
            self._topics.clear()
        self._topics[name] = (now, topic)
        return topic

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic. With `create`, a missing topic is created if the brokers allow it."""
        patience = self.settings.retry_s if create else None
        return await self.retrying(lambda: self.topic_now(name, create=create), topic=name, impatient_s=patience)

    def forget(self, name: str) -> None:
        """Have the metadata of a topic refreshed before its next use."""
        self._topics.pop(name, None)

    async def by_leader(self, name: str, partitions: Iterable[int]) -> list[tuple[Topic, Connection, list[int]]]:
        """Partitions by their leaders."""
        topic = await self.topic_now(name)
        groups: dict[int, list[int]] = {}
        for index in partitions:
            if not 0 <= index < len(topic.partitions):
                raise kafka_error(ErrorCode.unknown_topic_or_partition, f"partition {index} of topic {name!r}")
            leader = topic.partitions[index].leader
            if leader < 0:
                raise Unreachable(f"partition {index} of topic {name!r} has no leader now")
            groups.setdefault(leader, []).append(index)
        return [(topic, await self._node(leader), group) for leader, group in groups.items()]

    # --- trying again --------------------------------------------------------------------------------

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        topic: str | None = None,
        repeat: Repeat = Repeat.ALWAYS,
        within: float | None = None,
        impatient_s: float | None = None,
    ) -> T:
        """Make attempts, each with fresh metadata of the topic, until one succeeds or fails for good.

        The last attempt begins before `within` seconds have passed; its failure is raised.
        """
        settings = self.settings
        began = self.clock.monotonic()
        pause = settings.first_pause_s
        for left in range(settings.attempts - 1, -1, -1):
            try:
                return await attempt()
            except Retriable as error:
                if not left or not _repeatable(error, repeat):
                    raise
                limit = settings.retry_s if within is None else within
                if self._hopeless(error):
                    given = None if self._cluster is None else impatient_s
                    limit = min(limit, settings.impatient_s if given is None else given)
                if self.clock.monotonic() - began + pause > limit:
                    raise
                self.on_retry(error)
            if topic is not None:
                self.forget(topic)
            await asyncio.sleep(pause * (0.5 + self.chance.fraction()))
            pause = min(pause * 2, settings.longest_pause_s)
        raise AssertionError("settings.attempts is 0")

    def _hopeless(self, error: HeadwaterError) -> bool:
        """Whether retries are unlikely to help.

        A client that no broker has answered yet may have a wrong address, or may have to log in first.
        """
        if isinstance(error, KafkaError):
            return error.code in _UNLIKELY
        return isinstance(error, Unreachable | AnswerLost) and self._cluster is None


def _repeatable(error: HeadwaterError, repeat: Repeat) -> bool:
    if repeat is Repeat.ALWAYS:
        return True
    if repeat is Repeat.IF_NOT_DONE:
        return not in_doubt(error)
    return isinstance(error, Unreachable)


def topic_of(answer: Any) -> Topic:
    """A topic of a Metadata response."""
    partitions = sorted(answer.partitions, key=lambda p: p.partition_index)
    if [p.partition_index for p in partitions] != list(range(len(partitions))):
        raise Unreachable(f"the metadata of topic {answer.name!r} has only some of its partitions")
    return Topic(
        answer.name,
        getattr(answer, "topic_id", None),
        bool(getattr(answer, "is_internal", False)),
        tuple(
            Partition(
                p.partition_index,
                p.leader_id,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                getattr(p, "leader_epoch", -1),
            )
            for p in partitions
        ),
        tuple(p.partition_index for p in partitions if p.leader_id >= 0),
    )
