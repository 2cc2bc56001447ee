"""A ledger that has gone back is refused before anything is written, unless its loss was accepted."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.clock import SystemClock
from headwater.errors import LedgerWentBack
from headwater.ledger.marks import decode, read_files
from headwater.ledger.memory import MemoryLedger
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.objects.local import LocalStore
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.domains import Domains, new_state
from headwater.replica.marking import MARK_PATH, OBJECT_SECONDS
from headwater.state.commands.base import Accept, TakeLease, Tick
from headwater.state.commands.cluster import AllocateProducers
from headwater.state.results import Done, Refused
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.types import DOMAINS, Domain
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
LIFE = "ab" * 16


class World:
    """A ledger that may be put back, and a store that stays."""

    def __init__(self, seed: int = 0) -> None:
        self.ledger = MemoryLedger()
        self.store = MemoryStore()
        self._chances = seed

    def domains(self) -> Domains:
        self._chances += 1
        return Domains(self.ledger, self.store, VirtualClock(), SeededChance(self._chances))

    async def joined(self) -> Domains:
        domains = self.domains()
        await domains.follow()
        await domains.join()
        return domains

    async def work(self, domains: Domains) -> None:
        """Let a minute pass in which a mark is written."""
        for replica in (domains.cluster, domains[ONE]):
            await replica.submit([TakeLease(HOUSEKEEPING, 600_000)])
        await asyncio.sleep(OBJECT_SECONDS + 1)
        for replica in (domains.cluster, domains[ONE]):
            await replica.submit([Tick()])

    def copied(self) -> MemoryLedger:
        """The ledger as it is now, without its waiters."""
        made = MemoryLedger()
        made._logs = {
            domain: dataclasses.replace(log, records=list(log.records), waiters=[])
            for domain, log in self.ledger._logs.items()
        }
        return made


@promise("M1")
@pytest.mark.parametrize("by", ["mark", "checkpoint"])
def test_a_ledger_that_went_back(by: str) -> None:
    """By a mark, or by a checkpoint; nothing is written, and the way out is named."""

    async def story() -> None:
        world = World()
        first = await world.joined()
        older = world.copied()
        await world.work(first)
        await world.work(first)
        if by == "checkpoint":
            await write_checkpoint(world.ledger, world.store, new_state(ONE))
        await first.close()
        if by == "checkpoint":
            await world.store.delete(MARK_PATH)
        again = await world.joined()
        await again.close()
        world.ledger = older
        before = dict(world.store.objects)
        late = world.domains()
        with pytest.raises(LedgerWentBack, match="headwater metadata accept"):
            await late.follow()
        await late.close()
        assert world.store.objects == before and await older.beats() == await world.ledger.beats()

    run(story())


@promise("M1")
def test_processes_that_end_together(tmp_path: Path) -> None:
    """Each has a slot of its own, however short its life: the last mark is not replaced by an older one."""

    async def story() -> dict[int, int]:
        everybody = []
        for number in range(3):
            ledger, store = SqliteLedger(tmp_path / "ledger.db"), LocalStore(tmp_path / "objects")
            everybody.append(Domains(ledger, store, SystemClock(), SeededChance(number)))
            await everybody[-1].follow()
            await everybody[-1].join()
        for domains in everybody:
            await domains.close()
        ledger = SqliteLedger(tmp_path / "ledger.db")
        found = {domain: await ledger.last(domain) for domain in DOMAINS}
        await ledger.close()
        return found

    ends = asyncio.run(story())
    for path in (tmp_path / "ledger.db-mark", tmp_path / "objects" / MARK_PATH):
        marks = read_files([path])
        assert len(marks) == 3
        assert {domain: max(mark.ends[domain].position for mark in marks) for domain in DOMAINS} == ends


@promise("M1")
def test_an_empty_ledger_beside_a_full_store() -> None:
    async def story() -> None:
        world = World()
        await world.store.put("wal/v1/zone=a/domain=1/x.wo", [b"x"])
        with pytest.raises(LedgerWentBack, match="is empty"):
            await world.domains().follow()

    run(story())


@promise("M1")
def test_the_mark_of_another_cluster() -> None:
    async def story() -> None:
        one, two = World(), World(seed=100)
        for world in (one, two):
            domains = await world.joined()
            await world.work(domains)
            await domains.close()
        two.store = one.store
        with pytest.raises(LedgerWentBack, match="cluster"):
            await two.domains().follow()

    run(story())


@promise("M1", "M2")
def test_a_loss_that_is_accepted() -> None:
    """Marks and checkpoints of the lost end count no more; that of the ledger before the loss does not come back."""

    async def story() -> None:
        world = World()
        first = await world.joined()
        older = world.copied()
        await world.work(first)
        await write_checkpoint(world.ledger, world.store, new_state(ONE))
        await world.work(first)
        await first.close()
        world.ledger = older
        accepting = world.domains()
        await accepting.follow(accepting=True)
        command = Accept(LIFE, 50, 5_000, 100)
        for replica in (accepting[ONE], accepting.cluster):
            assert await replica.submit([command, command]) == [Done(), Done()], "a second one changes nothing"
        await accepting.close()
        kept = world.copied()
        late = await world.joined()
        assert late.membership.epoch == 50
        assert all(late[ONE].state.is_fenced(epoch) and late.cluster.state.is_fenced(epoch) for epoch in range(1, 50))
        assert await late.cluster.submit([AllocateProducers(1)]) == [Done(5_000)]
        assert late[ONE].state.last_file == 100
        await world.work(late)
        [mark] = decode(world.store.objects[MARK_PATH])
        assert mark.life == LIFE
        await late.close()
        world.ledger = kept
        with pytest.raises(LedgerWentBack):
            await world.domains().follow()

    run(story())


@promise("M1")
def test_a_ledger_that_goes_back_under_a_process() -> None:
    """It halts at its next look: nothing is answered from what is gone."""

    async def story() -> None:
        world = World()
        domains = await world.joined()
        last = world.ledger.last

        async def behind(domain: Domain) -> int:
            return await last(domain) - 1

        world.ledger.last = behind  # type: ignore[method-assign, assignment]
        with pytest.raises(LedgerWentBack, match="while this process ran"):
            await domains.cluster.barrier()

    run(story())


@promise("M1")
def test_commands_that_make_no_sense_are_refused() -> None:
    async def story() -> None:
        domains = await World().joined()
        for command in (Accept("", 1, 1, 0), Accept(LIFE, 0, 1, 0), Accept(LIFE, 1, 0, 0), Accept(LIFE, 1, 1, -1)):
            [result] = await domains.cluster.submit([command])
            assert isinstance(result, Refused)
        assert domains.cluster.state.lives == []
        await domains.close()

    run(story())
