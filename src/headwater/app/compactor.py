"""A compactor as a process: a replica of the ledger, a Spark session, followers, health pages, signals."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence

import msgspec

from headwater.api.gate import Gate
from headwater.api.listener import HttpListener
from headwater.app.exposure import check_exposure
from headwater.app.lifecycle import halt, started, until_told, watch_parent
from headwater.app.node import DOMAINS
from headwater.broker.guard import Guard
from headwater.broker.logins import Logins
from headwater.clock import SystemChance, SystemClock
from headwater.config import Lake, Settings
from headwater.errors import HeadwaterError
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.metrics import collect
from headwater.lake.spark.jobs import Jobs
from headwater.lake.spark.session import Sessions
from headwater.lake.tables import make_followers
from headwater.lake.tasks import Task, TaskFacts, public
from headwater.metadata import open_ledger
from headwater.metadata.cluster import ClusterState
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState
from headwater.objects import ObjectStore, open_store
from headwater.objects import metrics as object_metrics
from headwater.ops import logs
from headwater.ops.http import Page, Request
from headwater.ops.metrics import CONTENT_TYPE, render
from headwater.threads import Threads

REMOTE_SLOTS = 16
"""How many tasks a job is cut into where the cluster's size is not known."""


class CompactorProcess:
    """One compactor with everything around it."""

    def __init__(self, settings: Settings, secret: str = "") -> None:
        self.settings = settings
        os.environ.update(settings.object_store.variables())  # Spark's workers are this process's children
        self.ledger = open_ledger(settings.ledger_url, settings.object_store)
        self.store: ObjectStore = open_store(settings.objects_url, settings.object_store)
        clock, chance, lake = SystemClock(), SystemChance(), settings.lake
        self.cluster = Replica(self.ledger, self.store, ClusterState(), clock, chance)
        self.domains = {d: Replica(self.ledger, self.store, StreamsState(d), clock, chance) for d in DOMAINS}
        self.membership = Membership(self.ledger, self.cluster, self.domains, clock, chance, zone=settings.zone)
        self._sessions = Sessions(lake.spark)
        self._jobs = Jobs(self._sessions, lake.spark.job_timeout_ms / 1000)
        self._thread = Threads(1, "spark")
        self.compactor = Compactor(
            self.cluster,
            self.domains,
            self.store,
            self._run_job,
            lake,
            clock,
            chance,
            slots=slots(lake),
            prepare=self._warm_up,
        )
        self._tables = Threads(1, "tables")
        followers = make_followers(self.store, lake, self._tables.run, settings.object_store)
        self.following = Following(self.cluster, self.domains, followers, self.compactor.lease, lake, clock, chance)
        security, access = settings.security, self.cluster.state.access
        gate = Gate(security, Logins(security, access, clock, chance, self.cluster.barrier), Guard(security, access))
        self.http = HttpListener(
            settings,
            {
                "/metrics": gate.describes_cluster(self._metrics),
                "/healthz": self._alive,
                "/readyz": self._ready,
                "/health": gate.describes_cluster(self._health),
            },
            secret,
        )

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        options = public(self.settings.object_store)
        told = [msgspec.structs.replace(task, options=options) for task in tasks]
        return await self._thread.run(self._jobs.run, tag, told)

    async def _warm_up(self) -> None:
        await self._thread.run(self._jobs.warm_up, slots(self.settings.lake))

    async def start(self) -> None:
        check_exposure(self.settings, kafka=False)
        await self.cluster.start()
        for replica in self.domains.values():
            await replica.start()
        await self.membership.join()
        self.membership.start()
        self.compactor.start()
        self.following.start()
        await self.http.open()

    async def stop(self) -> None:
        await self.compactor.close()
        await self.following.close()
        await self.membership.leave()
        for replica in self.domains.values():
            await replica.close()
        await self.cluster.close()
        await self.http.close()
        await asyncio.to_thread(self._sessions.close)
        await self._tables.close()
        await self.ledger.close()
        await self.store.close()

    async def _metrics(self, request: Request) -> Page:
        metrics = collect(self.cluster, self.domains, self.compactor, self.following, SystemClock().wall_ms())
        metrics += object_metrics.collect(self.store)
        return Page(render(metrics), content_type=CONTENT_TYPE)

    async def _alive(self, request: Request) -> Page:
        return Page('{"status":"alive"}')

    async def _ready(self, request: Request) -> Page:
        page = await self._health(request)
        return Page('{"status":"unhealthy"}', 503) if page.status == 503 else page

    async def _health(self, request: Request) -> Page:
        try:
            await self.cluster.barrier()
        except HeadwaterError as error:
            return Page(f'{{"status":"unhealthy","reason":"{type(error).__name__}"}}', 503)
        if self.following.alerts or not self.membership.in_contact:
            return Page('{"status":"degraded"}')
        return Page('{"status":"healthy"}')


def slots(lake: Lake) -> int:
    """How many tasks can run at once, as far as the settings say."""
    local = re.fullmatch(r"local\[(\d+)(,.*)?\]", lake.spark.master)
    return int(local[1]) if local and not lake.spark.remote else REMOTE_SLOTS


async def serve(settings: Settings, *, supervised: bool) -> None:
    """Run a compactor until it is told to stop."""
    logs.setup(settings.log_level, node="compactor")
    stop = until_told()
    process = CompactorProcess(settings, await watch_parent(stop) if supervised else "")
    process.cluster.on_halt = lambda error: halt(error, stop)
    for replica in process.domains.values():
        replica.on_halt = lambda error: halt(error, stop)
    if not await started(process.start(), stop):
        return
    print(f"ready http={process.http.port}", flush=True)  # noqa: T201
    await stop.wait()
    await process.stop()
