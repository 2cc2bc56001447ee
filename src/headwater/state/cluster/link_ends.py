"""The part of the state for the ends of links' sources: how far each copy is behind."""

from __future__ import annotations

import msgspec

from headwater.state.cluster.domain import ClusterDomain
from headwater.state.cluster.links import SourceEnds
from headwater.state.commands.links import NoteSourceEnds
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result


def _note(state: ClusterDomain, epoch: int, command: NoteSourceEnds) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    result = state.links.note_ends(command, len(topic.streams), state.date_ms)
    if isinstance(result, Done):
        state.roll("link ends", topic.name, command.generation, *command.ends)
    return result


class LinkEndsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The ends of all linked topics inside a checkpoint."""

    ends: list[SourceEnds]


def _unpack(state: ClusterDomain, image: LinkEndsImage) -> None:
    state.links.ends = {found.topic: found for found in image.ends}


PART: Part[ClusterDomain, LinkEndsImage] = Part(
    name="link ends",
    commands={NoteSourceEnds: _note},
    format=1,
    image=LinkEndsImage,
    pack=lambda state: LinkEndsImage(list(state.links.ends.values())),
    unpack=_unpack,
    empty=lambda: LinkEndsImage([]),
)
