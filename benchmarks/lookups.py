"""Look-ups of records that are not settled yet: ``python -m benchmarks.lookups``, or ``make bench-lookups``.

A gateway without a socket, on the embedded ledger and a local directory. The time of a look-up is that of the server:
the look at the ledger's end, finding the record, and for the last row all that HTTP adds. The processor time, of all
threads, depends less on what else the machine does. The first look-up, which hashes all keys that are not settled, is
shown alone.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import markdown_table, number
from headwater.app import compiling
from headwater.app.core import Core
from headwater.app.directories import prepare
from headwater.background import Background
from headwater.client.records import Record, encode_batch
from headwater.clock import SystemChance, SystemClock
from headwater.errors import HeadwaterError
from headwater.gateway.application import build
from headwater.gateway.records.finding import place_of
from headwater.gateway.services import Services
from headwater.ledger import open_ledger
from headwater.log.batch import BatchRules, check_batch
from headwater.log.kernels import switch
from headwater.log.write.part import Outcome, Part
from headwater.objects import open_store
from headwater.settings.settings import load
from headwater.state.cluster.domain import Topic
from headwater.state.results import Verdict
from headwater.threads import Threads

TOPIC, PARTITIONS = "bench", 12
BATCH_RECORDS = 100
VALUE = b"v" * 200
LOOKUPS = 2_000
HOT_MS = 1_700_000_000_000
FAR = 1 << 50
RULES = BatchRules(1 << 26, 1 << 26, FAR, FAR, append_time=False, compacted=False)


class Sent:
    """Waits for one batch."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Outcome | HeadwaterError] = asyncio.get_running_loop().create_future()

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        self.done.set_result(Outcome(Verdict.ACCEPTED, offset, log_start, append_ms))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        self.done.set_result(outcome)


async def fill(core: Core, topic: Topic, records: int) -> None:
    """Append records with keys of their own, a batch for each partition at a time."""
    writer, at = core.writers.of(topic.domain, "latency"), 0
    while at < records:
        waiting = []
        for stream in topic.streams:
            made = [Record(0, HOT_MS + at + i, b"key-%012d" % (at + i), VALUE) for i in range(BATCH_RECORDS)]
            at += BATCH_RECORDS
            sent = Sent()
            checked = check_batch(encode_batch(made), RULES, HOT_MS)
            writer.append(Part(stream, checked, sent, 0))
            waiting.append(sent.done)
        await asyncio.gather(*waiting)


async def timed(name: str, ask: Callable[[int], Awaitable[Any]], records: int) -> list[str]:
    """A row of the report: the first call, percentiles of the others, and the processor time that they took."""
    chance, took = random.Random(1), []
    busy = time.process_time()
    for i in range(LOOKUPS):
        chosen = chance.randrange(records)
        began = time.perf_counter()
        await ask(chosen)
        took.append((time.perf_counter() - began) * 1_000)
        busy = time.process_time() if i == 0 else busy
    mean = (time.process_time() - busy) * 1_000 / (LOOKUPS - 1)
    first, rest = took[0], sorted(took[1:])
    return [name, *(number(ms) for ms in (first, rest[len(rest) // 2], rest[len(rest) * 99 // 100], mean))]


async def measure(directory: Path, records: int) -> str:
    settings = load(flags={"data": str(directory)})
    prepare(settings)
    background, threads = Background(), Threads(1, "opening")
    ledger = open_ledger(settings.ledger_url, settings.object_store, background)
    store = open_store(settings.objects_url, settings.object_store)
    core = Core(settings, ledger, store, SystemClock(), SystemChance(), offload=threads.run, background=background)
    services = Services(settings, core.domains, core.writers, core.reader, offload=threads.run)
    await core.start()
    switch.compile_when_used(compiling.wait_until_made)
    topic = await services.topics.create(TOPIC, PARTITIONS, {})
    await fill(core, topic, records)
    place, app = place_of(services, topic), build(services)

    async def over_http(path: str, query: str) -> None:
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "scheme": "http",
                 "query_string": query.encode(), "headers": [], "client": ("127.0.0.1", 1), "server": ("gateway", 80),
                 "http_version": "1.1", "root_path": ""}  # fmt: skip
        status = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        await app(scope, receive, send)
        assert status == [200], status

    def where(chosen: int) -> tuple[int, int]:
        batch = chosen // BATCH_RECORDS
        return batch % PARTITIONS, batch // PARTITIONS * BATCH_RECORDS + chosen % BATCH_RECORDS

    rows = [
        await timed("by key", lambda i: services.lookups.latest(place, b"key-%012d" % i), records),
        await timed("by key, absent", lambda i: services.lookups.latest(place, b"none-%d" % i), records),
        await timed("by offset", lambda i: services.lookups.at(place, *where(i)), records),
        await timed(
            "by key, over HTTP", lambda i: over_http(f"/v1/topics/{TOPIC}/latest", f"key=key-{i:012d}"), records
        ),
    ]
    await core.stop()
    await ledger.close()
    await store.close()
    await threads.close()
    return markdown_table(["look-up", "first, ms", "half within, ms", "99 % within, ms", "CPU of each, ms"], 1, rows)


def main(
    records: Annotated[int, typer.Option(help="Records that are not settled.")] = 240_000,
) -> None:
    """Measure look-ups of records that are not settled."""
    with tempfile.TemporaryDirectory() as directory:
        typer.echo(f"{records} records in {PARTITIONS} partitions, {LOOKUPS} look-ups each\n")
        typer.echo(asyncio.run(measure(Path(directory), records)))


if __name__ == "__main__":
    typer.run(main)
