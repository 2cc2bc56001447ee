"""The part of the state for keys under which units are appended once."""

from __future__ import annotations

import msgspec

from headwater.state.machine import Part
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored.keys import StoredKeys


class KeysImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The keys of a domain inside a checkpoint, oldest first."""

    keys: list[tuple[bytes, bytes]]


def _unpack(state: StreamsDomain, image: KeysImage) -> None:
    state.keys = StoredKeys.unpack(image.keys)


PART: Part[StreamsDomain, KeysImage] = Part(
    name="once",
    commands={},
    format=1,
    image=KeysImage,
    pack=lambda state: KeysImage(state.keys.pack()),
    unpack=_unpack,
    empty=lambda: KeysImage([]),
)
