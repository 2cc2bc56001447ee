"""The part of the state for dead letters: how far those of each stream are written.

A record that could not be decoded is copied to the dead-letter topic of its topic. One unit appends copies and moves
the cursor of their stream (`CursorIs`), so every such record is copied once, whatever is repeated or killed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.state.machine import Part
from headwater.state.streams.domain import StreamsDomain


class LettersImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The cursors of a domain inside a checkpoint."""

    cursors: list[tuple[int, int]]


def _unpack(state: StreamsDomain, image: LettersImage) -> None:
    state.letters = dict(image.cursors)


def _dropped(state: StreamsDomain, names: Sequence[int]) -> None:
    for name in names:
        state.letters.pop(name, None)


PART: Part[StreamsDomain, LettersImage] = Part(
    name="letters",
    commands={},
    format=1,
    image=LettersImage,
    pack=lambda state: LettersImage(list(state.letters.items())),
    unpack=_unpack,
    empty=lambda: LettersImage([]),
    dropped=_dropped,
)
