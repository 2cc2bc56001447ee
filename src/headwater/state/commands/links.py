"""Commands about links: topics of another Kafka that are copied here.

Domain 0 has the links and their topics: what is meant. The domains of streams have mirrors: what holds. A generation
connects the two. Domain 0 gives a new one to every change of a linked topic, and the streams take it over. A process
that still copies under an earlier generation is refused by `apply`.
"""

from __future__ import annotations

import enum
import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command, Fields


class LinkPhase(enum.IntEnum):
    """What a link does with a topic."""

    COPYING = 0
    PAUSED = 1
    """It is paused by an operator. It refuses producers, and nothing is copied."""
    STOPPED = 2
    """It cannot go on: the source was truncated, recreated or deleted. It refuses producers."""
    PROMOTED = 3
    """It is an ordinary topic now. Producers write on at the offsets of the source."""
    FINISHING = 4
    """It is copied up to the end that the source has now; then it is promoted."""
    PROMOTING = 5
    """Nothing is copied any more. The offsets of groups are copied once more; then it is promoted."""


class LinkSpec(Fields, frozen=True):
    """What a link copies, and from where. It has no secrets, only the names of files and variables that have them."""

    name: str
    bootstrap: tuple[str, ...]
    """Addresses of the source, as host:port."""
    security: dict[str, str]
    """How to connect. Names are those of clients; a secret is named by its file or by a variable."""
    topics: tuple[str, ...]
    """Names of topics."""
    patterns: tuple[str, ...]
    """Regular expressions; each covers a whole name of a topic."""
    groups: tuple[str, ...]
    """Regular expressions; the committed offsets of these groups are copied."""
    options: dict[str, str]
    paused: bool
    """Nothing of the link is copied."""


class PutLink(Command, frozen=True, tag="link+"):
    """Create a link, or change the one that the caller has seen. Returns its new version."""

    link: LinkSpec
    version: int
    """The version that the caller has seen. 0: there is no link of this name."""


class DropLink(Command, frozen=True, tag="link-"):
    """Delete a link and what is known of its promoted topics. Refused while it has other topics."""

    name: str


class SetLinkTopic(Command, frozen=True, tag="link topic"):
    """Link a topic, or change what a link does with it. Returns the topic's new generation."""

    topic: uuid.UUID
    link: str
    source: str
    """The topic's name in the source."""
    source_id: uuid.UUID
    """The topic's id in the source. Zero if the source has no ids."""
    phase: LinkPhase
    reason: str
    """Why the topic is stopped or paused, for people."""
    seen: int
    """The generation that the caller has seen. 0: the topic is not linked."""


class SetMirror(Command, frozen=True, tag="mirror="):
    """Streams become mirrors under a generation, or end to be mirrors. Repeating it changes nothing.

    Refused if a stream has a later generation. A stream becomes a mirror only if all its records were copied: it is
    empty, or nothing was written since it was a mirror before.
    """

    streams: tuple[int, ...]
    generation: int
    mirrored: bool


class SkipStreams(Command, frozen=True, tag="mirror>"):
    """Leave gaps at the ends of mirrors: (stream, generation, start, end). Each is judged by itself.

    A gap is left if the stream is a mirror under this generation and its next offset is the start.
    """

    skips: list[tuple[int, int, int, int]]


class NoteSourceEnds(Command, frozen=True, tag="link ends"):
    """Note where partitions of a linked topic end in the source: (partition, end).

    Refused unless the topic has this generation. Ends of an earlier generation are forgotten.
    """

    topic: uuid.UUID
    generation: int
    ends: list[tuple[int, int]]


LinksCommand: TypeAlias = PutLink | DropLink | SetLinkTopic | SetMirror | SkipStreams | NoteSourceEnds
