"""A topic that a link copies, and what a link appends to it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.app.core import Core
from headwater.app.node import Node
from headwater.errors import HeadwaterError
from headwater.log.batch import check_batch
from headwater.log.write.part import Together
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.links import LinkedTopic
from headwater.state.commands.links import LinkPhase, LinkSpec
from headwater.state.commands.streams import EndIs, MirrorIs, StartAt
from headwater.state.results import UnitResult
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.support.batches import Rec, batch
from tests.support.virtual_nodes import LAX

SOURCE_ID = uuid.UUID(int=9)
SPEC = LinkSpec("old", ("kafka:9092",), {}, (), (".*",), (), {}, False)


@dataclass
class Copied:
    """A linked topic on a node or a gateway."""

    core: Core | Node
    topic: Topic
    linking: Linking

    @property
    def linked(self) -> LinkedTopic:
        return self.core.cluster.state.links.topics[self.topic.id]

    def stream(self, partition: int = 0) -> Stream:
        domain = self.core.domains[Domain(self.topic.domain)]
        return domain.state.streams[self.topic.streams[partition]]

    async def copy(self, start: int, values: Sequence[bytes | Rec], partition: int = 0) -> UnitResult | HeadwaterError:
        """Append records at an offset of the source."""
        decided: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()
        stream = self.stream(partition)
        now = self.core.domains.clock.wall_ms()
        records = [value if isinstance(value, Rec) else Rec(value, timestamp=now) for value in values]
        data = check_batch(batch(records), LAX, now)
        conditions = [
            EndIs(stream.id, stream.next_offset),
            StartAt(stream.id, start),
            MirrorIs(stream.id, stream.mirror.generation),
        ]
        unit = Together([(int(stream.id), data)], list(conditions), decided.set_result)
        self.core.writers.of(self.topic.domain, "latency").append_unit(unit)
        return await decided

    async def change(self, phase: LinkPhase, reason: str = "") -> None:
        await self.linking.change(self.linked, phase, reason)


async def link(core: Core | Node, name: str, partitions: int = 1, **configs: str) -> Copied:
    """A new topic that the link `old` copies from the topic `source` of its source."""
    topics = Topics(core.cluster, core.domains, core.domains.chance)
    linking = Linking(core.cluster, core.domains, topics, core.domains.chance)
    if SPEC.name not in core.cluster.state.links.links:
        await linking.put(SPEC, 0)
    topic = await linking.create_topic(SPEC.name, name, "source", SOURCE_ID, partitions, configs)
    return Copied(core, topic, linking)
