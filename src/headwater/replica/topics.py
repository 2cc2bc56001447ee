"""Creating, growing, changing and deleting topics: intents in domain 0, carried out in the topic's domain.

Every step is idempotent, so any process that finds an unfinished intent can finish it.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence

from headwater.clock import Chance
from headwater.configs.topics import TopicConfig
from headwater.errors import BadInput, Exists, InvalidName, InvalidPartitions, LimitReached, NotFound, NotReady
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import (
    AddPartitions,
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    TopicGone,
    TopicReady,
)
from headwater.state.commands.links import SetMirror
from headwater.state.commands.streams import ConfigureStreams, CreateStreams, DropStreams, StreamConfig
from headwater.state.records import Command
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

MAX_NAME_LENGTH = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
STREAMS_PER_COMMAND = 50_000


def stream_config(configs: Mapping[str, str], common: Mapping[str, str]) -> StreamConfig:
    """What `apply` needs of the configs that apply to a topic. See `TopicConfig.of`."""
    return StreamConfig(append_time=TopicConfig.of(configs, common).append_time)


def check_name(name: str) -> None:
    """Check a name by Kafka's rules. The errors are in Kafka's words."""
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
        raise InvalidName(f"Topic name is invalid: {flaw}")


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
        took(await self._in_cluster(CreateTopic(topic_id, name, partitions, configs, domain)))
        topic = self._cluster.state.topics[topic_id]
        await self.carry_through(topic)
        return topic

    async def add_partitions(self, topic: Topic, total: int) -> None:
        """Grow a topic and wait until the new partitions can be used."""
        took(await self._in_cluster(AddPartitions(topic.id, total)))
        await self.carry_through(topic)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic. When this returns, the name is free and readers no longer find the records."""
        took(await self._in_cluster(DeleteTopic(topic.id)))
        await self.carry_through(topic)

    async def alter(self, topic: Topic, put: dict[str, str], remove: Sequence[str]) -> None:
        """Change a topic's configs."""
        took(await self._in_cluster(AlterConfigs(topic.id, put, tuple(remove))))
        config = self._stream_config(topic)
        for part in parts_of(topic.streams):
            await self._in_domain(topic, ConfigureStreams(part, config))

    async def configure_all(self) -> None:
        """Like `configure`, in every domain: a default of topic configs may have changed."""
        for replica in self._domains.values():
            await self.configure(replica)

    async def configure(self, replica: Replica[StreamsState]) -> None:
        """Copy configs of topics into a domain where they differ: a process may have died between the two steps."""
        if not self._stale_configs(replica):
            return
        await self._cluster.barrier()  # the domain may know of a change that this replica of domain 0 does not
        for config, streams in self._stale_configs(replica).items():
            for part in parts_of(streams):
                await replica.submit([ConfigureStreams(part, config)])

    def _stale_configs(self, replica: Replica[StreamsState]) -> dict[StreamConfig, list[int]]:
        """Streams whose topic has other configs, by the configs that they should have."""
        wanted = {t.id: self._stream_config(t) for t in self._cluster.state.topics.values() if not t.deleting}
        stale: dict[StreamConfig, list[int]] = {}
        for stream in replica.state.streams.values():
            config = wanted.get(stream.topic)
            if config is not None and stream.append_time != config.append_time:
                stale.setdefault(config, []).append(int(stream.id))
        return stale

    def _stream_config(self, topic: Topic) -> StreamConfig:
        return stream_config(topic.configs, self._cluster.state.resources.common)

    async def carry_through(self, topic: Topic) -> None:
        """Finish the open intent of a topic, if there is one."""
        if topic.deleting:
            for part in parts_of(topic.streams):
                await self._in_domain(topic, DropStreams(part))
            took(await self._in_cluster(TopicGone(topic.id)))
        elif topic.ready < len(topic.streams):
            first, total = topic.ready, len(topic.streams)
            config = self._stream_config(topic)
            for part in parts_of(topic.streams[first:total]):
                await self._create_streams(topic, CreateStreams(topic.id, first, part, config))
                first += len(part)
            took(await self._in_cluster(TopicReady(topic.id, total)))

    async def _create_streams(self, topic: Topic, command: CreateStreams) -> None:
        """Create streams. Those of a linked topic are mirrors at once, before a producer can write to them."""
        replica, linked = self._domains[Domain(topic.domain)], self._cluster.state.links.topics.get(topic.id)
        if linked is None:
            await self._in_domain(topic, command)
            return
        # Another process may have been faster, with a later generation: then the second command is refused.
        created, _ = await replica.submit([command, SetMirror(command.streams, linked.generation, linked.mirrored)])
        took(created)

    def pending(self) -> list[Topic]:
        """Topics with an open intent."""
        return [topic for topic in self._cluster.state.topics.values() if topic.pending]

    async def _in_cluster(self, command: Command) -> Result:
        [result] = await self._cluster.submit([command])
        return result

    async def _in_domain(self, topic: Topic, command: Command) -> None:
        [result] = await self._domains[Domain(topic.domain)].submit([command])
        took(result)


def took(result: Result) -> None:
    """Raise an error if a command about a topic did not take effect."""
    if isinstance(result, Done):
        return
    if not isinstance(result, Refused) or result.reason is Reason.FENCED:
        raise NotReady(f"not carried out: {result}")
    kinds: dict[Reason, type[BadInput]] = {
        Reason.EXISTS: Exists,
        Reason.UNKNOWN: NotFound,
        Reason.INVALID: InvalidPartitions,
        Reason.FULL: LimitReached,
    }
    raise kinds.get(result.reason, BadInput)(result.detail)


def parts_of(streams: Sequence[int]) -> list[tuple[int, ...]]:
    """Streams in parts that one command can have."""
    return [tuple(streams[i : i + STREAMS_PER_COMMAND]) for i in range(0, len(streams), STREAMS_PER_COMMAND)]


def topic_id_text(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka's tools print it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
