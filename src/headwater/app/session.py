"""Access of a command to a cluster's ledger, to read the metadata or to append to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from headwater.app.absence import no_cluster
from headwater.app.backup.receipt import folder_of
from headwater.app.directories import begin
from headwater.background import Background
from headwater.errors import DutyFailed, NotFound
from headwater.objects import ObjectStore
from headwater.query.holding import Holding
from headwater.replica.domains import Domains
from headwater.replica.replica import Replica
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState


@dataclass(frozen=True, slots=True)
class LedgerSession:
    """All domains of a cluster, caught up with the ledger."""

    domains: Domains
    settings: Settings

    @property
    def cluster(self) -> Replica[ClusterState]:
        return self.domains.cluster

    @property
    def store(self) -> ObjectStore:
        return self.domains.store

    def topic(self, name: str) -> Topic:
        """A topic by its name."""
        topic = self.cluster.state.names.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}")
        return topic


@contextlib.asynccontextmanager
async def ledger_session(
    settings: Settings, *, member: bool = False, create: bool = False
) -> AsyncIterator[LedgerSession]:
    """Follow a cluster's ledger. As a member the command may also append to it.

    Without a cluster nothing is created, unless the command may `create` one.
    """
    begin(settings, writing=member, create=create)
    command = asyncio.current_task()
    assert command is not None

    def failed(failure: DutyFailed) -> None:
        command.cancel()

    background = Background(on_failed=failed)
    domains = Domains.open(settings, background)
    try:
        await domains.follow()
        if not create and not domains.cluster.state.position:
            raise no_cluster(settings)
        if member:
            await domains.join()
        yield LedgerSession(domains, settings)
    except asyncio.CancelledError:
        if background.failure is None:
            raise
        command.uncancel()
        met = background.failure.__cause__ or background.failure
        raise met from None  # the command would wait for ever
    finally:
        background.on_failed = None
        await domains.close()


@contextlib.asynccontextmanager
async def kept(settings: Settings) -> AsyncIterator[None]:
    """Let a cluster keep all that it has now. A backup of a backup needs that not: nothing is deleted there."""
    if _is_backup(settings):
        yield
        return
    async with ledger_session(settings, member=True) as session:
        holding = Holding(session.domains)
        holding.start()
        try:
            async with holding.query():
                yield
        finally:
            await holding.close()


def _is_backup(settings: Settings) -> bool:
    return folder_of(Path(settings.data).absolute()).is_dir()
