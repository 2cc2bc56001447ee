"""A source cluster in memory, behind the client that a link uses: brokers that know old things, leaders that move, logs
that are cut, topics that are deleted and created anew."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.errors import AnswerLost, Unreachable, UnsupportedApi, check
from headwater.client.fetching import FETCH, LAST_WITH_NAMES, OFFSET_FOR_LEADER_EPOCH
from headwater.client.model import EARLIEST, Broker, Config, FoundOffset, GroupListing
from headwater.errors import ClientError
from headwater.link.source.source import Source
from headwater.settings.links import Links
from headwater.threads import Offload, inline
from tests.support.source_logs import SourceLog

FETCH_VERSIONS = 17
FIRST_WITH_SESSIONS = 7


@dataclass(slots=True)
class ModelPartition:
    """A partition, its leader and the leader's term."""

    leader: int
    epoch: int = 0
    log: SourceLog = field(default_factory=SourceLog)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """What a leader answers: the largest epoch up to this one, and where the next begins."""
        if epoch > self.epoch:
            return -1, -1
        starts = {self.epoch: self.log.end}
        for one in reversed(self.log.batches):
            starts[int.from_bytes(one.data[12:16], "big", signed=True)] = one.start
        later = [start for known, start in starts.items() if known > epoch]
        found = max([known for known in starts if known <= epoch], default=epoch)
        return found, min(later, default=self.log.end) if found != self.epoch else self.log.end

    def cut(self, offset: int) -> None:
        """An unclean leader takes over, who has the log only up to an offset."""
        self.epoch += 1
        self.log.epoch = self.epoch
        self.log.batches = [one for one in self.log.batches if one.next <= offset]
        self.log.end = offset


@dataclass(slots=True)
class ModelTopic:
    """A topic."""

    id: uuid.UUID | None
    partitions: list[ModelPartition]
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True)
class ModelSession:
    """What a broker remembers of a client's fetches."""

    epoch: int = 1
    asked: dict[tuple[Any, int], dict[str, Any]] = field(default_factory=dict)
    """By topic, as requests name it, and partition: what the client asked for last."""
    told: dict[tuple[Any, int], tuple[int, int]] = field(default_factory=dict)
    """The high watermark and the start of the log that it has told; none after an error."""


@dataclass(slots=True)
class ModelBroker:
    """A broker: whether it answers, and what it knows of topics if that is not the truth."""

    node: int
    failure: ClientError | None = None
    silent: bool = False
    """It takes connections, and never answers."""
    stale: dict[str, ModelTopic | None] = field(default_factory=dict)
    sessions: dict[int, ModelSession] = field(default_factory=dict)


class ModelCluster:
    """The truth, and a client for either of a link's purposes."""

    def __init__(self, nodes: int = 1) -> None:
        self.brokers = {node: ModelBroker(node) for node in range(nodes)}
        self.topics: dict[str, ModelTopic] = {}
        self.fetch_version = FETCH_VERSIONS
        self.epochs_served = True
        self.fetch_errors: dict[tuple[str, int], ErrorCode] = {}
        self.fetches: list[list[tuple[str, int, int]]] = []
        """For each fetch the partitions that it names, and the positions in them."""
        self.sessions: list[tuple[int, int]] = []
        """For each fetch the id and the epoch of its session."""
        self.session_slots = 100
        """How many sessions a broker has room for."""
        self.throttle_s: list[float] = []
        """How long the next fetches are throttled by a quota."""
        self.fetch_s = 0.0
        """How long a fetch takes."""
        self.hidden = False
        """Fetches answer without records, although there are some, as if a remote store were slow."""
        self.epoch_questions = 0
        self.metadata_questions = 0
        """How often single brokers were asked for metadata."""
        self.groups: list[GroupListing] = []
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.configs: list[Config] = []
        self.refused: dict[str, ErrorCode] = {}
        """Groups whose offsets, and topics whose configs are not told."""
        self.closed = 0

    def __repr__(self) -> str:
        return f"<ModelCluster of {len(self.brokers)} brokers, {len(self.topics)} topics>"

    def create(self, name: str, partitions: int = 1, *, ids: bool = True) -> ModelTopic:
        """Create a topic, whose partitions are led in turn."""
        id = uuid.uuid4() if ids else None
        self.topics[name] = ModelTopic(id, [ModelPartition(i % len(self.brokers)) for i in range(partitions)])
        return self.topics[name]

    def source(self, settings: Links | None = None, offload: Offload = inline) -> Source:
        """A link's client of this cluster."""
        own: Any = [_Client(self), _Client(self)]
        return Source(own[0], own[1], settings or Links(), offload)

    def connection(self, node: int) -> Any:
        """A connection to a broker, as far as fetches use one."""
        return _Connection(self, node)

    def metadata(self, node: int, names: list[str] | None) -> list[Any]:
        """What a broker answers."""
        broker = self.brokers[node]
        if broker.failure is not None:
            raise broker.failure
        known = {**self.topics, **broker.stale}
        return [_described(name, known.get(name)) for name in (sorted(known) if names is None else names)]


def _described(name: str, topic: ModelTopic | None) -> Any:
    if topic is None:
        return SimpleNamespace(name=name, error_code=ErrorCode.unknown_topic_or_partition, partitions=())
    partitions = [
        SimpleNamespace(
            partition_index=i,
            leader_id=p.leader,
            replica_nodes=(p.leader,),
            isr_nodes=(p.leader,),
            leader_epoch=p.epoch,
        )
        for i, p in enumerate(topic.partitions)
    ]
    return SimpleNamespace(
        name=name,
        error_code=topic.error,
        topic_id=topic.id,
        is_internal=name.startswith("__"),
        partitions=partitions,
    )


class _Client:
    """What a link uses of `Client`."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self.brokers: tuple[Broker, ...] = ()

    async def close(self) -> None:
        self._cluster.closed += 1

    async def load_metadata(self, names: list[str] | None, *, asked: _Connection | None = None) -> list[Any]:
        if asked is not None:
            self._cluster.metadata_questions += 1
            return self._cluster.metadata(asked.node, names)
        for broker in self._cluster.brokers.values():
            if broker.failure is None:
                answers = self._cluster.metadata(broker.node, names)
                self.brokers = tuple(Broker(node, "source", node, None) for node in self._cluster.brokers)
                return answers
        raise next(broker.failure for broker in self._cluster.brokers.values() if broker.failure is not None)

    async def connection_to(self, host: str, port: int) -> _Connection:
        failure = self._cluster.brokers[port].failure
        if self._cluster.brokers[port].silent:
            await asyncio.Event().wait()
        if isinstance(failure, Unreachable):
            raise failure
        return _Connection(self._cluster, port)

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], **_: object) -> Any:
        return await attempt()

    def forget(self, topic: str) -> None:
        assert topic

    async def list_offsets(
        self, topic: str, wanted: Mapping[int, int], *, committed: bool = False
    ) -> dict[int, FoundOffset]:
        [answer] = await self.load_metadata([topic])
        check(answer.error_code, topic)
        found = {}
        for index, which in wanted.items():
            log = self._cluster.topics[topic].partitions[index].log
            found[index] = FoundOffset(log.log_start if which == EARLIEST else log.stable if committed else log.end, -1)
        return found

    async def describe_configs(self, topic: str) -> list[Config]:
        assert topic in self._cluster.topics
        check(self._cluster.refused.get(topic, ErrorCode.none), f"configs of topic {topic!r}")
        return self._cluster.configs

    async def list_groups(self) -> list[GroupListing]:
        return self._cluster.groups

    async def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        check(self._cluster.refused.get(group, ErrorCode.none), f"offsets of group {group!r}")
        return self._cluster.offsets[group]


class _Connection:
    """What a link uses of `Connection`."""

    def __init__(self, cluster: ModelCluster, node: int) -> None:
        self._cluster = cluster
        self.node = node
        self.address = f"source:{node}"

    def version(self, api_key: int) -> int:
        assert api_key == FETCH
        return self._cluster.fetch_version

    async def request(self, api_key: int, /, within: float, newest: int | None = None, **fields: Any) -> Any:
        failure = self._cluster.brokers[self.node].failure
        if failure is not None:
            raise failure if not isinstance(failure, Unreachable) else AnswerLost("the connection was lost")
        if api_key == FETCH:
            assert fields["isolation_level"] == 1 and newest is not None
            await asyncio.sleep(self._cluster.fetch_s)
            return self._fetch(newest, fields)
        assert api_key == OFFSET_FOR_LEADER_EPOCH
        return self._epochs(fields)

    def _fetch(self, version: int, fields: dict[str, Any]) -> Any:
        cluster, broker = self._cluster, self._cluster.brokers[self.node]
        cluster.fetches.append(
            [(t["topic"], p["partition"], p["fetch_offset"]) for t in fields["topics"] for p in t["partitions"]]
        )
        id, epoch = (fields["session_id"], fields["session_epoch"]) if version >= FIRST_WITH_SESSIONS else (0, -1)
        cluster.sessions.append((id, epoch))
        key = "topic_id" if version > LAST_WITH_NAMES else "topic"
        named = {(t[key], p["partition"]): p for t in fields["topics"] for p in t["partitions"]}
        session = None
        if epoch > 0:
            session = broker.sessions.get(id)
            if session is None or session.epoch != epoch:
                wrong = ErrorCode.invalid_fetch_session_epoch if session else ErrorCode.fetch_session_id_not_found
                return SimpleNamespace(error_code=wrong, session_id=0, responses=[], throttle_time=timedelta())
            session.epoch += 1
            for topic in fields["forgotten_topics_data"]:
                for partition in topic["partitions"]:
                    del session.asked[topic[key], partition]
                    session.told.pop((topic[key], partition), None)
            session.asked.update(named)
        elif epoch == 0:
            broker.sessions.pop(id, None)
        if cluster.throttle_s:
            pause = timedelta(seconds=cluster.throttle_s.pop(0))
            own = id if session else 0
            return SimpleNamespace(error_code=ErrorCode.none, session_id=own, responses=[], throttle_time=pause)
        answers = self._answers(version, session.asked if session else named, fields["max_bytes"])
        if epoch == 0 and len(broker.sessions) < cluster.session_slots:
            session, id = ModelSession(asked=named), 1 + max(broker.sessions, default=100)
            broker.sessions[id] = session
        elif session is None:
            id = 0
        if session is not None:
            answers = self._news(session, answers)
        topics: dict[Any, list[Any]] = {}
        for (topic, _), answer in answers.items():
            topics.setdefault(topic, []).append(answer)
        responses = [SimpleNamespace(partitions=parts, **{key: topic}) for topic, parts in topics.items()]
        return SimpleNamespace(error_code=ErrorCode.none, session_id=id, responses=responses, throttle_time=timedelta())

    def _answers(
        self, version: int, asked: dict[tuple[Any, int], dict[str, Any]], max_bytes: int
    ) -> dict[tuple[Any, int], Any]:
        found = {}
        for (topic, partition), want in asked.items():
            if version > LAST_WITH_NAMES:
                known = next(((n, t) for n, t in self._cluster.topics.items() if t.id == topic), None)
                unknown = ErrorCode.unknown_topic_id
            else:
                known, unknown = (topic, self._cluster.topics[topic]), ErrorCode.unknown_topic_or_partition
            one = self._one(want, unknown) if known is None else self._part(known[0], known[1], want, max_bytes)
            max_bytes -= len(getattr(one, "records", None) or b"")
            found[topic, partition] = one
        return found

    @staticmethod
    def _news(session: ModelSession, answers: dict[tuple[Any, int], Any]) -> dict[tuple[Any, int], Any]:
        """What a session's answer has: records, errors, and what was not told before."""
        news = {}
        for key, answer in answers.items():
            if answer.error_code is not ErrorCode.none:
                session.told.pop(key, None)
                news[key] = answer
                continue
            now = (answer.high_watermark, answer.log_start_offset)
            if answer.records or session.told.get(key) != now:
                news[key] = answer
            session.told[key] = now
        return news

    def _part(self, name: str, topic: ModelTopic, asked: dict[str, Any], max_bytes: int) -> Any:
        index = asked["partition"]
        if (name, index) in self._cluster.fetch_errors:
            return self._one(asked, self._cluster.fetch_errors[name, index])
        partition = topic.partitions[index]
        wrong = self._refusal(partition, asked["current_leader_epoch"])
        if wrong is not None:
            return self._one(asked, wrong)
        log, offset = partition.log, asked["fetch_offset"]
        if not log.log_start <= offset <= log.end:
            return self._one(asked, ErrorCode.offset_out_of_range)
        fetched = log.fetch(offset, min(max_bytes, asked["partition_max_bytes"]))
        if self._cluster.hidden or max_bytes <= 0:
            fetched = replace(fetched, data=b"")
        aborted = [SimpleNamespace(producer_id=p, first_offset=first) for p, first in fetched.aborted]
        return SimpleNamespace(
            partition_index=index,
            error_code=ErrorCode.none,
            high_watermark=fetched.high_watermark,
            last_stable_offset=fetched.stable,
            log_start_offset=fetched.log_start,
            aborted_transactions=aborted or None,
            records=fetched.data or None,
        )

    def _refusal(self, partition: ModelPartition, epoch: int) -> ErrorCode | None:
        if partition.leader != self.node:
            return ErrorCode.not_leader_or_follower
        if epoch not in (-1, partition.epoch):
            return ErrorCode.fenced_leader_epoch if epoch < partition.epoch else ErrorCode.unknown_leader_epoch
        return None

    @staticmethod
    def _one(asked: dict[str, Any], code: ErrorCode) -> Any:
        return SimpleNamespace(partition_index=asked["partition"], error_code=code)

    def _epochs(self, fields: dict[str, Any]) -> Any:
        if not self._cluster.epochs_served:
            raise UnsupportedApi("no such API")
        self._cluster.epoch_questions += 1
        topics = []
        for wanted in fields["topics"]:
            answers = []
            for asked in wanted["partitions"]:
                partition = self._cluster.topics[wanted["topic"]].partitions[asked["partition"]]
                wrong = self._refusal(partition, asked["current_leader_epoch"])
                epoch, end = partition.epoch_end(asked["leader_epoch"])
                answers.append(
                    SimpleNamespace(
                        partition=asked["partition"],
                        error_code=wrong or ErrorCode.none,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(SimpleNamespace(topic=wanted["topic"], partitions=answers))
        return SimpleNamespace(topics=topics)
