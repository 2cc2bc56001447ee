"""JSON without a schema: its shape is found in the payloads.

Payloads are decoded by a guess first. Those that do not fit it are read one by one, and make the next guess better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.inference import Seen, read
from headwater.schemas.decoding.json_texts import texts_of
from headwater.schemas.decoding.variants import FIRST, Choice, choice_of, chosen, widened
from headwater.schemas.shapes import NULL, Shape

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_ROWS = 256
"""The rows that the first guess is made of."""
MORE_ROWS = 1_000
"""The rows that make the second guess better; ten times as many the third, and so on."""
ROW_BYTES = 8_000
"""How large these rows may be on average: of larger ones fewer are read."""
MAX_GUESSES = 12
MAX_PARTS = 16
"""How many shapes the payloads of a batch may have because of lists with different elements."""


@dataclass(frozen=True, slots=True)
class Part:
    """Payloads that were decoded by one shape."""

    rows: list[int] | None
    """Their numbers, rising; None for all."""
    shape: Shape
    decoded: Decoded


def infer(payloads: pa.Array, known: Shape | None = None) -> Shape:
    """A shape that every payload fits which is JSON. Payloads that are not JSON have no part in it.

    `known` is a shape that the result begins with: its fields stay, and keep their types.
    """
    return decode(payloads, known)[0]


def decode(payloads: pa.Array, known: Shape | None = None) -> tuple[Shape, Decoded]:
    """Decode payloads by the shape of `infer`, which comes with them."""
    shape, decoded, _ = _decode(payloads, known, None)
    return shape, decoded


class Shapes:
    """The shapes of a topic's payloads. They begin with what a table's columns have, and grow."""

    def __init__(self, known: Shape | None) -> None:
        self._known = known
        self._grown: dict[Choice, Shape] = {}

    def __repr__(self) -> str:
        return f"<Shapes, {len(self._grown)} beside {self._known!r}>"

    def decode(self, payloads: pa.Array) -> list[Part]:
        """Decode payloads. Those whose lists do not fit the first lists that are known have a shape of their own."""
        import pyarrow as pa

        known = self._known
        shape, decoded, apart = _decode(payloads, self._shape(FIRST), known)
        self._grown[FIRST] = shape
        if not apart:
            return [Part(None, shape, decoded)]
        groups: dict[Choice, list[int]] = {}
        for row, choice in sorted(apart.items()):
            groups.setdefault(choice, []).append(row)
        if len(groups) >= MAX_PARTS or len(self._grown) + len(groups) > 4 * MAX_PARTS:
            groups = {widened(groups): sorted(apart)}
        rest = [row for row in range(len(payloads)) if row not in apart]
        places = {row: at for at, row in enumerate(rest)}
        errors = {places[row]: text for row, text in decoded.errors.items() if row in places}
        parts = [Part(rest, shape, Decoded(decoded.array.take(pa.array(rest, pa.int64())), errors))]
        for choice, rows in groups.items():
            own = payloads.take(pa.array(rows, pa.int64()))
            self._grown[choice], decoded, _ = _decode(own, self._shape(choice), None)
            parts.append(Part(rows, self._grown[choice], decoded))
        return parts

    def _shape(self, choice: Choice) -> Shape | None:
        """What payloads of a choice begin with."""
        if choice in self._grown or self._known is None:
            return self._grown.get(choice)
        return chosen(self._known, choice)


def _decode(payloads: pa.Array, start: Shape | None, known: Shape | None) -> tuple[Shape, Decoded, dict[int, Choice]]:
    """Decode payloads by a shape that begins with `start`.

    Also rows whose lists do not belong to the first lists of `known`. They have no part in the shape, and are not
    decoded here.
    """
    from headwater.schemas.decoding.kernels import json_values

    mended = (json_values.MISFIT, json_values.UNKNOWN, json_values.INEXACT, json_values.RANGE)
    seen = Seen()
    seen.keep(start or NULL)
    guess = seen.root()
    apart: dict[int, Choice] = {}
    rows, taken = payloads.slice(0, FIRST_ROWS), FIRST_ROWS
    for _ in range(MAX_GUESSES):
        decoded, codes = texts_of(guess).try_out(rows, strict=True)
        unfit = [row for row, code in codes.items() if code in mended and row not in apart]
        read_now = _within(rows, unfit[:taken], taken * ROW_BYTES)
        for row, value in read(rows, unfit[:read_now]):
            choice = FIRST if known is None else choice_of(known, value)
            if choice:
                apart[row] = choice
            else:
                seen.add(value)
        before, guess = guess, seen.root()
        if len(rows) == len(payloads) and len(unfit) <= read_now and before == guess:
            if any(code == json_values.UNKNOWN for row, code in codes.items() if row not in apart):
                break
            return guess, decoded, apart
        rows, taken = payloads, MORE_ROWS if len(rows) < len(payloads) else taken * 10
    return guess, decode_as(guess, payloads), apart


def _within(payloads: pa.Array, rows: list[int], size: int) -> int:
    """How many of the first rows have at most so many bytes; one at least."""
    for at, row in enumerate(rows):
        size -= len(payloads[row].as_buffer())
        if size < 0:
            return max(at, 1)
    return len(rows)


def decode_as(shape: Shape, payloads: pa.Array) -> Decoded:
    """Decode payloads by a shape. A field that the shape does not have is passed over."""
    return texts_of(shape).decode(payloads)
