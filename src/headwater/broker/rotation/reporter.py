"""Reports the pace of this broker to the cluster while a broker is slow, and judges which brokers are out of rotation.

While all brokers are fast, nothing is written. Once a broker finds itself slow, it reports its pace, and then all
brokers do. Those without clients measure a probe of the store and the ledger. Every broker judges, so that any of them
can take over; the oldest broker in rotation acts.
"""

from __future__ import annotations

import asyncio
import logging

from headwater.background import Duty, OnDeath, Supervised
from headwater.broker.rotation.judge import UNKNOWN, Judge, Reading
from headwater.broker.rotation.pace import Pace
from headwater.errors import HeadwaterError, Retriable
from headwater.replica.domains import Domains
from headwater.settings.settings import Brownout
from headwater.state.cluster.rotation import Health
from headwater.state.commands.rotation import Report, SetRotation

log = logging.getLogger("headwater.rotation")
PROBE = b"headwater probe\n"
PACE = Duty("pace-reporter", OnDeath.RESTART, "reports this broker's pace and judges which brokers are too slow")
FRESH_INTERVALS = 3
"""Reports that are older than this many intervals do not count."""


class PaceReporter:
    """Reports the pace of this broker, and judges the reports of all."""

    def __init__(
        self,
        domains: Domains,
        pace: Pace,
        settings: Brownout,
        *,
        node: int,
    ) -> None:
        self._cluster = domains.cluster
        self._membership = domains.membership
        self._store = domains.store
        self._pace = pace
        self._settings = settings
        self._clock = domains.clock
        self._path = f"probe/v1/node={node}"
        self._judge = Judge(settings)
        self._seen: dict[int, tuple[Health, float]] = {}
        self._told_slow = False
        self._background = domains.background
        self._duty: Supervised | None = None
        self.probes = 0

    def __repr__(self) -> str:
        return f"<PaceReporter of epoch {self._membership.epoch}>"

    def start(self) -> None:
        if self._settings.enabled:
            self._duty = self._background.run(PACE, self._run)

    async def close(self) -> None:
        if self._duty is not None:
            await self._duty.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.interval_ms / 1000)
            try:
                await self.round()
            except Retriable as error:
                log.info("reporting the pace postponed", extra={"reason": str(error)})
            except HeadwaterError as error:
                log.error("reporting the pace failed", extra={"reason": str(error)})

    async def round(self) -> None:
        """Measure, report, judge, act."""
        if not self._membership.in_contact:
            return
        now = self._clock.monotonic()
        publish, fetch = self._pace.publish.take(now), self._pace.fetch.take(now)
        trouble = self._is_out() or self._somebody_is_slow(now)
        if trouble and (publish is None or fetch is None):
            probed = await self._probe()
            publish, fetch = probed[0] if publish is None else publish, probed[1] if fetch is None else fetch
        slow = max(publish or 0, fetch or 0) > self._settings.floor_ms * 1000
        if slow or trouble or self._told_slow:
            told = [UNKNOWN if value is None else value for value in (publish, fetch)]
            await self._cluster.submit([Report(*told)])
            self._told_slow = slow
        await self._act()

    # --- what is known -----------------------------------------------------------------------------------

    def _is_out(self) -> bool:
        return self._membership.epoch in self._cluster.state.rotation.out

    def _readings(self, now: float) -> dict[int, Reading | None]:
        """Each broker's reading, if it is fresh by this process's own clock."""
        state = self._cluster.state
        found: dict[int, Reading | None] = {}
        seen: dict[int, tuple[Health, float]] = {}
        for member in state.serving():
            health = state.rotation.reports.get(member.epoch)
            found[member.epoch] = None
            if health is not None:
                known = self._seen.get(member.epoch)
                seen[member.epoch] = known if known is not None and known[0] is health else (health, now)
                if now - seen[member.epoch][1] <= FRESH_INTERVALS * self._settings.interval_ms / 1000:
                    found[member.epoch] = Reading(health.publish_us, health.fetch_us)
        self._seen = seen
        return found

    def _somebody_is_slow(self, now: float) -> bool:
        floor = self._settings.floor_ms * 1000
        out = self._cluster.state.rotation.out
        return bool(out) or any(
            reading is not None and max(reading.publish_us, reading.fetch_us) > floor
            for reading in self._readings(now).values()
        )

    async def _probe(self) -> tuple[int, int]:
        """The time of a small write and of a small read, for a broker without requests of clients."""
        self.probes += 1
        limit = self._settings.interval_ms / 1000
        began = self._clock.monotonic()
        wrote = read = 0.0
        try:
            async with asyncio.timeout(limit):
                await self._store.put(self._path, [PROBE])
                await self._cluster.barrier()
                wrote = self._clock.monotonic() - began
                await self._store.get(self._path)
                read = self._clock.monotonic() - began - wrote
        except (TimeoutError, HeadwaterError):
            wrote, read = wrote or limit, limit  # the longest time that is measured
        return int(wrote * 1_000_000), int(read * 1_000_000)

    # --- acting ------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        state = self._cluster.state
        out = set(state.rotation.out)
        verdicts = self._judge.decide(self._clock.monotonic(), self._readings(self._clock.monotonic()), out)
        acting = min((m.epoch for m in state.serving() if state.in_rotation(m)), default=0)
        if not verdicts or acting != self._membership.epoch:
            return
        for verdict in verdicts:
            member = state.processes.get(verdict.epoch)
            facts = {"node": member.node if member is not None else None, "epoch": verdict.epoch}
            log.warning("out of rotation" if verdict.out else "back in rotation", extra={"broker": facts})
        await self._cluster.submit([SetRotation(verdict.epoch, verdict.out) for verdict in verdicts])
