"""Shares of what many callers use: what one may have while others have nothing, and less while they have some."""

from __future__ import annotations


def fits(mine: int, taken: int, share: int, most: int) -> bool:
    """Whether a caller may have `mine` while all together have `taken` of `most`, both with what is asked for.

    One caller may have `share` while the others have nothing. The less is left, the less one may have: so callers that
    take what they can leave a part to others, however many they are.
    """
    if mine > share or taken > most:
        return False
    return mine * (most - share) <= (most - taken) * share
