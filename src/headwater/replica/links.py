"""Links and linked topics: intents in domain 0, carried out in the domains of the streams.

A change of a linked topic gets a generation in domain 0 first. Then the topic's streams take the generation over. Every
step is idempotent, so any process that finds streams behind their topic can finish it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from headwater.clock import Chance
from headwater.errors import BadInput, Conflict, Exists, Mirrored, NotFound, NotReady
from headwater.replica.replica import Replica
from headwater.replica.topics import Topics, check_name, parts_of, took
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.links import Link, LinkedTopic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import CreateTopic, DeleteTopic
from headwater.state.commands.links import (
    DropLink,
    LinkPhase,
    LinkSpec,
    NoteSourceEnds,
    PutLink,
    SetLinkTopic,
    SetMirror,
)
from headwater.state.records import Command
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

MAX_ENDS = 5_000
"""Ends of one record of the ledger."""


def mirrored(state: ClusterState, topic: Topic | None) -> Mirrored:
    """The error for a caller that writes to a topic which a link copies."""
    linked = state.links.topics.get(topic.id) if topic is not None else None
    by = f"link {linked.link!r}" if linked is not None else "a link"
    name = f"Topic {topic.name!r}" if topic is not None else "The topic"
    return Mirrored(f"{name} is copied by {by} and takes no other records. Promote it first: `headwater link promote`.")


def check_own_partitions(state: ClusterState, topic: Topic) -> None:
    """Raise unless an operator may add partitions to a topic. Those of a topic that a link copies follow the source."""
    linked = state.links.topics.get(topic.id)
    if linked is not None and linked.mirrored:
        raise Mirrored(
            f"Topic {topic.name!r} is copied by link {linked.link!r}, and its partitions are those of the source. "
            "Promote it first: `headwater link promote`."
        )


class Linking:
    """Changes links and linked topics on behalf of one process."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domains: Mapping[Domain, Replica[StreamsState]],
        topics: Topics,
        chance: Chance,
    ) -> None:
        self._cluster = cluster
        self._domains = domains
        self._topics = topics
        self._chance = chance

    async def put(self, spec: LinkSpec, version: int) -> Link:
        """Create a link (version 0), or change the one of this version."""
        _took(await self._in_cluster(PutLink(spec, version)))
        return self.get(spec.name)

    async def drop(self, name: str) -> None:
        """Delete a link. Its promoted topics stay; it must not have others."""
        _took(await self._in_cluster(DropLink(name)))

    def get(self, name: str) -> Link:
        """A link by its name."""
        found = self._cluster.state.links.links.get(name)
        if found is None:
            raise NotFound(f"there is no link {name!r}")
        return found

    async def create_topic(
        self, link: str, name: str, source: str, source_id: uuid.UUID, partitions: int, configs: dict[str, str]
    ) -> Topic:
        """Create a topic that a link copies. No producer can write to it at any time before it is promoted."""
        check_name(name)
        domain = min(self._domains)
        topic_id = self._chance.uuid()
        commands: list[Command] = [
            CreateTopic(topic_id, name, partitions, configs, domain),
            SetLinkTopic(topic_id, link, source, source_id, LinkPhase.COPYING, "", 0),
        ]
        created, linked = await self._cluster.submit(commands)
        took(created)
        topic = self._cluster.state.topics[topic_id]
        if not isinstance(linked, Done):
            await self._cluster.submit([DeleteTopic(topic_id)])
            _took(linked)
        await self._topics.carry_through(topic)
        return topic

    async def link_topic(self, topic: Topic, link: str, source: str, source_id: uuid.UUID) -> LinkedTopic:
        """Let a link copy a topic that exists: one that is empty, or has only what a link copied before."""
        known = self._cluster.state.links.topics.get(topic.id)
        seen = known.generation if known is not None else 0
        return await self._set(SetLinkTopic(topic.id, link, source, source_id, LinkPhase.COPYING, "", seen))

    async def change(self, linked: LinkedTopic, phase: LinkPhase, reason: str = "") -> LinkedTopic:
        """Change what a link does with a topic, if nobody else did so meanwhile. Copiers of before are cut off.

        A topic that was promoted is copied again only if nothing was written to it since; else `Conflict`.
        """
        command = SetLinkTopic(
            linked.topic, linked.link, linked.source, linked.source_id, phase, reason, linked.generation
        )
        return await self._set(command)

    async def note_ends(self, ends: Mapping[LinkedTopic, Sequence[tuple[int, int]]]) -> None:
        """Note where partitions of topics end in the source. What a topic's change has overtaken is void."""
        commands: list[Command] = []
        size = 0
        for linked, found in ends.items():
            for i in range(0, len(found), MAX_ENDS):
                part = list(found[i : i + MAX_ENDS])
                if size + len(part) > MAX_ENDS:
                    await self._cluster.submit(commands)
                    commands, size = [], 0
                commands.append(NoteSourceEnds(linked.topic, linked.generation, part))
                size += len(part)
        if commands:
            await self._cluster.submit(commands)

    async def _set(self, command: SetLinkTopic) -> LinkedTopic:
        if command.topic not in self._cluster.state.topics:
            raise NotFound("the topic does not exist")
        _took(await self._in_cluster(command))
        linked = self._cluster.state.links.topics.get(command.topic)
        if linked is None:
            raise NotFound("the topic was deleted")
        await self.carry_through(linked)
        return linked

    def behind(self, replica: Replica[StreamsState]) -> Iterator[LinkedTopic]:
        """Linked topics with streams in a domain that have an earlier generation than the topic."""
        cluster, streams = self._cluster.state, replica.state.streams
        for linked in list(cluster.links.topics.values()):
            topic = cluster.topics.get(linked.topic)
            if topic is None or topic.domain != replica.domain:
                continue
            found = (streams.get(name) for name in topic.streams[: topic.ready])
            if any(stream is not None and stream.mirror.generation < linked.generation for stream in found):
                yield linked

    async def carry_through(self, linked: LinkedTopic) -> None:
        """Let a topic's streams take its generation over. Streams that cannot be mirrors end the link of the topic."""
        topic = self._cluster.state.topics.get(linked.topic)
        if topic is None or topic.deleting:
            return
        for part in parts_of(topic.streams[: topic.ready]):
            command = SetMirror(part, linked.generation, linked.mirrored)
            [result] = await self._domains[Domain(topic.domain)].submit([command])
            if isinstance(result, Done) or _is(result, Reason.STALE) or _is(result, Reason.UNKNOWN):
                continue  # another process was faster, or the topic is being deleted
            if _is(result, Reason.INVALID):
                await self._refuse(linked, result)
            _took(result)

    async def _refuse(self, linked: LinkedTopic, result: Refused) -> None:
        """The topic has records of its own. It stays an ordinary one, and says why."""
        text = f"topic {self._cluster.state.topics[linked.topic].name!r} cannot be linked: {result.detail}"
        await self.change(linked, LinkPhase.PROMOTED, text)
        raise Conflict(text)

    async def _in_cluster(self, command: Command) -> Result:
        [result] = await self._cluster.submit([command])
        return result


def _is(result: Result, reason: Reason) -> TypeGuard[Refused]:
    return isinstance(result, Refused) and result.reason is reason


def _took(result: Result) -> None:
    if isinstance(result, Done):
        return
    if not isinstance(result, Refused) or result.reason is Reason.FENCED:
        raise NotReady(f"not carried out: {result}")
    kinds: dict[Reason, type[BadInput]] = {
        Reason.EXISTS: Exists,
        Reason.UNKNOWN: NotFound,
        Reason.STALE: Conflict,
    }
    raise kinds.get(result.reason, BadInput)(result.detail)
