"""Topics of a source become topics here: created, grown, and doubted if the source seems to have another history."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.configs.changes import DELETE, SET, Change, Edit, change_of, rules_of_topics
from headwater.errors import BadInput, ConfigError, Conflict, HeadwaterError
from headwater.replica.links import Linking
from headwater.replica.replica import Replica
from headwater.replica.topics import Topics
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.links import LinkedTopic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.links import LinkPhase

log = logging.getLogger("headwater.link")
NO_ID = uuid.UUID(int=0)
FOLLOWED = ("cleanup.policy", "compression.type", "max.message.bytes", "retention.bytes", "retention.ms")
"""Configs that a topic here can have from the source. Others are about files, replicas or producers of the source."""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic of the source."""

    name: str
    id: uuid.UUID
    """Zero if the source has no ids."""
    partitions: int
    configs: Mapping[str, str] | None = None
    """Configs that the source's topic has of its own; None if they are not followed, or not known."""
    flaw: str = ""
    """Why they are not known; empty if they are, or need not be."""


@dataclass(frozen=True, slots=True)
class Present:
    """What a source has of the topics of a link."""

    topics: Sequence[Found]
    missing: Mapping[str, str]
    """Topics that the link names and that are not there, with the reasons."""


class LinkedTopics:
    """Keeps the topics of one link in step with those of its source."""

    def __init__(self, link: str, cluster: Replica[ClusterState], linking: Linking, topics: Topics) -> None:
        self._link = link
        self._cluster = cluster
        self._linking = linking
        self._topics = topics
        self.refused: dict[str, str] = {}
        """Topics of the source that cannot be linked, and why."""
        self.unlike: dict[str, str] = {}
        """Topics that do not have the configs of the source, and why."""
        self.doubted: set[str] = set()
        """The source's names of topics that seemed to be others at the last look."""

    def __repr__(self) -> str:
        return f"<LinkedTopics of {self._link!r}, {len(self.refused)} refused>"

    def names(self) -> list[str]:
        """The source's names of all topics that are copied."""
        of = self._cluster.state.links.of(self._link)
        return [linked.source for linked in of if linked.copied]

    async def follow(self, present: Present) -> None:
        """Take over what the source has now.

        A topic that is gone, or seems to be another one, is left to its partitions: what one broker says may be old,
        and a fetch says it for certain.
        """
        known = {linked.source: linked for linked in self._cluster.state.links.of(self._link)}
        self.refused = {name: why for name, why in present.missing.items() if name not in known}
        self.unlike = {one.name: one.flaw for one in present.topics if one.flaw}
        self.doubted = set()
        for one in present.topics:
            linked = known.get(one.name)
            try:
                if linked is None:
                    await self._begin(one)
                elif linked.copied:
                    await self._compare(linked, one)
            except (BadInput, Conflict) as error:
                self._refuse(one.name, error)

    async def stop(self, linked: LinkedTopic, reason: str) -> None:
        """Stop copying a topic. A change that another process made meanwhile stands."""
        log.error("a link stops on a topic", extra={"link": self._link, "topic": linked.source, "reason": reason})
        try:
            await self._linking.change(linked, LinkPhase.STOPPED, reason[:1000])
        except (BadInput, Conflict) as error:
            log.info("a topic was changed meanwhile", extra={"topic": linked.source, "reason": str(error)})

    async def _begin(self, found: Found) -> None:
        topic = self._cluster.state.names.get(found.name)
        if topic is None:
            await self._linking.create_topic(
                self._link, found.name, found.name, found.id, found.partitions, self._change(found, {}).put
            )
        else:
            await self._take_over(topic, found)
        log.info("a topic is linked", extra={"link": self._link, "topic": found.name, "partitions": found.partitions})

    async def _take_over(self, topic: Topic, found: Found) -> None:
        """Link a topic that was created here before. It must be empty."""
        other = self._cluster.state.links.topics.get(topic.id)
        if other is not None:
            raise Conflict(f"topic {topic.name!r} belongs to link {other.link!r}")
        if len(topic.streams) > found.partitions:
            raise Conflict(f"topic {topic.name!r} has {len(topic.streams)} partitions here, {found.partitions} there")
        await self._linking.link_topic(topic, self._link, found.name, found.id)
        if len(topic.streams) < found.partitions:
            await self._topics.add_partitions(topic, found.partitions)

    async def _compare(self, linked: LinkedTopic, found: Found) -> None:
        topic = self._cluster.state.topics.get(linked.topic)
        if topic is None or topic.deleting:
            return
        other = NO_ID not in (linked.source_id, found.id) and linked.source_id != found.id
        if other or found.partitions < len(topic.streams):
            self.doubted.add(found.name)
        elif topic.pending:
            await self._topics.carry_through(topic)
        elif found.partitions > len(topic.streams):
            await self._topics.add_partitions(topic, found.partitions)
            log.info("a topic has grown", extra={"topic": found.name, "partitions": found.partitions})
        else:
            await self._configure(topic, found)

    async def _configure(self, topic: Topic, found: Found) -> None:
        """Give a topic the configs that it has in the source."""
        change = self._change(found, topic.configs)
        if change.put or change.remove:
            await self._topics.alter(topic, change.put, change.remove)
            extra = {"topic": topic.name, "set": sorted(change.put), "removed": sorted(change.remove)}
            log.info("configs of a topic have changed", extra=extra)

    def _change(self, found: Found, now: Mapping[str, str]) -> Change:
        """What a topic's configs lack to be those of the source. Nothing, if they cannot be taken over."""
        if found.configs is None:
            return Change()
        edits = []
        for name in FOLLOWED:
            wanted, present = found.configs.get(name), now.get(name)
            if wanted != present:
                edits.append(Edit(name, DELETE, "") if wanted is None else Edit(name, SET, wanted))
        try:
            return change_of(rules_of_topics(self._cluster.state.resources.common), now, edits)
        except ConfigError as error:
            self.unlike[found.name] = str(error)
            return Change()

    def _refuse(self, name: str, error: HeadwaterError) -> None:
        log.error("a topic cannot be linked", extra={"link": self._link, "topic": name, "reason": str(error)})
        self.refused[name] = str(error)
