"""Creating, growing, changing and deleting topics: intents in domain 0, carried through in the topic's domain.

Every step is idempotent, so whoever finds an intent half done finishes it.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence

from headwater.clock import Chance
from headwater.errors import BadInput, NotReady
from headwater.metadata.cluster import ClusterState, Topic
from headwater.metadata.commands import (
    AddPartitions,
    AlterConfigs,
    Command,
    ConfigureStreams,
    CreateStreams,
    CreateTopic,
    DeleteTopic,
    DropStreams,
    TopicGone,
    TopicReady,
)
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.streams import StreamsState, stream_config
from headwater.types import Domain

MAX_NAME_LENGTH = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
STREAMS_PER_COMMAND = 50_000


class InvalidTopicName(BadInput):
    """Not a name that a topic can have."""


class TopicExists(BadInput):
    """There is a topic of that name."""


class TopicUnknown(BadInput):
    """There is no such topic."""


class InvalidPartitions(BadInput):
    """A partition count that the topic cannot have."""


def check_name(name: str) -> None:
    """Kafka's rules for topic names, in its words."""
    flaw = ""
    if not name:
        flaw = "the empty string is not allowed"
    elif name in (".", ".."):
        flaw = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        flaw = f"the length of '{name[:300]}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _NAME.fullmatch(name):
        flaw = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if flaw:
        raise InvalidTopicName(f"Topic name is invalid: {flaw}")


class Topics:
    """Changes topics on behalf of one process."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        chance: Chance,
    ) -> None:
        self._cluster = cluster
        self._domains = domains
        self._chance = chance

    async def create(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        """Create a topic and wait until it can be used."""
        check_name(name)
        topic_id = self._chance.uuid()
        domain = min(self._domains)
        self._took(await self._in_cluster(CreateTopic(topic_id, name, partitions, configs, domain)))
        topic = self._cluster.state.topics[topic_id]
        await self.carry_through(topic)
        return topic

    async def add_partitions(self, topic: Topic, total: int) -> None:
        """Grow a topic and wait until the new partitions can be used."""
        self._took(await self._in_cluster(AddPartitions(topic.id, total)))
        await self.carry_through(topic)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic. Its name is free and its records are gone for readers when this returns."""
        self._took(await self._in_cluster(DeleteTopic(topic.id)))
        await self.carry_through(topic)

    async def alter(self, topic: Topic, put: dict[str, str], remove: Sequence[str]) -> None:
        """Change a topic's configs."""
        self._took(await self._in_cluster(AlterConfigs(topic.id, put, tuple(remove))))
        config = stream_config(topic.configs)
        for part in _parts(topic.streams):
            await self._in_domain(topic, ConfigureStreams(part, config))

    async def carry_through(self, topic: Topic) -> None:
        """Finish whatever is begun with a topic."""
        if topic.deleting:
            for part in _parts(topic.streams):
                await self._in_domain(topic, DropStreams(part))
            self._took(await self._in_cluster(TopicGone(topic.id)))
        elif topic.ready < len(topic.streams):
            first, total = topic.ready, len(topic.streams)
            config = stream_config(topic.configs)
            for part in _parts(topic.streams[first:total]):
                await self._in_domain(topic, CreateStreams(topic.id, first, part, config))
                first += len(part)
            self._took(await self._in_cluster(TopicReady(topic.id, total)))

    def pending(self) -> list[Topic]:
        """Topics that somebody has to carry through."""
        return [topic for topic in self._cluster.state.topics.values() if topic.pending]

    async def _in_cluster(self, command: Command) -> Result:
        [result] = await self._cluster.submit([command])
        return result

    async def _in_domain(self, topic: Topic, command: Command) -> None:
        [result] = await self._domains[Domain(topic.domain)].submit([command])
        self._took(result)

    @staticmethod
    def _took(result: Result) -> None:
        if isinstance(result, Done):
            return
        if not isinstance(result, Refused) or result.reason is Reason.FENCED:
            raise NotReady(f"not carried out: {result}")
        kinds: dict[Reason, type[BadInput]] = {
            Reason.EXISTS: TopicExists,
            Reason.UNKNOWN: TopicUnknown,
            Reason.INVALID: InvalidPartitions,
        }
        raise kinds.get(result.reason, BadInput)(result.detail)


def _parts(streams: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(streams[i : i + STREAMS_PER_COMMAND]) for i in range(0, len(streams), STREAMS_PER_COMMAND)]


def topic_id_text(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka's tools print it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
