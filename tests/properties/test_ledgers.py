"""Properties 11 to 13, 22, 24, 25 and 34: replicas on models of etcd and Oxia, while leaders change and networks fail.

etcd and Oxia elect leaders and replicate; their own tests prove that. Here is what Headwater makes of it: a record is
sent until it is committed, it counts once, and every process has the state of all records that were acknowledged.
`tests/conformance/test_etcd.py` and `tests/faults/test_oxia.py` kill leaders of the real stores.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from harness.loop import SimLoop
from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import StoreUnavailable
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.replica import Replica
from headwater.state.commands.streams import AppendWal, Chunk, CreateStreams, StreamConfig
from headwater.state.results import Appended
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch
from tests.simulation.backends import BACKENDS
from tests.simulation.stores import Faults, World
from tests.support.scribe import FIRST_CHUNK, START_MS, TOPIC

PROMISES = ("M6",)

ONE = Domain(1)
SEEDS = 100
STREAM = 1
WRITERS, APPENDS = 3, 4
BAD = Faults(
    append_lost=0.05, append_reply_lost=0.1, append_late=0.05, late_seconds=3.0, append_refused=0.05,
    read_refused=0.05, delay=0.05,
)  # fmt: skip


@dataclass
class Story:
    """What processes asked of one ledger, and what they were told."""

    told: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The epoch and number of the append whose records begin at an offset."""
    looks: int = 0
    commits: int = 0
    records: int = 0
    attempts: int = 0


async def _append(replica: Replica[StreamsState], epoch: int, number: int, story: Story) -> None:
    """Append an object of one batch, and try again while the store is away."""
    command = AppendWal(number, 400, START_MS, "z", [Chunk(STREAM, FIRST_CHUNK, [(50, 1 + number % 3, START_MS)], [])])
    while True:
        try:
            [result] = await replica.submit([command])
            break
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    assert isinstance(result, Appended), result
    first = result.chunks[0].first_offset
    assert first not in story.told, "an offset was given out twice"
    story.told[first] = epoch, number


async def _work(replica: Replica[StreamsState], epoch: int, rng: random.Random, story: Story) -> None:
    for number in range(1, APPENDS + 1):
        await _append(replica, epoch, number, story)
        await asyncio.sleep(rng.random() * 3)


async def _look(replica: Replica[StreamsState], rng: random.Random, story: Story) -> None:
    """13: after a barrier a process knows at least what anybody was told before it began."""
    while True:
        await asyncio.sleep(rng.random() * 2)
        known = max(story.told, default=-1)
        try:
            await replica.barrier()
        except StoreUnavailable:
            continue
        assert replica.state.streams[STREAM].next_offset > known
        story.looks += 1


async def _story(seed: int, backend: str) -> Story:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    rng, story, store = random.Random(seed), Story(), MemoryStore()
    world = World(loop, rng, Faults(delay=0.01))
    BACKENDS[backend](world)
    replicas = [
        Replica(world.open_ledger(SeededChance(i)), store, StreamsState(ONE), VirtualClock(), SeededChance(i))
        for i in range(WRITERS + 1)
    ]
    for epoch, replica in enumerate(replicas, 1):
        await replica.start()
        replica.join(Epoch(epoch))
    await replicas[0].submit([CreateStreams(TOPIC, 0, (STREAM,), StreamConfig(False))])
    for replica in replicas:
        await replica.barrier()
    world.faults = BAD
    if rng.random() < 0.5:
        world.outage_until = loop.now + rng.random() * 5  # nobody leads for a while
    looking = asyncio.create_task(_look(replicas[-1], rng, story))
    await asyncio.gather(*(_work(r, epoch, rng, story) for epoch, r in enumerate(replicas[:WRITERS], 1)))
    world.faults = Faults(delay=0.01)
    await asyncio.sleep(2 * BAD.late_seconds)
    assert not looking.done(), looking
    looking.cancel()
    if rng.random() < 0.3:
        await write_checkpoint(world.verdict_ledger, store, StreamsState(ONE))
    late = Replica(world.verdict_ledger, store, StreamsState(ONE), VirtualClock(), SeededChance(9))
    await late.start()
    for replica in replicas:
        await replica.barrier()
        assert replica.state.image() == late.state.image()
    _check(late.state, story)
    story.commits = sum(replica.commits for replica in replicas)
    story.attempts = sum(replica.attempts for replica in replicas)
    story.records = replicas[-1].records_applied
    for replica in (*replicas, late):
        await replica.close()
    return story


def _check(state: StreamsState, story: Story) -> None:
    """Everything that was acknowledged is in the index, once, where its writer was told."""
    entries = list(state.streams[STREAM].index)
    assert {entry.start: (entry.object.epoch, entry.object.sequence) for entry in entries} == story.told
    assert len(story.told) == WRITERS * APPENDS
    assert state.streams[STREAM].next_offset == sum(1 + number % 3 for _, number in story.told.values())


@pytest.mark.parametrize("backend", ["etcd", "oxia"])
def test_leaders_change_and_nothing_is_lost(backend: str) -> None:
    """11 to 13, 22, 24, 25: commits go on with the next leader, count once, and are the same for every process.

    34: a record of the ledger was an attempt of a process, and each that its writer heard of is counted as a commit.
    """
    stories = [run(_story(seed, backend)) for seed in range(SEEDS)]
    assert sum(story.looks for story in stories) > SEEDS
    assert any(story.attempts > story.commits for story in stories), "no append had to be repeated"
    for story in stories:
        assert story.commits <= story.records <= story.attempts
        assert story.records > WRITERS * APPENDS, "one record for each append, and one for the stream"
