"""A compactor as a process: a replica of the ledger, a Spark session, followers, health pages, signals."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence

import msgspec

from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app.directories import prepare
from headwater.app.exposure import check_exposure
from headwater.app.health import Health, judged, pages
from headwater.app.lifecycle import serve_until_told
from headwater.app.urgency import URGENCY, Priority
from headwater.background import Background
from headwater.errors import HeadwaterError
from headwater.extras import need
from headwater.lake.compactor import Compactor
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.following import Following
from headwater.lake.letters import Letters
from headwater.lake.metrics import collect
from headwater.lake.registries import Registry
from headwater.lake.spark.jobs import Jobs
from headwater.lake.spark.session import Sessions
from headwater.lake.tables import make_followers
from headwater.lake.tables.keys.table import KeyIndexFollower
from headwater.lake.tasks import Task, TaskFacts, public
from headwater.log.wal.cache import WalCache
from headwater.log.write.budget import Budget
from headwater.log.write.writers import Writers
from headwater.objects import metrics as object_metrics
from headwater.ops import logs
from headwater.ops.metrics import Metric
from headwater.priority import move_to, present, step_back
from headwater.replica.domains import Domains
from headwater.security.guard import Guard
from headwater.security.logins import Logins
from headwater.settings.settings import Lake, Settings
from headwater.threads import Threads

REMOTE_SLOTS = 16
"""The number of tasks per job if the size of the Spark cluster is not known."""


class CompactorProcess:
    """One compactor with its stores, Spark session, followers and pages."""

    def __init__(self, settings: Settings, background: Background, secret: str = "") -> None:
        self.settings = settings
        self.background = background
        prepare(settings)
        os.environ.update(settings.object_store.variables())  # Spark's workers are children of this process
        lake, domains = settings.lake, Domains.open(settings, background, "compactor")
        self.domains = domains
        self._sessions = Sessions(lake.spark, idle=lake.niceness > 0)
        self._jobs = Jobs(self._sessions, lake.spark.job_timeout_ms / 1000)
        self._thread = Threads(1, "spark")
        self._asking = Threads(4, "registry")
        registry: Registry | None = None
        if settings.schema_registry.url:
            registry = ExternalRegistry(settings.schema_registry, self._asking.run, domains.clock)
        self.compactor = Compactor(
            domains, self._run_job, lake, slots=slots(lake), prepare=self._warm_up, registry=registry
        )
        self.priority = Priority(
            lake.niceness,
            self.compactor.lag,
            lambda niceness: move_to(niceness, idle=niceness == lake.niceness),
            present,
        )
        self._tables = Threads(1, "tables")
        followers = make_followers(domains.store, lake, self._tables.run, settings.object_store)
        followers.append(KeyIndexFollower(domains.store, self._tables.run))
        self.following = Following(domains, followers, self.compactor.lease, lake)
        self._writers = Writers(
            domains,
            WalCache(domains.store, 0),
            {"cost": settings.wal.cost, "latency": settings.wal.latency},
            zone=settings.zone,
            hold_ms=settings.wal.hold_ms,
            budget=Budget(settings.limits.broker_inflight_bytes),
        )
        domains.membership.on_epoch = self._writers.join
        self.letters = Letters(domains, self._writers, self.compactor.lease, settings, self._tables.run)
        security, access = settings.security, domains.cluster.state.access
        logins = Logins(security, access, domains.clock, domains.chance, domains.cluster.barrier)
        gate = Gate(security, logins, Guard(security, access))
        self.http = HttpListener(settings, pages(gate, self._judged, self._metrics), secret, background)

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        options = public(self.settings.object_store)
        told = [msgspec.structs.replace(task, options=options) for task in tasks]
        return await self._thread.run(self._jobs.run, tag, told)

    async def _warm_up(self) -> None:
        await self._thread.run(self._jobs.warm_up, slots(self.settings.lake))

    @property
    def ready(self) -> str:
        """The line for the supervisor."""
        return f"ready http={self.http.port}"

    async def start(self) -> None:
        check_exposure(self.settings, kafka=False)
        await self.domains.follow()
        self._writers.start()
        await self.domains.join()
        self.compactor.start()
        self.background.run(URGENCY, self.priority.run)
        self.following.start()
        self.letters.start()
        await self.http.open()

    async def stop(self) -> None:
        await self.compactor.close()
        await self.letters.close()
        await self.following.close()
        await self._writers.drain()
        await self.domains.leave()
        await self.http.close()
        await asyncio.to_thread(self._sessions.close)
        await self._tables.close()
        await self._asking.close()
        await self.domains.close()

    def _metrics(self) -> list[Metric]:
        metrics = collect(
            self.domains.cluster, self.domains, self.compactor, self.following, self.domains.clock.wall_ms()
        )
        metrics += object_metrics.collect(self.domains.store)
        metrics += self.priority.metrics()
        return metrics + self.letters.metrics() + self.compactor.damage.metrics()

    async def _judged(self) -> Health:
        try:
            await self.domains.cluster.barrier()
        except HeadwaterError as error:
            return judged(self.background, reason=type(error).__name__)
        health = health_of(
            self.background, self.compactor, self.following, self.domains.membership.in_contact, self.letters.alert
        )
        health.priority = self.priority.described()
        return health.with_clocks(self.domains.clock_words())


def health_of(
    background: Background, compactor: Compactor, following: Following, in_contact: bool, letters: str = ""
) -> Health:
    """The health of a compactor that reaches its ledger. It is degraded while a table falls behind or letters wait.

    `letters` says why dead letters wait; empty if none do.
    """
    late = sum(len(topics) for topics in compactor.late.values())
    away, failing = compactor.decoding.unreachable, compactor.isolated.alerts
    degraded = bool(following.alerts or failing) or not in_contact or late > 0 or bool(away) or bool(letters)
    health = judged(background, degraded=degraded, damage=compactor.damage.lines())
    if failing and not health.reason:
        others = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        health.reason = f"{next(iter(failing.values()))}{others}"
    elif late and not health.reason:
        health.reason = f"settling is late for {late} topics"
    elif away and not health.reason:
        health.reason = f"the schema registry cannot be asked: {away}"
    elif letters and not health.reason:
        health.reason = f"dead letters wait: {letters}"
    return health


def slots(lake: Lake) -> int:
    """How many tasks can run at once, by the settings."""
    local = re.fullmatch(r"local\[(\d+)(,.*)?\]", lake.spark.chosen_master)
    return int(local[1]) if local and not lake.spark.remote else REMOTE_SLOTS


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run a compactor until a signal stops it."""
    need("lake")
    logs.setup(settings.log_level, node="compactor")
    step_back(settings.lake.niceness)
    await serve_until_told(
        lambda background, secret, _: CompactorProcess(settings, background, secret), settings, supervised=supervised
    )
