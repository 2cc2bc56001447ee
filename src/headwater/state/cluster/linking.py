"""The part of the state for links."""

from __future__ import annotations

import msgspec

from headwater.state.cluster.domain import ClusterDomain
from headwater.state.cluster.links import Link, LinkedTopic
from headwater.state.commands.links import DropLink, PutLink, SetLinkTopic
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result


def _put(state: ClusterDomain, epoch: int, command: PutLink) -> Result:
    return _changed(state, state.links.put(command, state.date_ms), "link", command.link.name)


def _drop(state: ClusterDomain, epoch: int, command: DropLink) -> Result:
    return _changed(state, state.links.drop(command.name), "link-", command.name)


def _set_topic(state: ClusterDomain, epoch: int, command: SetLinkTopic) -> Result:
    topic = state.topics.get(command.topic)
    if topic is None or topic.deleting:
        return Refused(Reason.UNKNOWN, "the topic does not exist")
    result = state.links.set_topic(command, state.date_ms)
    return _changed(state, result, "link topic", topic.name, int(command.phase))


def _changed(state: ClusterDomain, result: Result, *facts: object) -> Result:
    if isinstance(result, Done):
        state.roll(*facts, result.value)
        state.changed()
    return result


class LinksImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The links of a cluster inside a checkpoint."""

    links: list[Link]
    topics: list[LinkedTopic]
    last_number: int


def _unpack(state: ClusterDomain, image: LinksImage) -> None:
    state.links.links = {link.name: link for link in image.links}
    state.links.topics = {found.topic: found for found in image.topics}
    state.links.last_number = image.last_number


PART: Part[ClusterDomain, LinksImage] = Part(
    name="links",
    commands={PutLink: _put, DropLink: _drop, SetLinkTopic: _set_topic},
    format=1,
    image=LinksImage,
    pack=lambda state: LinksImage(
        list(state.links.links.values()), list(state.links.topics.values()), state.links.last_number
    ),
    unpack=_unpack,
    empty=lambda: LinksImage([], [], 0),
)
