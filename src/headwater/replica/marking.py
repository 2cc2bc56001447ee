"""Marks of a process: it notes how far the ledger has come, and refuses a ledger that has gone back.

An embedded ledger has two files of marks, one beside it and one in the object store's directory, written once a second
if something has moved. For other ledgers a process writes an object of marks once a minute, and a server one more when
it ends. Checkpoints in the store count as marks, too. So what was acknowledged in the last second, or minute, may be
lost unnoticed.

Ledger times are compared, because positions depend on the ledger. A whole data directory that was put back has marks
that are as old as its ledger: it is a restored copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.errors import Damaged, LedgerWentBack, ObjectMissing, Retriable
from headwater.ledger.contract import Ledger
from headwater.ledger.marks import End, Mark, MarkFile, decode, encode, read_files
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import HEADER_BYTES, CheckpointHead, directory_of, head_of
from headwater.replica.replica import Replica
from headwater.settings.objects import local_path
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.threads import Threads
from headwater.types import CLUSTER, DOMAINS, Domain

MARK_PATH = "meta/v1/mark"
WAL = "wal/"
FILE_SECONDS = 1.0
OBJECT_SECONDS = 60.0
LAST_SECONDS = 5.0
"""How long a server that ends tries to write a last object of marks."""
MAX_CHECKPOINTS = 16
"""How many checkpoints of a domain are looked at, the newest by name. There are two, and what a crash has left."""
MARKING = Duty("marks", OnDeath.RESTART, "notes how far the ledger has come, so that a loss of its end is noticed")


class Evidence(NamedTuple):
    """That a domain had come to a ledger time."""

    what: str
    time_ms: int
    later: bool
    """Whether it is of a later life than the ledger."""


class Seen(NamedTuple):
    """What was found before the ledger was read."""

    marks: list[Mark]
    heads: list[tuple[str, CheckpointHead]]
    """The heads of checkpoints, with their paths."""
    wal: str
    """A WAL object, if the ledger was empty and the store has one."""

    def check(self, cluster: ClusterState, streams: Sequence[StreamsState]) -> None:
        """Raise if a ledger is behind. The states have all of it."""
        for mark in self.marks:
            if cluster.cluster_id and mark.cluster and cluster.cluster_id != mark.cluster:
                raise LedgerWentBack(
                    f"the ledger is that of the cluster {cluster.cluster_id}, and the object store has marks of the "
                    f"cluster {mark.cluster}. {WHAT_TO_DO}"
                )
        for state in (cluster, *streams):
            for found in self.evidence(cluster, state):
                if found.time_ms > state.clock_ms or found.later:
                    raise LedgerWentBack(
                        f"the ledger has gone back: domain {state.domain} ends at {moment(state.clock_ms)}, and "
                        f"{found.what} says that it had come to {moment(found.time_ms)}. {WHAT_TO_DO}"
                    )
        if self.wal and not cluster.position and not any(state.position for state in streams):
            raise LedgerWentBack(f"the ledger is empty, and the object store has {self.wal}. {WHAT_TO_DO}")

    def evidence(self, cluster: ClusterState, state: State) -> list[Evidence]:
        """What marks and checkpoints say of a domain, without those whose loss was accepted."""
        found = []
        for mark in self.marks:
            end = mark.ends.get(state.domain)
            if end is not None and mark.life not in ["", *cluster.lives][:-1]:
                found.append(Evidence("a mark", end.time_ms, mark.life != cluster.life))
        for path, head in self.heads:
            if head.domain == state.domain and head.life not in ["", *state.lives][:-1]:
                found.append(Evidence(f"the checkpoint {path}", head.time_ms, head.life != state.life))
        return found


class Marks:
    """The places of a cluster's marks, and how this process uses them."""

    def __init__(self, ledger: Ledger, store: ObjectStore, *, serves: bool = False) -> None:
        """`serves`: this process is there for longer than one command."""
        self._serves = serves
        self._ledger = ledger
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
        """The process's own, by its epoch. In another's it could replace a newer mark by an older one."""
        self._noted: Mark | None = None
        """What this process has seen at its last look. It is written if nobody else has written as much since."""

    def __repr__(self) -> str:
        return f"<Marks of {self._place} in {len(self._files)} files>"

    # --- looking -------------------------------------------------------------------------------------

    async def look(self) -> Seen:
        """Everything that says how far the ledger has come.

        This comes before the ledger is read: what other processes append and mark meanwhile is then not missed.
        """
        found = read_files(file.path for file in self._files)
        if self._by_object:
            with contextlib.suppress(ObjectMissing):
                found += decode(await self._store.get(MARK_PATH))
        heads = [head for domain in DOMAINS async for head in self._heads(domain)]
        object_path = ""
        if not await self._ledger.last(CLUSTER):
            async for info in self._store.scan(WAL):
                object_path = info.path
                break
        return Seen(found, heads, object_path)

    async def _heads(self, domain: Domain) -> AsyncIterator[tuple[str, CheckpointHead]]:
        """The heads of a domain's newest checkpoints that can be read, with their paths."""
        paths = sorted([info.path async for info in self._store.scan(directory_of(domain))])
        for path in paths[-MAX_CHECKPOINTS:]:
            with contextlib.suppress(ObjectMissing, Damaged):
                head = head_of(await self._store.get(path, 0, HEADER_BYTES))
                if head.domain == domain:
                    yield path, head

    # --- writing -------------------------------------------------------------------------------------

    def start(
        self, background: Background, cluster: Replica[ClusterState], streams: Mapping[Domain, Replica[StreamsState]]
    ) -> None:
        """Write marks from now on."""
        self._slot = cluster.epoch
        if self._files:
            self._threads = Threads(1, "marks")

            async def files() -> None:
                while True:
                    await asyncio.sleep(FILE_SECONDS)
                    self._slot = cluster.epoch or self._slot
                    await self.note(self.mark(cluster, streams))

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
        """Write a last mark, if this process has written any or serves, and no more."""
        for duty in self._duties:
            await duty.stop()
        if self._duties and self._by_object and self._serves:
            with contextlib.suppress(Retriable, TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._store.put(MARK_PATH, [encode(self.mark(cluster, streams))])
        self._duties.clear()
        if self._threads is not None:
            await self._threads.run(self._write, self.mark(cluster, streams))
            await self._threads.close()
            self._threads = None
        for file in self._files:
            file.close()

    async def note(self, mark: Mark) -> None:
        """Write a mark, unless another process has written all that was there at the last look already."""
        before, self._noted = self._noted, mark
        if before is None or self._threads is None:
            return
        written = [found for found in read_files([self._files[0].path]) if found.life == mark.life]
        if not any(not found.is_behind(before) for found in written):
            await self._threads.run(self._write, mark)

    def _write(self, mark: Mark) -> None:
        for file in self._files:
            file.write(self._slot, mark)

    async def replace(self, mark: Mark) -> None:
        """Make a mark the only one, everywhere."""
        for file in self._files:
            file.replace(mark)
        if self._by_object:
            await self._store.put(MARK_PATH, [encode(mark)])

    def mark(self, cluster: Replica[ClusterState], streams: Mapping[Domain, Replica[StreamsState]]) -> Mark:
        """How far the ledger has come, as these replicas know."""
        number: int = getattr(self._ledger, "number", 0)
        replicas: list[Replica[ClusterState] | Replica[StreamsState]] = [cluster, *streams.values()]
        return Mark(
            cluster=cluster.state.cluster_id,
            place=self._place,
            life=cluster.state.life,
            ends={r.domain: End(r.state.clock_ms, r.state.position, r.crc) for r in replicas},
            epoch=cluster.state.next_epoch,
            producer=cluster.state.next_producer,
            number=number,
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
