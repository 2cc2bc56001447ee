"""Filters of Flight SQL: patterns of SQL's LIKE, matched to names in one pass.

A pattern is cut at each `%` into pieces. Each piece is looked for behind the one before it, as far to the front as it
goes, so nothing is tried again. To find a piece with `_` takes one step for each letter: a number has one bit for each
place in the piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.errors import BadInput

ESCAPE = "\\"
"""Makes the wildcard behind it an ordinary character."""
MAX_PATTERN = 2_000
"""Characters of a pattern. A name of a topic has up to 249."""

_Piece = Sequence[str | None]
"""Letters, and None for any letter."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name fits a pattern: `%` stands for any characters, `_` for one, behind a backslash for themselves.

    Raises `BadInput` if the pattern is too long.
    """
    if len(pattern) > MAX_PATTERN:
        raise BadInput(f"the pattern of a filter has {len(pattern):,} characters: at most {MAX_PATTERN:,} are taken")
    pieces = _pieces(pattern)
    least = sum(map(len, pieces))
    first, *others = pieces
    searches = [_search(piece) for piece in others[:-1] if piece]

    def fits(name: str) -> bool:
        if len(name) < least or not _is_at(first, name, 0):
            return False
        if not others:
            return len(name) == least
        at, end = len(first), len(name) - len(others[-1])
        for search in searches:
            at = search(name, at)
            if at < 0:
                return False
        return at <= end and _is_at(others[-1], name, end)

    return fits


def _pieces(pattern: str) -> list[list[str | None]]:
    """What is between the `%` of a pattern, before the first and behind the last one."""
    pieces: list[list[str | None]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == ESCAPE:
            pieces[-1].extend(next(letters, ""))
        elif letter == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if letter == "_" else letter)
    return pieces


def _is_at(piece: _Piece, name: str, at: int) -> bool:
    return all(letter is None or letter == name[at + place] for place, letter in enumerate(piece))


def _search(piece: _Piece) -> Callable[[str, int], int]:
    """What finds a piece in a name from a place on: the place behind it, or -1."""
    size, last = len(piece), 1 << (len(piece) - 1)
    text = "".join(letter for letter in piece if letter is not None)
    if len(text) == size:

        def plain(name: str, at: int) -> int:
            found = name.find(text, at)
            return found + size if found >= 0 else -1

        return plain
    anything = sum(1 << place for place, letter in enumerate(piece) if letter is None)
    takes = {one: sum(1 << place for place, letter in enumerate(piece) if letter in (None, one)) for one in set(text)}

    def search(name: str, at: int) -> int:
        begun = 0
        """The bit of a place is set if the piece up to there ends at this letter of the name."""
        for place in range(at, len(name)):
            begun = (begun << 1 | 1) & takes.get(name[place], anything)
            if begun & last:
                return place + 1
        return -1

    return search
