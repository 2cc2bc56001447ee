"""Several reads at once, up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headwater.background import each
from headwater.errors import ObjectMissing


async def gathered(get: Callable[[str], Awaitable[bytes]], paths: Sequence[str], at_once: int) -> list[bytes | None]:
    """Whole objects in the order of `paths`, `None` for missing ones. The first failure ends the other reads."""

    async def one(path: str) -> bytes | None:
        try:
            return await get(path)
        except ObjectMissing:
            return None

    return await each(one, paths, at_once, cancel=True)
