"""Links as the state has them: for the command line and the HTTP API alike."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from headwater.errors import NotFound
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.links import UNSEEN, Link, LinkedTopic, SourceEnds
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.links import LinkPhase, LinkSpec
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

NO_ID = uuid.UUID(int=0)


class LinkLine(msgspec.Struct, frozen=True, kw_only=True):
    """A link to another Kafka."""

    name: str
    """The name of the link."""
    source: list[str]
    """Addresses of the source's brokers."""
    state: str
    """`copying` or `paused`."""
    linked: int
    """How many topics the link copies, or has copied until they were promoted."""
    stopped: int
    """How many of them cannot go on. Each has a reason."""


class LinkedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a link."""

    topic: str
    """The name of the topic here."""
    source: str
    """The name of the topic in the source."""
    source_id: str | None
    """The id of the topic in the source; null if the source has no ids."""
    state: str
    """`copying`, `paused`, `stopped`, `finishing` (it is copied up to the source's end, then promoted), `promoting`
    (the offsets of groups are copied, then it is promoted) or `promoted`."""
    reason: str
    """Why it is paused or stopped; else empty."""
    since_ms: int
    """When this state began, in milliseconds since 1970."""
    generation: int
    """Rises with every change of the state."""
    starts: list[int]
    """By partition, the first offset of the log here."""
    ends: list[int]
    """By partition, the offset up to which the source is copied: the next record gets it."""
    source_ends: list[int | None]
    """By partition, where readers of committed records stop in the source; null if it is not known. While the topic is
    `finishing`, the end of the log that it waits for. Empty if it is promoted."""
    source_ends_ms: int | None
    """When a link process noted them, in milliseconds since 1970; null if there are none."""
    lag: int | None
    """Offsets that the source had then and that are not copied yet, of all partitions; null if it is not known."""


class LinkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A link with its topics."""

    name: str
    """The name of the link."""
    source: list[str]
    """Addresses of the source's brokers."""
    state: str
    """`copying` or `paused`."""
    created_ms: int
    """When the link was created, in milliseconds since 1970."""
    topics: list[str]
    """Names of topics to copy."""
    patterns: list[str]
    """Regular expressions; topics whose whole name matches one are copied."""
    groups: list[str]
    """Regular expressions; the committed offsets of these groups are copied."""
    security: dict[str, str]
    """How to connect to the source. Secrets are named by their file or variable."""
    options: dict[str, str]
    """Options of the link."""
    linked: list[LinkedLine]
    """The topics that were found in the source."""


def line_of(state: ClusterState, link: Link) -> LinkLine:
    """A link in short."""
    topics = state.links.of(link.name)
    return LinkLine(
        name=link.name,
        source=list(link.spec.bootstrap),
        state=_state(link.spec),
        linked=len(topics),
        stopped=sum(found.phase is LinkPhase.STOPPED for found in topics),
    )


def lines_of(state: ClusterState) -> list[LinkLine]:
    """All links, by name."""
    return [line_of(state, link) for _, link in sorted(state.links.links.items())]


def facts_of(state: ClusterState, domains: Mapping[Domain, Replica[StreamsState]], name: str) -> LinkFacts:
    """A link with its topics. Raises `NotFound` if there is none of this name."""
    link = state.links.links.get(name)
    if link is None:
        raise NotFound(f"there is no link {name!r}")
    linked = [(state.topics[found.topic], found) for found in state.links.of(name) if found.topic in state.topics]
    linked.sort(key=lambda pair: pair[0].name)
    ends = state.links.ends
    lines = [
        _linked(topic, found, domains[Domain(topic.domain)].state, ends.get(topic.id) if found.mirrored else None)
        for topic, found in linked
    ]
    return facts_of_spec(link.spec, link.created_ms, lines)


def facts_of_spec(spec: LinkSpec, created_ms: int, linked: list[LinkedLine]) -> LinkFacts:
    """A link with given topics."""
    return LinkFacts(
        name=spec.name,
        source=list(spec.bootstrap),
        state=_state(spec),
        created_ms=created_ms,
        topics=list(spec.topics),
        patterns=list(spec.patterns),
        groups=list(spec.groups),
        security=dict(spec.security),
        options=dict(spec.options),
        linked=linked,
    )


def _linked(topic: Topic, found: LinkedTopic, state: StreamsState, seen: SourceEnds | None) -> LinkedLine:
    streams = [state.streams[stream] for stream in topic.streams[: topic.ready] if stream in state.streams]
    ends = [stream.next_offset for stream in streams]
    there = [] if seen is None else [None if end == UNSEEN else end for end in seen.ends[: len(ends)]]
    known = len(there) == len(ends) and None not in there
    return LinkedLine(
        topic=topic.name,
        source=found.source,
        source_id=None if found.source_id == NO_ID else str(found.source_id),
        state=found.phase.name.lower(),
        reason=found.reason,
        since_ms=found.since_ms,
        generation=found.generation,
        starts=[stream.log_start for stream in streams],
        ends=ends,
        source_ends=there,
        source_ends_ms=None if seen is None else seen.at_ms,
        lag=sum(max(0, (at or 0) - here) for at, here in zip(there, ends, strict=True)) if known else None,
    )


def _state(spec: LinkSpec) -> str:
    return "paused" if spec.paused else "copying"
