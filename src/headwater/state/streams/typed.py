"""The part of the state for typed columns of tables: their history, and what files have. From level 6 on."""

from __future__ import annotations

import msgspec

from headwater.state.machine import TYPED_LEVEL, Part
from headwater.state.streams.domain import StreamsDomain


class TypedImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The typed columns of a domain inside a checkpoint."""


def _unpack(state: StreamsDomain, image: TypedImage) -> None:
    """There is nothing to unpack yet."""


PART: Part[StreamsDomain, TypedImage] = Part(
    name="typed",
    commands={},
    level=TYPED_LEVEL,
    format=1,
    image=TypedImage,
    pack=lambda state: TypedImage(),
    unpack=_unpack,
    empty=TypedImage,
)
