"""Several reads at once, so many and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headwater.objects.store import ObjectMissing


async def gathered(get: Callable[[str], Awaitable[bytes]], paths: Sequence[str], at_once: int) -> list[bytes | None]:
    """Whole objects in the order asked, `None` for those that do not exist; the first failure ends the others."""
    found: list[bytes | None] = [None] * len(paths)
    rest = iter(enumerate(paths))

    async def work() -> None:
        for i, path in rest:
            try:
                found[i] = await get(path)
            except ObjectMissing:
                continue

    workers = [asyncio.ensure_future(work()) for _ in range(min(at_once, len(paths)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return found
