"""How far the source is, for all to see, and the steps of a promotion that follow from it.

A process notes the ends of the partitions that it copies. A topic that is finishing has a new generation, and so new
copiers: what their first fetches say is an end that the source had after the operator asked. These ends are noted at
once, and stay. When the log here has reached all of them, the process that leads the link ends the copy of the topic.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.errors import BadInput, Conflict
from headwater.link.copying.partition import NOWHERE, Copier
from headwater.replica.domains import Domains
from headwater.replica.links import Linking
from headwater.state.cluster.links import UNSEEN, LinkedTopic, SourceEnds
from headwater.state.commands.links import LinkPhase
from headwater.types import Domain, StreamId

log = logging.getLogger("headwater.link")


@dataclass(frozen=True, slots=True)
class Copied:
    """A partition that this process copies."""

    topic: uuid.UUID
    generation: int
    copier: Copier


class Promotions:
    """Notes the ends of one link's source, and takes its topics through the steps of a promotion."""

    def __init__(self, link: str, domains: Domains, linking: Linking) -> None:
        self._link = link
        self._domains = domains
        self._linking = linking

    def __repr__(self) -> str:
        return f"<Promotions of {self._link!r}>"

    def of(self, phase: LinkPhase) -> list[LinkedTopic]:
        """The topics of the link in a phase."""
        return [found for found in self._domains.cluster.state.links.of(self._link) if found.phase is phase]

    async def note(self, copied: Iterable[Copied], *, due: bool) -> None:
        """Note ends that have changed: all of them if it is `due`, else those that a promotion waits for."""
        state = self._domains.cluster.state
        by_topic: dict[uuid.UUID, list[Copied]] = {}
        for one in copied:
            by_topic.setdefault(one.topic, []).append(one)
        found: dict[LinkedTopic, list[tuple[int, int]]] = {}
        for topic, members in by_topic.items():
            linked = state.links.topics.get(topic)
            if linked is None or not (due or linked.phase is LinkPhase.FINISHING):
                continue
            ends = _news(linked, members, state.links.ends.get(topic))
            if ends:
                found[linked] = ends
        await self._linking.note_ends(found)

    async def advance(self) -> None:
        """End the copies of topics that have reached the ends that the source had."""
        for linked in self.of(LinkPhase.FINISHING):
            if self._is_reached(linked):
                await self._change(linked, LinkPhase.PROMOTING)

    async def settle_ends(self, topics: Iterable[LinkedTopic]) -> None:
        """Make sure that nothing is appended to topics that are being promoted, and know where they end."""
        for linked in topics:
            await self._linking.carry_through(linked)
        for replica in self._domains.values():
            await replica.barrier()

    async def complete(self, topics: Iterable[LinkedTopic]) -> None:
        """The offsets of groups are copied: the topics are ordinary ones now."""
        for linked in topics:
            await self._change(linked, LinkPhase.PROMOTED)

    def _is_reached(self, linked: LinkedTopic) -> bool:
        state = self._domains.cluster.state
        topic, seen = state.topics.get(linked.topic), state.links.ends.get(linked.topic)
        if topic is None or seen is None or seen.generation != linked.generation or topic.pending:
            return False
        if len(seen.ends) != len(topic.streams) or UNSEEN in seen.ends:
            return False
        streams = self._domains[Domain(topic.domain)].state.streams
        found = [streams.get(StreamId(name)) for name in topic.streams]
        return all(
            stream is not None and stream.next_offset >= end for stream, end in zip(found, seen.ends, strict=True)
        )

    async def _change(self, linked: LinkedTopic, phase: LinkPhase) -> None:
        try:
            await self._linking.change(linked, phase)
            log.info("a promotion goes on", extra={"topic": linked.source, "phase": phase.name.lower()})
        except (BadInput, Conflict) as error:
            log.info("a topic was changed meanwhile", extra={"topic": linked.source, "reason": str(error)})


def _news(linked: LinkedTopic, members: Iterable[Copied], seen: SourceEnds | None) -> list[tuple[int, int]]:
    """The ends of a topic's partitions that are not noted yet. Of a topic that is finishing the first ones stay."""
    known = seen.ends if seen is not None and seen.generation == linked.generation else []
    finishing = linked.phase is LinkPhase.FINISHING
    found = []
    for one in members:
        partition, end = one.copier.partition, one.copier.log_end if finishing else one.copier.source_end
        before = known[partition] if partition < len(known) else UNSEEN
        if end == NOWHERE or one.generation != linked.generation or before == end or (finishing and before != UNSEEN):
            continue
        found.append((partition, end))
    return found
