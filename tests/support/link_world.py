"""A source in memory, and a node in virtual time that copies it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.app.node import Node
from headwater.client.model import Broker
from headwater.client.records import Record, decode_batches
from headwater.errors import HeadwaterError
from headwater.link.copying.feed import Place
from headwater.link.copying.link import Committed
from headwater.link.copying.links import Copying
from headwater.link.copying.topics import Found as FoundTopic
from headwater.link.copying.topics import Present
from headwater.link.source.errors import SourceDeleted, SourceOvertaken, SourceRecreated, SourceTruncated
from headwater.link.source.pieces import pieces
from headwater.link.source.source import Answer, Found, Group, Want
from headwater.replica.links import Linking
from headwater.settings.links import Links
from headwater.state.cluster.links import Link, LinkedTopic
from headwater.state.commands.links import LinkSpec
from headwater.types import StreamId
from tests.support.batches import Rec
from tests.support.source_logs import SourceLog
from tests.support.virtual_nodes import ONE, read

QUICK = Links(metadata_ms=1000, groups_ms=1000, check_ms=100, lease_ms=1000, fetch_wait_ms=100, report_ms=1000)

PATIENCE_SECONDS = 120.0
"""Of virtual time."""


class ModelSource:
    """Topics of a Kafka in memory. Partitions of a topic are led by two brokers in turn."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[uuid.UUID, list[SourceLog]]] = {}
        self.groups: dict[str, dict[Place, int]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        """Configs of topics, if they are followed."""
        self.refused: dict[str, str] = {}
        """Groups whose offsets are not told, and why."""
        self.down: HeadwaterError | None = None
        """What every request fails with."""
        self.failing: dict[Place, HeadwaterError] = {}
        """What requests for partitions fail with."""
        self.fetches = 0
        self.histories: list[tuple[int, int, int]] = []
        """Of each fetch of a partition: the position, the epoch, and the offset up to which it is known."""
        self.fetch_bytes = 1 << 20
        self._made = 0

    def create(self, name: str, partitions: int = 1) -> list[SourceLog]:
        self._made += 1
        logs = [SourceLog() for _ in range(partitions)]
        self.topics[name] = uuid.UUID(int=self._made), logs
        return logs

    def put(self, name: str, partition: int, *values: bytes, producer: int = -1) -> None:
        """Append a batch."""
        records = [(delta, Rec(value)) for delta, value in enumerate(values)]
        self.topics[name][1][partition].append(records, len(values), producer=producer, transactional=producer >= 0)

    def committed(self, name: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
        return _values(self.topics[name][1][partition].committed(0))

    def open(self, link: Link) -> ModelOrigin:
        """The source of a link."""
        return ModelOrigin(self, link.spec)


class ModelOrigin:
    """Keeps `Origin` for a `ModelSource`."""

    def __init__(self, source: ModelSource, spec: LinkSpec) -> None:
        self._source = source
        self._spec = spec
        self.throttled_s = 0.0

    def _check(self) -> None:
        if self._source.down is not None:
            raise self._source.down

    async def discover(self, also: Sequence[str]) -> Present:
        await asyncio.sleep(0.001)
        self._check()
        names = {*self._spec.topics, *also}
        found = [
            FoundTopic(name, topic_id, len(logs), self._source.configs.get(name))
            for name, (topic_id, logs) in self._source.topics.items()
            if name in names
        ]
        missing = {name: "there is no such topic" for name in names - {one.name for one in found}}
        return Present(found, missing)

    async def group_offsets(self, topics: Sequence[str]) -> Committed:
        await asyncio.sleep(0.001)
        self._check()
        return Committed({group: dict(offsets) for group, offsets in self._source.groups.items()}, self._source.refused)

    async def by_leader(self, wants: Sequence[Want]) -> tuple[list[Group], dict[Place, HeadwaterError]]:
        self._check()
        groups: dict[int, dict[Want, int]] = {}
        for want in wants:
            groups.setdefault(want.partition % 2, {})[want] = 0
        return [Group(Broker(node, "localhost", 1, None), terms) for node, terms in groups.items()], {}

    async def fetch(self, group: Group) -> Mapping[Place, Answer]:
        self._source.fetches += 1
        self._check()
        answers = {want.place: self._answer(want) for want in group.terms}
        quick = any(isinstance(answer, Found) and answer.pieces for answer in answers.values())
        await asyncio.sleep(0.001 if quick else 0.1)
        self._check()
        return answers

    def _answer(self, want: Want) -> Answer:
        self._source.histories.append((want.position, want.epoch, want.known))
        if want.place in self._source.failing:
            return self._source.failing[want.place]
        topic_id, logs = self._source.topics.get(want.topic, (None, []))
        if topic_id is None:
            return SourceDeleted("the source has no such topic any more")
        if topic_id != want.topic_id:
            return SourceRecreated("another topic")
        log = logs[want.partition]
        if want.position < log.log_start:
            return SourceOvertaken(f"the source begins at {log.log_start}", log.log_start)
        if want.position > log.end:
            return SourceTruncated(f"the source ends at {log.end}, copied up to {want.position}", log.end)
        fetched = log.fetch(want.position, self._source.fetch_bytes)
        return Found(want.position, pieces(fetched, want.position), fetched.stable, log.end, log.log_start)

    def doubt(self, topic: str) -> None:
        """Every fetch makes sure."""

    def leave(self, place: Place) -> None:
        """Nothing is remembered."""

    async def close(self) -> None:
        """Nothing is open."""


def copying_of(node: Node, source: ModelSource) -> Copying:
    """Copies the links of a node's cluster."""
    return Copying(node.domains, node.writers, node.settings, source.open)


def linking_of(node: Node) -> Linking:
    return Linking(node.cluster, node.domains, node.broker.topics, node.domains.chance)


async def link(node: Node, *topics: str, name: str = "first", **more: Any) -> None:
    """Create a link."""
    fields: dict[str, Any] = {"patterns": (), "groups": (), "options": {}, "security": {}, "paused": False} | more
    await linking_of(node).put(LinkSpec(name=name, bootstrap=("localhost:1",), topics=topics, **fields), 0)


def linked(node: Node, name: str) -> LinkedTopic | None:
    """The linked topic of a name here."""
    topic = node.cluster.state.names.get(name)
    return node.cluster.state.links.topics.get(topic.id) if topic is not None else None


def end_of(node: Node, name: str, partition: int = 0) -> int:
    """Where the log here ends; -1 if there is no such partition."""
    topic = node.cluster.state.names.get(name)
    if topic is None or partition >= topic.ready:
        return -1
    return node.domains[ONE].state.streams[StreamId(topic.streams[partition])].next_offset


async def copied(node: Node, name: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records here."""
    topic = node.cluster.state.names[name]
    stream, found, at = topic.streams[partition], list[Record](), 0
    while at < end_of(node, name, partition):
        data = await read(node, stream, at)
        batches = list(decode_batches(data))
        found += [record for one in batches for record in one.records if record.offset >= at]
        at = batches[-1].next_offset
    return _values(found)


def _values(records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


async def until(look: Callable[[], object]) -> None:
    """Wait in virtual time until something is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not look():
            await asyncio.sleep(0.05)
