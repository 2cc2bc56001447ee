"""Producer ids that were never used before. The cluster hands them out in blocks."""

from __future__ import annotations

import asyncio
from collections import deque

from headwater.errors import NotReady
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import AllocateProducers
from headwater.state.results import Done

BLOCK = 1_000


class ProducerIds:
    """The producer ids that this broker may give away."""

    def __init__(self, cluster: Replica[ClusterState]) -> None:
        self._cluster = cluster
        self._free: deque[int] = deque()
        self._allocating = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIds: {len(self._free)} free>"

    async def take(self) -> int:
        """A producer id that was never used before."""
        while not self._free:
            async with self._allocating:
                if not self._free:
                    await self._allocate()
        return self._free.popleft()

    def give_back(self, producer: int) -> None:
        """Return an id that nobody uses. An id whose fate is not known must not be returned."""
        self._free.appendleft(producer)

    async def _allocate(self) -> None:
        [result] = await self._cluster.submit([AllocateProducers(BLOCK)])
        if not isinstance(result, Done):
            raise NotReady(f"no producer ids could be allocated: {result}")
        self._free.extend(range(result.value, result.value + BLOCK))
