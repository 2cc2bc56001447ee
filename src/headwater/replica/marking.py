"""Marks of a process: it notes how far the ledger has come, and refuses a ledger that has gone back.

An embedded ledger has two files of marks, one beside it and one in the object store's directory, written once a second
if something has moved. For other ledgers a process writes an object of marks once a minute. Checkpoints in the store
count as marks, too. So what was acknowledged in the last second, or minute, may be lost unnoticed.

Ledger times are compared, because positions depend on the ledger. A whole data directory that was put back has marks
that are as old as its ledger: it is a restored copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.errors import Damaged, LedgerWentBack, ObjectMissing, Retriable
from headwater.ledger.contract import Ledger
from headwater.ledger.marks import End, Mark, MarkFile, decode, encode, read_files
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import HEADER_BYTES, directory_of, head_of
from headwater.replica.replica import Replica
from headwater.settings.objects import local_path
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.threads import Threads
from headwater.types import Domain

MARK_PATH = "meta/v1/mark"
WAL = "wal/"
FILE_SECONDS = 1.0
OBJECT_SECONDS = 60.0
MAX_CHECKPOINTS = 16
"""How many checkpoints of a domain are looked at, the newest by name. There are two, and what a crash has left."""
MARKING = Duty("marks", OnDeath.RESTART, "notes how far the ledger has come, so that a loss of its end is noticed")


class Evidence(NamedTuple):
    """That a domain had come to a ledger time."""

    what: str
    time_ms: int
    later: bool
    """Whether it is of a later life than the ledger."""


class Marks:
    """The places of a cluster's marks, and how this process uses them."""

    def __init__(self, ledger: Ledger, store: ObjectStore) -> None:
        self._store = store
        beside: Path | None = getattr(ledger, "mark_path", None)
        self._place = str(beside or type(ledger).__name__)
        objects = local_path(store.url, "file")
        self._files = [MarkFile(beside)] if beside is not None else []
        if objects is not None and beside is not None:
            self._files.append(MarkFile(objects / MARK_PATH))
        self._by_object = objects is None or beside is None
        self._threads: Threads | None = None
        self._duties: list[Supervised] = []
        self._slot = 0
        self._noted: Mark | None = None
        """What this process has seen at its last look. It is written if nobody else has written as much since."""

    def __repr__(self) -> str:
        return f"<Marks of {self._place} in {len(self._files)} files>"

    # --- looking -------------------------------------------------------------------------------------

    async def read(self) -> list[Mark]:
        """All marks that can be read."""
        found = read_files(file.path for file in self._files)
        if self._by_object:
            with contextlib.suppress(ObjectMissing):
                found += decode(await self._store.get(MARK_PATH))
        return found

    async def check(self, cluster: ClusterState, streams: Sequence[StreamsState]) -> None:
        """Raise if the ledger is behind a mark or a checkpoint. The states have all of it."""
        marks = await self.read()
        for mark in marks:
            if cluster.cluster_id and mark.cluster and cluster.cluster_id != mark.cluster:
                raise LedgerWentBack(
                    f"the ledger is that of the cluster {cluster.cluster_id}, and the object store has marks of the "
                    f"cluster {mark.cluster}. {WHAT_TO_DO}"
                )
        for state in (cluster, *streams):
            for seen in await self.evidence(marks, cluster, state):
                if seen.time_ms > state.clock_ms or seen.later:
                    raise LedgerWentBack(
                        f"the ledger has gone back: domain {state.domain} ends at {moment(state.clock_ms)}, and "
                        f"{seen.what} says that it had come to {moment(seen.time_ms)}. {WHAT_TO_DO}"
                    )
        if not cluster.position and not any(state.position for state in streams):
            async for info in self._store.scan(WAL):
                raise LedgerWentBack(f"the ledger is empty, and the object store has {info.path}. {WHAT_TO_DO}")

    async def evidence(self, marks: Sequence[Mark], cluster: ClusterState, state: State) -> list[Evidence]:
        """What marks and checkpoints say of a domain, without those whose loss was accepted."""
        found = []
        for mark in marks:
            end = mark.ends.get(state.domain)
            if end is not None and mark.life not in ["", *cluster.lives][:-1]:
                found.append(Evidence("a mark", end.time_ms, mark.life != cluster.life))
        paths = sorted([info.path async for info in self._store.scan(directory_of(state.domain))])
        for path in paths[-MAX_CHECKPOINTS:]:
            with contextlib.suppress(ObjectMissing, Damaged):
                head = head_of(await self._store.get(path, 0, HEADER_BYTES))
                if head.domain == state.domain and head.life not in ["", *state.lives][:-1]:
                    found.append(Evidence(f"the checkpoint {path}", head.time_ms, head.life != state.life))
        return found

    # --- writing -------------------------------------------------------------------------------------

    def start(
        self, background: Background, cluster: Replica[ClusterState], streams: Mapping[Domain, Replica[StreamsState]]
    ) -> None:
        """Write marks from now on."""
        if self._files:
            self._threads = Threads(1, "marks")

            async def files() -> None:
                while True:
                    await asyncio.sleep(FILE_SECONDS)
                    await self.note(cluster.epoch, self.mark(cluster, streams))

            self._duties.append(background.run(MARKING, files, "files"))
        if self._by_object:

            async def objects() -> None:
                while True:
                    await asyncio.sleep(OBJECT_SECONDS)
                    lease = cluster.state.lease(HOUSEKEEPING)
                    if lease is not None and lease.holder == cluster.epoch:
                        with contextlib.suppress(Retriable):
                            await self._store.put(MARK_PATH, [encode(self.mark(cluster, streams))])

            self._duties.append(background.run(MARKING, objects, "objects"))

    async def end(self, cluster: Replica[ClusterState], streams: Mapping[Domain, Replica[StreamsState]]) -> None:
        """Write a last mark, if this process has written any, and no more."""
        for duty in self._duties:
            await duty.stop()
        if self._threads is not None:
            await self._threads.run(self._write, self._slot, self.mark(cluster, streams))
            await self._threads.close()
            self._threads = None
        for file in self._files:
            file.close()

    async def note(self, slot: int, mark: Mark) -> None:
        """Write a mark, unless another process has written all that was there at the last look already."""
        before, self._noted = self._noted, mark
        if before is None or self._threads is None:
            return
        written = [found for found in read_files([self._files[0].path]) if found.life == mark.life]
        if not any(not found.is_behind(before) for found in written):
            self._slot = slot
            await self._threads.run(self._write, slot, mark)

    def _write(self, slot: int, mark: Mark) -> None:
        for file in self._files:
            file.write(slot, mark)

    async def replace(self, mark: Mark) -> None:
        """Make a mark the only one, everywhere."""
        for file in self._files:
            file.replace(mark)
        if self._by_object:
            await self._store.put(MARK_PATH, [encode(mark)])

    def mark(self, cluster: Replica[ClusterState], streams: Mapping[Domain, Replica[StreamsState]]) -> Mark:
        """How far the ledger has come, as these replicas know."""
        replicas: list[Replica[ClusterState] | Replica[StreamsState]] = [cluster, *streams.values()]
        return Mark(
            cluster=cluster.state.cluster_id,
            place=self._place,
            life=cluster.state.life,
            ends={r.domain: End(r.state.clock_ms, r.state.position, r.crc) for r in replicas},
            epoch=cluster.state.next_epoch,
            producer=cluster.state.next_producer,
        )


WHAT_TO_DO = (
    "Nothing was changed. What was acknowledged in between is not in the ledger, and its offsets would be given to "
    "other records. If there is a newer copy of the ledger, put it back: nothing is lost then. If not, `headwater "
    "metadata accept` goes on without what is lost, and shows first what that is"
)


def moment(ms: int) -> str:
    """A ledger time in words."""
    if not ms:
        return "its beginning"
    return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
