"""Going on with a ledger that has gone back: `headwater metadata accept`.

The ledger takes a new name for itself (`Accept`), so that marks and checkpoints of its lost end count no more. Numbers
that the lost end may have given away are skipped: epochs, and the names of objects with them, producer ids, numbers of
files and versions. All tables are written anew from what the ledger still has.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from headwater.app.claims import claimed, this_process
from headwater.app.directories import begin, is_used, missing_in
from headwater.app.ledgers.copying import check_nobody_lives
from headwater.errors import ConfigError, LedgerWentBack
from headwater.lake.compactor import TABLES
from headwater.lake.planning import writer_of
from headwater.ledger.local import local_files
from headwater.ledger.marks import Mark
from headwater.log.wal import format as wal
from headwater.replica.domains import Domains
from headwater.replica.marking import Seen
from headwater.settings.settings import Settings
from headwater.state.commands.base import Accept
from headwater.state.results import Done

SKIPPED_EPOCHS = 1_000
SKIPPED_PRODUCERS = 1_000_000
SKIPPED_NUMBERS = 1_000_000
"""How many numbers are left out beyond those that a mark or a name in the store shows. A mark may be a minute old."""


class DomainLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What a domain has lost."""

    domain: int
    ends_ms: int
    """The ledger time at which the ledger ends."""
    came_to_ms: int
    """The ledger time to which it had come, as marks and checkpoints show."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What is lost if a ledger goes on as it is."""

    reason: str
    """Why the ledger is refused."""
    domains: list[DomainLoss]
    forgotten: int
    """WAL objects and segments in the store that the ledger does not know. They will be deleted."""
    forgotten_bytes: int
    missing: int
    """WAL objects and segments that the ledger names and the store no longer has. Their records cannot be read."""
    epoch: int
    """The next epoch that no mark and no name in the store knows."""
    producer: int
    """The next producer id that no mark knows."""


async def look(settings: Settings) -> Loss:
    """What is lost. Nothing is changed: a SQLite ledger is looked at in a copy."""
    missing = await asyncio.to_thread(missing_in, settings)
    begin(settings, writing=False, create=bool(missing), accepting=True)
    async with _copy(settings) as copied:
        domains = Domains.open(copied, accepting=True)
        try:
            return await _loss(domains, await domains.follow(accepting=True), missing)
        finally:
            await domains.close()


async def accept(settings: Settings, loss: Loss) -> str:
    """Go on with the ledger as it is; returns its new name for itself. May be repeated after a failure."""
    begin(settings, create=True, accepting=True)
    with contextlib.ExitStack() as stack:
        if is_used(settings):
            owner = this_process("metadata accept", "", "")
            stack.enter_context(claimed(settings.data, owner, range(settings.node, settings.node + 1), whole=True))
        domains = Domains.open(settings, accepting=True)
        try:
            await check_nobody_lives(domains.ledger, domains.clock)
            await domains.follow(accepting=True)
            known = domains.cluster.state
            command = Accept(
                domains.chance.uuid().hex,
                max(loss.epoch, known.next_epoch) + SKIPPED_EPOCHS,
                max(loss.producer, known.next_producer) + SKIPPED_PRODUCERS,
                SKIPPED_NUMBERS,
            )
            # Domain 0 comes last: from then on the loss is accepted.
            for submit in (*(replica.submit for replica in domains.values()), domains.cluster.submit):
                [result] = await submit([command])
                if not isinstance(result, Done):
                    raise LedgerWentBack(f"the loss was not accepted: {result}")
            await domains.marks.replace(domains.marks.mark(domains.cluster, domains))
            return command.life
        finally:
            await domains.close()


@contextlib.asynccontextmanager
async def _copy(settings: Settings) -> AsyncIterator[Settings]:
    """Settings that lead to a copy of the ledger, if it is a file that opening may change."""
    files = local_files(settings.ledger_url)
    if files is None:
        yield settings
        return
    if files.in_use():
        raise ConfigError(f"a process uses the ledger {files.path}: stop all processes of the cluster first")
    with tempfile.TemporaryDirectory(prefix="headwater-") as directory:
        copy = files.copy(Path(directory))
        yield msgspec.structs.replace(settings, ledger=copy, objects=settings.objects_url)


async def _loss(domains: Domains, seen: Seen, missing: str) -> Loss:
    """What is lost. `missing` is why the ledger is refused before it is opened, if it is."""
    cluster, streams = domains.cluster.state, [replica.state for replica in domains.values()]
    try:
        seen.check(cluster, streams)
    except LedgerWentBack as error:
        missing = missing or str(error)
    if not missing:
        raise ConfigError("the ledger has not gone back: there is nothing to accept")
    lines = []
    for state in (cluster, *streams):
        came_to = max((found.time_ms for found in seen.evidence(cluster, state)), default=0)
        lines.append(DomainLoss(domain=state.domain, ends_ms=state.clock_ms, came_to_ms=came_to))
    needed = set[str]()
    for state in streams:
        needed.update(wal.path_of(o.zone, state.domain, o.created_ms, o.id) for o in state.objects if not o.dead_ms)
        for table in state.tables.values():
            needed.update(f"{table.root}/{file.name}" for file in table.files.values() if not file.removed)
    forgotten, size, newest = 0, 0, 0
    for root in (wal.ROOT, TABLES):
        async for info in domains.store.scan(root):
            epoch = _epoch_of(info.path)
            if epoch is None:
                continue
            newest = max(newest, epoch)
            if info.path in needed:
                needed.remove(info.path)
            else:
                forgotten, size = forgotten + 1, size + info.size
    return Loss(
        reason=missing,
        domains=lines,
        forgotten=forgotten,
        forgotten_bytes=size,
        missing=len(needed),
        epoch=max(newest + 1, _most(seen.marks, "epoch")),
        producer=max(1, _most(seen.marks, "producer")),
    )


def _most(marks: Sequence[Mark], name: str) -> int:
    return max((getattr(mark, name) for mark in marks), default=0)


def _epoch_of(path: str) -> int | None:
    """The epoch in the name of a WAL object or a segment; None for others."""
    object_id = wal.id_of_path(path)
    if object_id is not None:
        return object_id.epoch
    written_by = writer_of(path)
    return written_by[0] if written_by is not None else None
