"""One object holds ledger, store, replicas and membership, for every kind of process."""

import asyncio
from pathlib import Path

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.app.session import ledger_session
from headwater.errors import EpochLost, Halted
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.domains import Domains, new_state
from headwater.settings.settings import Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Tick
from headwater.state.records import FORMAT
from headwater.state.results import Done
from headwater.state.streams.state import StreamsState
from headwater.types import CLUSTER, STREAM_DOMAINS, Domain, Position
from tests.support.checkpoints import of_format
from tests.support.promise import promise

ONE = Domain(1)


def test_the_life_of_a_process() -> None:
    async def story() -> None:
        domains = Domains(MemoryLedger(), MemoryStore(), VirtualClock(), SeededChance(), zone="a")
        assert dict(domains) == {ONE: domains[ONE]} and len(domains) == len(STREAM_DOMAINS)
        await domains.follow()
        with pytest.raises(EpochLost):
            await domains[ONE].submit([Tick()])
        await domains.join()
        assert isinstance((await domains[ONE].submit([Tick()]))[0], Done)
        [member] = domains.cluster.state.processes.values()
        assert (member.epoch, member.zone) == (domains.membership.epoch, "a")
        running = {report.name for report in domains.background.reports()}
        assert running == {"follow-0", "append-0", "follow-1", "append-1", "beats", "membership", "marks-objects"}
        await domains.close()
        assert domains.background.reports() == []
        await domains.close()

    run(story())


@promise("M5")
@pytest.mark.parametrize("settled", [False, True], ids=["records", "a checkpoint"])
def test_another_format_is_refused_before_anything_is_written(settled: bool) -> None:
    """In a ledger that several machines share, whose records and checkpoints alone say which format it has."""

    async def kept(ledger: MemoryLedger) -> list[object]:
        found = [(await ledger.last(domain), await ledger.pointer(domain)) for domain in (CLUSTER, ONE)]
        return [*found, await ledger.beats()]

    async def story() -> None:
        ledger, store = MemoryLedger(), MemoryStore()
        writer = Domains(ledger, store, VirtualClock(), SeededChance())
        await writer.follow()
        await writer.join()
        await writer.close()
        if settled:
            assert await write_checkpoint(ledger, store, ClusterState())
            [path] = store.objects
            store.objects[path] = of_format(store.objects[path], FORMAT - 1)
        else:
            records = [entry.data for entry in await ledger.read(CLUSTER, Position(0), 1_000)]
            ledger = MemoryLedger()
            for record in records:
                await ledger.append(CLUSTER, bytes([FORMAT - 1]) + record[1:])
        before, objects = await kept(ledger), dict(store.objects)
        reader = Domains(ledger, store, VirtualClock(), SeededChance())
        with pytest.raises(Halted, match=f"has format {FORMAT - 1}, .* reads format {FORMAT} only"):
            await reader.follow()
            await reader.join()
        await reader.close()
        assert await kept(ledger) == before and store.objects == objects

    run(story())


def test_states() -> None:
    assert isinstance(new_state(CLUSTER), ClusterState)
    state = new_state(ONE)
    assert isinstance(state, StreamsState) and state.domain == ONE


@promise("M1")
def test_a_command_whose_replica_halts_ends(tmp_path: Path) -> None:
    """It would wait for ever for what the replica no longer brings."""

    async def story() -> None:
        async with ledger_session(Settings(data=str(tmp_path)), create=True) as session:
            await session.domains.ledger.append(ONE, b"\x94\x01\x02\x03\x91\x92\xa7unknown\x01")
            await asyncio.Event().wait()

    with pytest.raises(Halted, match="has format 148"):
        asyncio.run(story())
