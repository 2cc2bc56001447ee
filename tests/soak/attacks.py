"""Hostile requests while a normal producer and a normal consumer run, and what these notice of it.

Prints their p99 without and with each attack, the memory of the broker, and how long `/healthz` takes. The broker must
keep its epoch, and no request of the others may take longer than a second.

python -m tests.soak.attacks --seconds 30 --only slow_http
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import uvloop
from kio.schema.errors import ErrorCode

from harness.process import environment
from harness.tools import ROOT
from headwater.client.connection import Connection, connect
from headwater.client.model import NewTopic
from tests.faults.raw import FETCH, PRODUCE, fresh
from tests.soak.attackers import ATTACKS, BIG, FULL
from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("S4",)

NORMAL = "normal"
PAUSE_S = 0.01
LONGEST_MS = 1_000.0
FULL_MB = 64
WITHIN = 60


@dataclass(slots=True)
class Noticed:
    """What the normal clients see in one phase, in milliseconds."""

    acknowledged: list[float] = field(default_factory=list)
    delivered: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    failures: int = 0
    seconds: float = 1.0

    @property
    def rate(self) -> float:
        return len(self.acknowledged) / self.seconds


@asynccontextmanager
async def _closing(connection: Connection) -> AsyncIterator[Connection]:
    try:
        yield connection
    finally:
        await connection.close()


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)] if values else float("inf")


class Normal:
    """A producer, a consumer and a health check, each one request at a time."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self.noticed = Noticed()
        self._sent: list[float] = []
        """When the record of each offset was sent. There is one producer, and it has one request under way."""

    async def produce(self) -> None:
        async with _closing(await self._connection()) as link:
            while True:
                began = time.perf_counter()
                self._sent.append(began)
                records = fresh([b"x" * 1_000])
                parts = [{"name": NORMAL, "partition_data": [{"index": 0, "records": records}]}]
                answer = await link.request(
                    PRODUCE, WITHIN, newest=9, acks=-1, timeout=30_000, topic_data=parts, transactional_id=None
                )
                code = answer.responses[0].partition_responses[0].error_code
                if code is not ErrorCode.none:
                    self.noticed.failures += 1
                    self._sent.pop()
                self.noticed.acknowledged.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(PAUSE_S)  # the pace of the producer

    async def consume(self) -> None:
        offset = 0
        async with _closing(await self._connection()) as link:
            while True:
                wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                answer = await link.request(
                    FETCH, WITHIN, newest=11, max_wait=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                    topics=[{"topic": NORMAL, "partitions": [wanted]}],
                )  # fmt: skip
                end = answer.responses[0].partitions[0].high_watermark
                now = time.perf_counter()
                self.noticed.delivered += [(now - began) * 1000 for began in self._sent[offset:end]]
                offset = max(offset, end)

    async def check(self) -> None:
        while True:
            began = time.perf_counter()
            status, _ = await asyncio.to_thread(self._server.page, "/healthz")
            self.noticed.failures += status != 200
            self.noticed.health.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.2)  # the pace of the checks

    async def weigh(self) -> None:
        broker = self._server.broker(1)
        while True:
            self.noticed.peak_mb = max(self.noticed.peak_mb, broker.memory_info().rss / 1e6)
            await asyncio.sleep(0.2)  # the grain of what is measured

    async def _connection(self) -> Connection:
        return await connect("127.0.0.1", self._server.port, "normal", WITHIN)


async def phase(normal: Normal, server: Running, attack: str, seconds: float) -> Noticed:
    """Run the normal clients for a while, with an attack or without."""
    attacker = None
    if attack:
        http = server.http.rpartition(":")[2]
        arguments = ["-m", "tests.soak.attackers", attack, str(server.port), http]
        attacker = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, env=environment())
        await asyncio.sleep(1)  # it builds its request
    normal.noticed = Noticed(seconds=seconds)
    try:
        await asyncio.sleep(seconds)  # the length of the phase
        return normal.noticed
    finally:
        if attacker is not None:
            with suppress(ProcessLookupError):
                attacker.kill()
            await attacker.wait()


async def fill(server: Running) -> None:
    """Topics for the attacks: one with many partitions, one with much data."""
    async with server.client() as client:
        await client.create_topics([NewTopic(BIG, 10_000), NewTopic(FULL, 1), NewTopic(NORMAL, 1)])
    records = fresh([bytes(range(256)) * 3_900])
    async with _closing(await connect("127.0.0.1", server.port, "filler", WITHIN)) as link:
        for _ in range(FULL_MB):
            parts = [{"name": FULL, "partition_data": [{"index": 0, "records": records}]}]
            await link.request(
                PRODUCE, WITHIN, newest=9, acks=-1, timeout=30_000, topic_data=parts, transactional_id=None
            )


async def soak(server: Running, options: argparse.Namespace, verdict: Verdict) -> None:
    await fill(server)
    epochs = await asyncio.to_thread(server.epochs)
    normal = Normal(server)
    work = [asyncio.ensure_future(duty()) for duty in (normal.produce, normal.consume, normal.check, normal.weigh)]
    with progress() as bars:
        attacks = options.only or list(ATTACKS)
        bar = bars.add_task("attacks", total=len(attacks), now="none")
        await phase(normal, server, "", 3)
        for attack in attacks:
            bars.update(bar, advance=1, now=attack)
            before = await phase(normal, server, "", options.seconds / 2)
            tell(verdict, attack, before, await phase(normal, server, attack, options.seconds))
    failed = [task for task in work if task.done()]
    for task in work:
        task.cancel()
    await asyncio.wait(work)
    verdict.rule("normal clients that gave up", len(failed), 0)
    verdict.rule("epochs that the broker lost", int(await asyncio.to_thread(server.epochs) != epochs), 0)


def tell(verdict: Verdict, attack: str, before: Noticed, during: Noticed) -> None:
    verdict.fact(f"{attack}: records a second without it", before.rate)
    verdict.fact(f"{attack}: records a second with it", during.rate)
    for what in ("acknowledged", "delivered", "health"):
        verdict.fact(f"{attack}: {what}, p99 without it, ms", p99(getattr(before, what)))
        verdict.rule(f"{attack}: {what}, p99 with it, ms", p99(getattr(during, what)), LONGEST_MS)
    verdict.fact(f"{attack}: memory of the broker, MB", during.peak_mb)
    verdict.rule(f"{attack}: requests of normal clients that failed", during.failures, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each attack")
    parser.add_argument("--only", action="append", choices=sorted(ATTACKS), help="an attack; may be repeated")
    options = parser.parse_args()
    verdict = Verdict(f"attacks, {options.seconds:g} seconds each")
    with workplace("attacks") as directory, Running(directory) as server:
        uvloop.run(soak(server, options, verdict))
    verdict.leave()


if __name__ == "__main__":
    main()
