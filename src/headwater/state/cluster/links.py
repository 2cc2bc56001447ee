"""Links and the topics that they copy. They are state of domain 0."""

from __future__ import annotations

import re
import uuid

import msgspec

from headwater.state.commands.links import LinkPhase, LinkSpec, NoteSourceEnds, PutLink, SetLinkTopic
from headwater.state.results import Done, Reason, Refused, Result

MAX_LINKS = 100
MAX_LINKED = 100_000
"""The limit of linked topics of all links."""
MAX_LISTED = 10_000
"""The limit of names, of patterns and of groups of a link."""
MAX_BOOTSTRAP = 100
MAX_OPTIONS = 100
MAX_TEXT = 1_024
"""The limit of characters of a name, a pattern, an address, an option or a reason."""
SECRETS = ("sasl.password", "sasl.oauthbearer.token", "ssl.key.password", "sasl.jaas.config")
"""What is never in the ledger. Its file or variable is named instead."""
UNSEEN = -1
"""The end of a partition that nobody has seen."""
I64_MAX = (1 << 63) - 1
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")


class Link(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A link to another Kafka."""

    spec: LinkSpec
    version: int
    """Rises with every change. Versions of deleted links are not used again."""
    created_ms: int

    @property
    def name(self) -> str:
        return self.spec.name


class LinkedTopic(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic here that a link copies, or has copied until it was promoted."""

    topic: uuid.UUID
    link: str
    source: str
    """The topic's name in the source."""
    source_id: uuid.UUID
    """The topic's id in the source. Zero if the source has no ids."""
    phase: LinkPhase
    reason: str
    generation: int
    """Rises with every change. The topic's streams have it too, as soon as they have taken it over."""
    since_ms: int
    """When the phase began."""

    @property
    def copied(self) -> bool:
        """Whether records are copied now."""
        return self.phase in (LinkPhase.COPYING, LinkPhase.FINISHING)

    @property
    def mirrored(self) -> bool:
        """Whether the topic's streams are meant to be mirrors, which refuse ordinary producers."""
        return self.phase is not LinkPhase.PROMOTED


class SourceEnds(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the partitions of a linked topic end in the source, as link processes have seen it."""

    topic: uuid.UUID
    generation: int
    """The generation of the topic when they were seen."""
    ends: list[int]
    """By partition; `UNSEEN` where none was seen."""
    at_ms: int
    """When the last of them was noted."""


class Links:
    """All links by name, and linked topics by their id."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.topics: dict[uuid.UUID, LinkedTopic] = {}
        self.ends: dict[uuid.UUID, SourceEnds] = {}
        """By topic."""
        self.last_number = 0
        """The newest version or generation. Both are taken from this one sequence, so none is used twice."""

    def __repr__(self) -> str:
        return f"<Links: {len(self.links)}, with {len(self.topics)} topics>"

    def of(self, link: str) -> list[LinkedTopic]:
        """The topics of a link."""
        return [found for found in self.topics.values() if found.link == link]

    def put(self, command: PutLink, now_ms: int) -> Result:
        """See `PutLink`."""
        flaw = flaw_of(command.link)
        if flaw:
            return Refused(Reason.INVALID, flaw)
        name = command.link.name
        known = self.links.get(name)
        if known is None and command.version:
            return Refused(Reason.UNKNOWN, f"there is no link {name!r}")
        if known is not None and not command.version:
            return Refused(Reason.EXISTS, f"link {name!r} exists already")
        if known is not None and known.version != command.version:
            return Refused(Reason.STALE, f"link {name!r} was changed meanwhile")
        if known is None and len(self.links) >= MAX_LINKS:
            return Refused(Reason.FULL, f"there are {MAX_LINKS} links already")
        created = known.created_ms if known is not None else now_ms
        self.links[name] = Link(command.link, self._next_number(), created)
        return Done(self.last_number)

    def drop(self, name: str) -> Result:
        """See `DropLink`."""
        if name not in self.links:
            return Refused(Reason.UNKNOWN, f"there is no link {name!r}")
        topics = self.of(name)
        standing = sum(found.mirrored for found in topics)
        if standing:
            return Refused(Reason.INVALID, f"link {name!r} has {standing} topics: promote or delete them first")
        del self.links[name]
        for found in topics:
            self.forget_topic(found.topic)
        return Done()

    def set_topic(self, command: SetLinkTopic, now_ms: int) -> Result:
        """See `SetLinkTopic`. The caller has checked that the topic exists."""
        known = self.topics.get(command.topic)
        if command.link not in self.links:
            return Refused(Reason.UNKNOWN, f"there is no link {command.link!r}")
        if not 0 < len(command.source) <= MAX_TEXT or len(command.reason) > MAX_TEXT:
            return Refused(
                Reason.INVALID, f"the name of a source's topic or a reason has {MAX_TEXT} characters at most"
            )
        if (known.generation if known is not None else 0) != command.seen:
            detail = f"is at generation {known.generation}" if known is not None else "is not linked"
            return Refused(Reason.STALE, f"the topic {detail}")
        if known is not None and known.mirrored and known.link != command.link:
            return Refused(Reason.EXISTS, f"link {known.link!r} copies the topic")
        if known is None and len(self.topics) >= MAX_LINKED:
            return Refused(Reason.FULL, f"there are {MAX_LINKED} linked topics already")
        self.topics[command.topic] = LinkedTopic(
            topic=command.topic,
            link=command.link,
            source=command.source,
            source_id=command.source_id,
            phase=command.phase,
            reason=command.reason,
            generation=self._next_number(),
            since_ms=known.since_ms if known is not None and known.phase is command.phase else now_ms,
        )
        return Done(self.last_number)

    def forget_topic(self, topic: uuid.UUID) -> None:
        """A topic is being deleted."""
        self.topics.pop(topic, None)
        self.ends.pop(topic, None)

    def note_ends(self, command: NoteSourceEnds, partitions: int, now_ms: int) -> Result:
        """See `NoteSourceEnds`. `partitions` is the number of partitions that the topic has here."""
        linked = self.topics.get(command.topic)
        if linked is None:
            return Refused(Reason.UNKNOWN, "the topic is not linked")
        if linked.generation != command.generation:
            return Refused(Reason.STALE, f"the topic is at generation {linked.generation}")
        if any(not 0 <= partition < partitions or not 0 <= end <= I64_MAX for partition, end in command.ends):
            return Refused(Reason.INVALID, "an end is of no partition, or no offset")
        known = self.ends.get(command.topic)
        ends = list(known.ends) if known is not None and known.generation == command.generation else []
        ends += [UNSEEN] * (partitions - len(ends))
        for partition, end in command.ends:
            ends[partition] = end
        self.ends[command.topic] = SourceEnds(command.topic, command.generation, ends, now_ms)
        return Done()

    def _next_number(self) -> int:
        self.last_number += 1
        return self.last_number


def flaw_of(link: LinkSpec) -> str:
    """Why a link is invalid; empty if it is valid. Values are not repeated: they may be secrets by mistake."""
    if not _NAME.fullmatch(link.name):
        return (
            "a link's name has 1 to 100 letters, digits, dots, dashes and underscores, and begins with one of the first"
        )
    if not 0 < len(link.bootstrap) <= MAX_BOOTSTRAP:
        return f"a link has 1 to {MAX_BOOTSTRAP} addresses of its source"
    if any(len(listed) > MAX_LISTED for listed in (link.topics, link.patterns, link.groups)):
        return f"a link has {MAX_LISTED} names, patterns and groups at most, each"
    if len(link.options) > MAX_OPTIONS or len(link.security) > MAX_OPTIONS:
        return f"a link has {MAX_OPTIONS} options at most"
    texts = [*link.bootstrap, *link.topics, *link.patterns, *link.groups, *link.options, *link.security]
    if not all(0 < len(text) <= MAX_TEXT for text in texts):
        return f"an address, a name, a pattern or an option of a link has 1 to {MAX_TEXT} characters"
    if any(len(value) > MAX_TEXT for value in (*link.options.values(), *link.security.values())):
        return f"an option of a link has {MAX_TEXT} characters at most"
    for name in SECRETS:
        if name in link.security or name in link.options:
            return f"{name} is a secret, which is not stored: give the name of its file or variable"
    return ""
