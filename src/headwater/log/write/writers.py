"""All writers of a process, and which of them has which stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from headwater.log.wal.cache import WalCache
from headwater.log.write.budget import Budget
from headwater.log.write.handover import Handover
from headwater.log.write.part import Part
from headwater.log.write.writer import Writer
from headwater.replica.domains import Domains
from headwater.settings.settings import Profile
from headwater.types import Domain, Epoch


class Writers:
    """All writers of a process. They share one counter of WAL sequences, which starts over in each epoch."""

    def __init__(
        self,
        domains: Domains,
        cache: WalCache,
        profiles: Mapping[str, Profile],
        *,
        zone: str,
        hold_ms: int,
        budget: Budget,
        make: Callable[..., Writer] = Writer,
    ) -> None:
        self._sequence = 0
        self.budget = budget
        self._handovers = {domain: Handover() for domain, _ in domains.items()}
        self._writers = {
            (domain, name): make(
                replica,
                domains.store,
                cache,
                profile,
                domains.clock,
                zone=zone,
                hold_ms=hold_ms,
                next_sequence=self._next_sequence,
                background=domains.background,
                name=f"{domain}-{name}",
                budget=budget,
                handover=self._handovers[domain],
            )
            for domain, replica in domains.items()
            for name, profile in profiles.items()
        }

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def of(self, domain: int, profile: str) -> Writer:
        return self._writers[(Domain(domain), profile)]

    def all(self) -> list[Writer]:
        return list(self._writers.values())

    def start(self) -> None:
        for writer in self._writers.values():
            writer.start()

    def join(self, epoch: Epoch) -> None:
        """Use a new epoch. Sequences start over."""
        self._sequence = 0
        for writer in self._writers.values():
            writer.join(epoch)

    def withdraw(self, part: Part) -> bool:
        """Drop a batch, unless it is already being stored or decided; returns whether it was dropped."""
        freed = sum(handover.withdraw(part) for handover in self._handovers.values())
        self.budget.give(freed)
        return freed > 0

    async def drain(self) -> None:
        """Finish what the writers have, and refuse further batches."""
        while any(handover.waiting for handover in self._handovers.values()) and all(w.active for w in self.all()):
            await asyncio.sleep(0.001)
        for writer in self._writers.values():
            await writer.drain()
