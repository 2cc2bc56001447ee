"""Committed offsets of groups, copied from a source to the groups of the same names here.

An offset here only moves forward, and never beyond what was copied. A group that has members here is left alone: it has
moved already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from headwater.replica.domains import Domains
from headwater.state.cluster.links import LinkedTopic
from headwater.state.commands.groups import CommitAlone
from headwater.state.results import Done, Reason, Refused
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, StreamId

log = logging.getLogger("headwater.link")
MAX_OFFSETS = 5_000
"""Offsets of one command."""
NO_EPOCH = -1

Place = tuple[str, int]
"""The source's name of a topic, and a partition."""
Commit = tuple[bytes, int, int, int, str]
"""An offset as `CommitAlone` has it."""


class GroupOffsets:
    """Copies committed offsets of the topics of one link."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._home = domains[min(domains)]
        self.copied = 0
        """Offsets that were copied."""

    async def copy(self, topics: Mapping[str, LinkedTopic], group: str, offsets: Mapping[Place, int]) -> int:
        """Copy what a group has committed in the source. Returns how many offsets moved."""
        stored = self._home.state.groups.get(group)
        if stored is not None and stored.members:
            return 0
        moved = 0
        due = list(self._due(topics, group, offsets))
        for i in range(0, len(due), MAX_OFFSETS):
            part = due[i : i + MAX_OFFSETS]
            [result] = await self._home.submit([CommitAlone(group, part)])
            if isinstance(result, Done):
                moved += len(part)
            elif isinstance(result, Refused) and result.reason is not Reason.LEASED:
                log.warning("offsets of a group were not copied", extra={"group": group, "reason": result.detail})
        self.copied += moved
        return moved

    def _due(self, topics: Mapping[str, LinkedTopic], group: str, offsets: Mapping[Place, int]) -> Iterator[Commit]:
        """The offsets that are ahead of those here."""
        stored = self._home.state.groups.get(group)
        for (name, partition), offset in sorted(offsets.items()):
            linked = topics.get(name)
            end = self._end(linked, partition) if linked is not None else None
            if linked is None or end is None:
                continue
            bounded = min(offset, end)
            known = stored.offsets.get(linked.topic, {}).get(partition) if stored is not None else None
            if known is None or known.offset < bounded:
                yield linked.topic.bytes, partition, bounded, NO_EPOCH, ""

    def _end(self, linked: LinkedTopic, partition: int) -> int | None:
        """Where what was copied of a partition ends; None if there is no such partition here."""
        topic = self._domains.cluster.state.topics.get(linked.topic)
        if topic is None or not 0 <= partition < topic.ready:
            return None
        state: StreamsState = self._domains[Domain(topic.domain)].state
        stream = state.streams.get(StreamId(topic.streams[partition]))
        return stream.next_offset if stream is not None else None
