"""JSON without a schema: its shape is found in the payloads.

Payloads are decoded by a guess first. Those that do not fit it are read one by one, and make the next guess better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.inference import Seen, read
from headwater.schemas.decoding.json_texts import texts_of
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


def infer(payloads: pa.Array, known: Shape | None = None) -> Shape:
    """A shape that every payload fits which is JSON. Payloads that are not JSON have no part in it.

    `known` is a shape that the result begins with: its fields stay, and keep their types.
    """
    return decode(payloads, known)[0]


def decode(payloads: pa.Array, known: Shape | None = None) -> tuple[Shape, Decoded]:
    """Decode payloads by the shape of `infer`, which comes with them."""
    from headwater.schemas.decoding.kernels import json_values

    mended = (json_values.MISFIT, json_values.UNKNOWN, json_values.INEXACT, json_values.RANGE)
    seen = Seen()
    seen.keep(known or NULL)
    guess = seen.root()
    rows, taken = payloads.slice(0, FIRST_ROWS), FIRST_ROWS
    for _ in range(MAX_GUESSES):
        decoded, codes = texts_of(guess).try_out(rows, strict=True)
        unfit = [row for row, code in codes.items() if code in mended]
        read_now = _within(rows, unfit[:taken], taken * ROW_BYTES)
        for value in read(rows[row].as_py() for row in unfit[:read_now]):
            seen.add(value)
        before, guess = guess, seen.root()
        if len(rows) == len(payloads) and len(unfit) <= read_now and before == guess:
            if json_values.UNKNOWN in codes.values():
                break
            return guess, decoded
        rows, taken = payloads, MORE_ROWS if len(rows) < len(payloads) else taken * 10
    return guess, decode_as(guess, payloads)


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
