"""Copies an embedded cluster while it runs.

`app/backup/gathering.py` brings the ledger and its objects. Then all processes of the cluster are fenced in the copied
ledger, so that the copy names no broker of the cluster that goes on. At last the ledger is put into its place. The copy
keeps the cluster's id: it is the same cluster, at an earlier moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.app.backup.gathering import DELTA, ICEBERG, THREADS, Gathering, Keep, Progress, Round
from headwater.app.backup.placing import LEDGER, OBJECTS, check_whole, note_logs, place
from headwater.app.backup.receipt import Receipt, write_receipt
from headwater.app.backup.target import Source, Target
from headwater.app.backup.transfer import Counts
from headwater.clock import Chance, Clock
from headwater.errors import ConfigError, ObjectMissing, StoreUnavailable
from headwater.lake.tables.iceberg import by_path
from headwater.lake.tables.iceberg.table import FOLDER
from headwater.lake.tables.keys.table import NAME as KEYS
from headwater.ledger.sqlite.ledger import SqliteLedger, check_format
from headwater.objects.local import LocalStore
from headwater.replica.domains import Domains
from headwater.settings.settings import Settings
from headwater.threads import Threads
from headwater.types import DOMAINS

FENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup did."""

    cluster: str
    taken_ms: int
    """When the ledger was copied. Everything acknowledged before is in the copy."""
    rounds: int
    objects: int
    bytes: int
    counts: Counts
    lost: list[str]
    """Objects that the cluster needs and does not have."""
    catalogs: list[str]
    """External catalogs that follow tables. They are no part of the copy."""


async def back_up(
    settings: Settings,
    directory: Path,
    clock: Clock,
    chance: Chance,
    keep: Keep,
    *,
    links: bool = True,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Copied:
    """Copy a cluster into a directory. If this fails or is interrupted, the next backup into it continues.

    `keep` lets the cluster delete nothing, as `session.kept` does.
    """
    source = Source(settings)
    check_format(source.ledger)
    target = Target(directory, source)
    check_whole(source.data)
    with target.claimed() as receipt:
        store, threads = LocalStore(source.objects, source.mode), Threads(THREADS, "backup")
        try:
            gathering = Gathering(source, target, store, threads, clock, links=links, tell=tell)
            return await _back_up(gathering, source, target, receipt, clock, chance, keep)
        finally:
            await threads.close()
            await store.close()


async def _back_up(
    gathering: Gathering,
    source: Source,
    target: Target,
    receipt: Receipt,
    clock: Clock,
    chance: Chance,
    keep: Keep,
) -> Copied:
    if receipt.place != target.place:  # the copy was moved: its Iceberg tables name the old place
        receipt = msgspec.structs.replace(receipt, place=target.place, complete=False)
        write_receipt(target.data, receipt)
        await gathering.call(gathering.objects.remove, _names_places)
    found, lost = await gathering.run(lambda found: _check_cluster(found, receipt, source, target), keep)
    positions = await _fence(target, source.mode, clock, chance)
    note_logs(target.data, found.logs)
    receipt = msgspec.structs.replace(
        receipt,
        placing=True,
        cluster=found.cluster,
        taken_ms=found.taken_ms,
        positions=positions,
        objects=len(found.named),
        bytes=gathering.progress.bytes,
    )
    write_receipt(target.data, receipt)
    place(target.data)
    await gathering.call(gathering.objects.keep_only, found.named)
    followers = {name for table in found.tables for name in table.followers}
    return Copied(
        cluster=found.cluster,
        taken_ms=found.taken_ms,
        rounds=gathering.progress.round,
        objects=len(found.named),
        bytes=gathering.progress.bytes,
        counts=gathering.objects.counts,
        lost=sorted(lost),
        catalogs=sorted(followers - {ICEBERG, DELTA, KEYS}),
    )


def _names_places(path: str) -> bool:
    """Whether an object of the copy has URLs in it: metadata of Iceberg tables."""
    return any(f"/{folder}/" in path for folder in (FOLDER, by_path.FOLDER))


def _check_cluster(found: Round, receipt: Receipt, source: Source, target: Target) -> None:
    if not found.cluster:
        raise ConfigError(f"there is no cluster to back up: no process has ever used {source.ledger}")
    if receipt.cluster not in ("", found.cluster):
        raise ConfigError(
            f"{target.data} is a backup of cluster {receipt.cluster}, and this is {found.cluster}; "
            "back up into another directory"
        )


class _Gathered(LocalStore):
    """The objects of a copy, those included that come into their places in the last step."""

    def __init__(self, target: Target, mode: int) -> None:
        super().__init__(target.staging / OBJECTS, mode)
        self._placed = LocalStore(target.objects, mode)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            return await super().get(path, start, length)
        except ObjectMissing:
            return await self._placed.get(path, start, length)

    async def close(self) -> None:
        await self._placed.close()
        await super().close()


async def _fence(target: Target, mode: int, clock: Clock, chance: Chance) -> dict[int, int]:
    """Fence all processes in the copied ledger; returns the ends of its domains."""
    ledger = SqliteLedger(target.staging / LEDGER)
    domains = Domains(ledger, _Gathered(target, mode), clock, chance)
    try:
        async with asyncio.timeout(FENCE_SECONDS):
            await domains.follow()
            await domains.membership.join()
            for member in list(domains.cluster.state.processes.values()):
                if member.epoch != domains.membership.epoch:
                    await domains.membership.fence(member)
            await domains.leave()
            return {int(domain): await ledger.last(domain) for domain in DOMAINS}
    except TimeoutError as error:
        raise StoreUnavailable(
            f"{target.data} is too slow: its ledger took no records in {FENCE_SECONDS:g} s"
        ) from error
    finally:
        await domains.close()
