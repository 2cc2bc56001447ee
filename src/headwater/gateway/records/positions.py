"""Where a reader of a topic is: the next offset of each partition, as an opaque word that any gateway understands."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

import msgspec

from headwater.gateway.problems import BAD_REQUEST, CONFLICT, Refusal
from headwater.state.cluster.domain import Topic

MAX_CURSOR = 32_768
"""The limit of the characters of a position. That of a topic with a thousand partitions has a few thousand."""
LAST = (1 << 63) - 1


class _Image(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    topic: bytes
    first: int
    """The first partition of `offsets`."""
    offsets: list[int]


def encoded(topic: Topic, positions: Mapping[int, int]) -> str:
    """A position as a word. `positions` has partitions that follow each other."""
    partitions = sorted(positions)
    image = _Image(topic.id.bytes, partitions[0], [positions[partition] for partition in partitions])
    return urlsafe_b64encode(msgspec.msgpack.encode(image)).rstrip(b"=").decode()


def decoded(topic: Topic, text: str, partition: int | None) -> dict[int, int]:
    """The offsets in a word: of one partition, or of all. Partitions that are newer than the word are not in it."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        image = msgspec.msgpack.decode(data, type=_Image)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Refusal(BAD_REQUEST, "the position was not given by this API") from None
    found = {image.first + i: offset for i, offset in enumerate(image.offsets)}
    whole = image.first == 0 if partition is None else list(found) == [partition]
    if not whole or len(found) > topic.ready or not all(0 <= offset <= LAST for offset in found.values()):
        raise Refusal(BAD_REQUEST, "the position is not one of this call")
    if image.topic != topic.id.bytes:
        raise Refusal(CONFLICT, f"the topic {topic.name!r} was deleted and created again since the position was given")
    return found
