"""Time travel in SQL: every version, time and hour's tag that is retained gives the checksum that it had once.

A topic is settled again and again, and its small segments are merged. As soon as a version is seen, its count and sums
are recorded. In the end both engines are asked for all of them again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from headwater.app.session import ledger_session
from headwater.settings.settings import load
from headwater.state.streams.tables import JournalEntry
from headwater.types import Domain
from tests.faults.lake_running import LakeRunning
from tests.soak.common import Verdict, progress
from tests.soak.sql_asking import ENGINES, Failed, asked

PROMISES = ("Q3",)

TOPIC, PARTITIONS = "travel", 2
KEPT = 50
SETTINGS = f"""
process_session_ms = 30000
[housekeeping]
interval_ms = 500
dead_object_grace_ms = 1000
[lake]
interval_ms = 100
merge_files = 4
keep_versions = {KEPT}
expire_interval_ms = 1000
orphan_interval_ms = 1000
niceness = 0
[sql]
niceness = 0
"""
SUMS = (
    "SELECT partition, count(*) AS n, CAST(sum(offset) AS BIGINT) AS s, min(offset) AS low, max(offset) AS high "
    f"FROM {TOPIC} GROUP BY partition ORDER BY partition"
)
MOST_RECORDS = 200

Rows = list[list[Any]]


def journal(server: LakeRunning) -> dict[int, JournalEntry]:
    """The changes of the table that are known, by version."""

    async def look() -> dict[int, JournalEntry]:
        async with ledger_session(load(str(server.config), environment={})) as found:
            topic = found.topic(TOPIC)
            table = found.domains[Domain(topic.domain)].state.tables.get(topic.id)
            return {entry.sequence: entry for entry in table.journal} if table is not None else {}

    return asyncio.run(look())


def settle(server: LakeRunning, producer: confluent_kafka.Producer, ends: list[int], chance: random.Random) -> None:
    """Write some records, and have them settled."""
    for partition in range(PARTITIONS):
        count = chance.randint(1, MOST_RECORDS)
        for _ in range(count):
            producer.produce(TOPIC, b"traveller", partition=partition)
        ends[partition] += count
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")
    server.settle(TOPIC)


def travel(directory: Path, settles: int, seed: int, verdict: Verdict) -> None:
    chance, ends, recorded = random.Random(seed), [0] * PARTITIONS, dict[int, Rows]()
    with LakeRunning(directory, settings=SETTINGS) as server, progress() as bars:
        server.create(TOPIC, PARTITIONS, **{"headwater.table.freshness.ms": "300", "retention.ms": "60000"})
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        bar = bars.add_task("settles", total=settles, now="")
        for _ in range(settles):
            settle(server, producer, ends, chance)
            known = journal(server)
            for version in sorted(known.keys() - recorded.keys()):
                recorded[version] = asked(server, SUMS, "duckdb", as_of={"version": version})
            wanted = [[p, end, end * (end - 1) // 2, 0, end - 1] for p, end in enumerate(ends)]
            assert recorded[max(known)] == wanted, f"version {max(known)}: {recorded[max(known)]}, not {wanted}"
            bars.update(bar, advance=1, now=f"{len(recorded)} versions")
        known = journal(server)
        for version in known.keys() - recorded.keys():  # merges since the last look
            recorded[version] = recorded[max(v for v in recorded if v < version)]
        _look_again(server, known, recorded, verdict)
        verdict.floor("merges", sum(entry.replaces for entry in known.values()), 1)


def _look_again(
    server: LakeRunning, known: Mapping[int, JournalEntry], recorded: Mapping[int, Rows], verdict: Verdict
) -> None:
    newest, wrong, right, gone = max(known), list[str](), 0, 0
    for engine in ENGINES:
        states: list[tuple[dict[str, Any], int]] = [({"version": version}, version) for version in sorted(recorded)]
        for hour in {_hour(entry) for entry in known.values()}:
            last = max(version for version, entry in known.items() if _hour(entry) == hour)
            states.append(({"tag": hour}, last))
        if engine == "duckdb":
            for entry in known.values():
                states.append(({"time": entry.ms}, max(v for v, other in known.items() if other.ms <= entry.ms)))
        for as_of, version in states:
            try:
                found = asked(server, SUMS, engine, as_of=as_of)
            except Failed as error:
                gone += 1
                if version > newest - KEPT or "tag" in as_of:
                    wrong.append(f"{engine}, {as_of}: {error}")
                continue
            right += found == recorded[version]
            if found != recorded[version]:
                wrong.append(f"{engine}, {as_of}: {found}, once {recorded[version]}")
    for line in wrong[:10]:
        verdict.fact("wrong", line)
    verdict.fact("versions", len(recorded))
    verdict.fact("versions that have expired, and say so", gone)
    verdict.floor("versions, times and tags with their checksum", right, min(len(recorded), KEPT))
    verdict.rule("retained states that gave something else", len(wrong), 0)


def _hour(entry: JournalEntry) -> str:
    return datetime.fromtimestamp(entry.ms / 1000, UTC).strftime("%Y-%m-%dT%H")
