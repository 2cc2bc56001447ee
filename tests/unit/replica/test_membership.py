"""A process's life in the cluster: joining, beats, fencing the silent, leaving."""

import asyncio

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.membership import (
    CONTACT_SECONDS,
    SESSION_SECONDS,
    SUSPECT_SECONDS,
    TICK_SECONDS,
    Membership,
)
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import NO_NODE
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch
from tests.support.faulty import FaultyLedger
from tests.support.promise import promise

PROMISES = ("M2",)

ONE = Domain(1)
LISTENERS = (Listener("PLAINTEXT", "localhost", 9092),)


class Process:
    """One process with its replicas."""

    def __init__(self, ledger: MemoryLedger, store: MemoryStore, node: int, seed: int, **given: float) -> None:
        self.way = FaultyLedger(ledger)
        clock, chance = VirtualClock(), SeededChance(seed)
        self.cluster = Replica(self.way, store, ClusterState(), clock, chance)
        self.domain = Replica(self.way, store, StreamsState(ONE), clock, chance)
        self.membership = Membership(
            self.way, self.cluster, {ONE: self.domain}, clock, chance, node=node, zone="z", listeners=LISTENERS, **given
        )
        self.epochs: list[int] = []
        self.membership.on_epoch = self.epochs.append

    async def start(self) -> None:
        await self.cluster.start()
        await self.domain.start()
        await self.membership.join()
        self.membership.start()

    def members(self) -> list[int]:
        return sorted(m.node for m in self.cluster.state.processes.values())


class World:
    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.store = MemoryStore()
        self.count = 0

    async def process(self, node: int, **given: float) -> Process:
        self.count += 1
        made = Process(self.ledger, self.store, node, self.count, **given)
        await made.start()
        return made

    async def beating(self) -> set[str]:
        return {beat.process for beat in await self.ledger.beats()}


@promise("M2")
def test_joining() -> None:
    """A process has one epoch in every domain, and is told of it."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        for i, process in enumerate((one, two), 1):
            assert process.epochs == [i]
            assert process.membership.epoch == process.cluster.epoch == process.domain.epoch == i
            assert process.membership.in_contact
        await one.cluster.barrier()
        assert one.members() == two.members() == [1, 2]
        member = one.cluster.state.processes[2]
        assert (member.zone, member.listeners) == ("z", LISTENERS)
        assert await world.beating() == {one.membership.process, two.membership.process}

    run(told())


@promise("M2")
def test_who_beats_is_not_fenced() -> None:
    """For as long as it lives; and the domains' time moves on while nothing else happens."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        before = one.domain.state.clock_ms
        await asyncio.sleep(TICK_SECONDS * 4)
        assert one.members() == two.members() == [1, 2]
        assert (one.epochs, two.epochs) == ([1], [2])
        assert one.domain.state.clock_ms >= before + TICK_SECONDS * 2000
        assert one.cluster.state.clock_ms >= before + TICK_SECONDS * 2000

    run(told())


@promise("M6")
def test_who_beats_and_hangs_otherwise_is_not_fenced() -> None:
    """A store that comes back answers some requests later than others, and only beats tell who is alive."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        appends = two.way.appends
        two.way.gate.clear()
        await asyncio.sleep(TICK_SECONDS + SESSION_SECONDS * 3)
        assert two.way.appends > appends, "it waits for an append"
        two.way.gate.set()
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.members() == two.members() == [1, 2]
        assert (one.epochs, two.epochs) == ([1], [2])

    run(told())


@promise("M2")
def test_who_is_silent_is_fenced_everywhere() -> None:
    """Within a few seconds, in every domain, and its sign of life is removed."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        two.way.error = StoreUnavailable("cut off")
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.members() == [1]
        assert one.cluster.state.is_fenced(2)
        assert one.domain.state.is_fenced(2)
        assert await world.beating() == {one.membership.process}
        assert two.membership.epoch == 2, "it does not know yet"
        await asyncio.sleep(CONTACT_SECONDS)
        assert not two.membership.in_contact, "but does not trust what it knows"
        two.way.error = None
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert two.epochs == [2, 3]
        assert one.members() == two.members() == [1, 2]
        assert two.membership.in_contact

    run(told())


@promise("M2")
def test_who_is_certainly_gone_is_fenced_before_its_session_ends() -> None:
    """Silence makes a suspect, and one look then says enough; a suspect that is there has all its time."""

    async def told() -> None:
        world = World()
        one, two, three = [await world.process(node) for node in (1, 2, 3)]
        looked_for = []

        async def gone(member: Process) -> bool:
            looked_for.append(member.node)
            return member.node == 2

        one.membership.gone = gone
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.members() == [1, 2, 3] and not looked_for, "nobody looks for those who beat"
        two.way.error = three.way.error = StoreUnavailable("cut off")
        await asyncio.sleep((SUSPECT_SECONDS + SESSION_SECONDS) / 2)
        assert one.members() == [1, 3]
        assert one.domain.state.is_fenced(2)
        assert {2, 3} == set(looked_for)
        await asyncio.sleep(SESSION_SECONDS)
        assert one.members() == [1]

    run(told())


@promise("M2")
def test_who_is_said_to_be_gone_and_lives_comes_back() -> None:
    """No safety rests on the look: a wrong answer costs an epoch."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)

        async def gone(member: Process) -> bool:
            return True

        one.membership.gone = gone
        two.way.error = StoreUnavailable("cut off")
        await asyncio.sleep(SESSION_SECONDS)
        assert one.members() == [1]
        two.way.error = None
        await asyncio.sleep(SESSION_SECONDS)
        assert one.members() == two.members() == [1, 2]
        assert two.epochs == [2, 3]

    run(told())


@promise("M2")
@pytest.mark.parametrize("seconds", [1.0, 3.0, 9.0])
def test_the_length_of_a_session_is_a_setting(seconds: float) -> None:
    """A process that beats keeps its epoch, one that does not loses it when its session is over."""

    async def told() -> None:
        world = World()
        one, two = [await world.process(node, session_seconds=seconds) for node in (1, 2)]
        await asyncio.sleep(30)
        assert one.members() == [1, 2] and one.epochs == [1]
        two.way.error = StoreUnavailable("cut off")
        await asyncio.sleep(seconds * 0.7)
        assert one.members() == [1, 2]
        await asyncio.sleep(seconds * 0.8)
        assert one.members() == [1]

    run(told())


@promise("M2")
def test_who_was_away_itself_fences_nobody() -> None:
    """A process that did not look cannot say that others were silent."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        await asyncio.sleep(1)
        one.way.error = two.way.error = StoreUnavailable("both cut off")
        await asyncio.sleep(SESSION_SECONDS * 3)
        one.way.error = two.way.error = None
        await asyncio.sleep(SESSION_SECONDS * 3)
        assert one.members() == two.members() == [1, 2]
        assert (one.epochs, two.epochs) == ([1], [2])

    run(told())


@promise("M2")
def test_who_is_paused_within_a_look_fences_nobody() -> None:
    """A process that is stopped between its question and the answer has not looked for all that time."""

    async def told() -> None:
        world = World()
        one, two, three = [await world.process(node) for node in (1, 2, 3)]
        for seconds in (SESSION_SECONDS * 0.9, SESSION_SECONDS * 1.1, SESSION_SECONDS * 2):
            one.way.pause = seconds
            await asyncio.sleep(SESSION_SECONDS * 4)
        assert one.members() == two.members() == [1, 2, 3]
        assert (one.epochs, two.epochs, three.epochs) == ([1], [2], [3])

    run(told())


@promise("M2")
def test_who_cannot_beat_itself_fences_nobody() -> None:
    """A ledger that takes no beats makes everybody silent. Who dies meanwhile is fenced afterwards."""

    async def told() -> None:
        world = World()
        one, two, three = [await world.process(node) for node in (1, 2, 3)]
        await asyncio.sleep(1)
        for process in (one, two, three):
            process.way.mute = True
        await asyncio.sleep(SESSION_SECONDS * 3)
        assert one.members() == two.members() == [1, 2, 3]
        one.way.mute = two.way.mute = False
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.members() == two.members() == [1, 2]
        assert (one.epochs, two.epochs) == ([1], [2])

    run(told())


@promise("M2", "M6")
def test_who_died_while_nobody_could_look_is_found_at_once() -> None:
    """After an outage of the ledger silence says nothing yet, but a look for those who were silent does."""

    async def told() -> None:
        world = World()
        one, two, three = [await world.process(node) for node in (1, 2, 3)]

        async def gone(member: Process) -> bool:
            return member.node == 2

        one.membership.gone = gone
        await asyncio.sleep(1)
        for process in (one, two, three):
            process.way.error = StoreUnavailable("cut off")
        await asyncio.sleep(SESSION_SECONDS * 3)
        one.way.error = three.way.error = None
        await asyncio.sleep(SESSION_SECONDS / 2)
        assert one.members() == [1, 3]
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.epochs == [1] and three.epochs == [3]

    run(told())


@promise("M2", "L3")
def test_a_fence_that_got_half_way_is_carried_on() -> None:
    """Whoever fenced in domain 0 may have died before the other domains; others see to it."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        two.way.error = StoreUnavailable("cut off")
        await one.cluster.submit([Fence(Epoch(2))])
        assert not one.domain.state.is_fenced(2)
        await world.process(3)
        await one.domain.barrier()
        assert one.domain.state.is_fenced(2), "by who joins"
        await one.cluster.submit([Fence(Epoch(3))])
        await asyncio.sleep(TICK_SECONDS * 2)
        assert one.domain.state.is_fenced(3), "or in time, by who is there"

    run(told())


@promise("M2")
def test_the_same_node_again() -> None:
    """A restarted broker drives out its older life, in every domain, before it does anything."""

    async def told() -> None:
        world = World()
        first = await world.process(1)
        lost = []
        first.membership.on_epoch = lost.append
        second = await world.process(1)
        assert second.domain.state.is_fenced(1)
        assert second.epochs == [2]
        await asyncio.sleep(0.1)
        assert not first.membership.in_contact or first.membership.epoch != 1

    run(told())


@promise("M2")
def test_processes_without_a_node() -> None:
    """A compactor serves no clients and drives nobody out."""

    async def told() -> None:
        world = World()
        one, two = await world.process(NO_NODE), await world.process(NO_NODE)
        await asyncio.sleep(SESSION_SECONDS * 2)
        assert one.members() == two.members() == [NO_NODE, NO_NODE]

    run(told())


@promise("M5")
def test_leaving() -> None:
    """Clients are sent elsewhere at once; nobody has to wait for a session to run out."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        await two.membership.leave()
        await one.cluster.barrier()
        await one.domain.barrier()
        assert one.members() == [1]
        assert one.domain.state.is_fenced(2)
        assert await world.beating() == {one.membership.process}
        assert two.membership.epoch == 0
        await two.membership.leave()
        assert two.epochs == [2]

    run(told())


@promise("M5")
def test_leaving_while_the_epoch_is_lost() -> None:
    """A fence in the very moment of leaving does not keep the process from ending."""

    async def told() -> None:
        world = World()
        one = await world.process(1)
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_soon(one.membership._lost.set)
        leaving = asyncio.create_task(one.membership.leave())
        await asyncio.sleep(0.01)
        assert leaving.done()

    run(told())


@promise("M2")
@pytest.mark.parametrize("lands", [True, False])
def test_joining_over_a_bad_way(lands: bool) -> None:
    """An epoch whose reply was lost is not taken twice."""

    async def told() -> None:
        world = World()
        one = await world.process(1)
        two = Process(world.ledger, world.store, 2, 9)
        two.way.faults = [(lands, OutcomeUnknown("lost"))] * 3
        await two.start()
        await one.cluster.barrier()
        assert one.members() == [1, 2]
        assert two.epochs == [2]

    run(told())


@promise("M6")
def test_joining_waits_for_the_store() -> None:
    async def told() -> None:
        world = World()
        late = Process(world.ledger, world.store, 1, 1)
        await late.cluster.start()
        await late.domain.start()
        late.way.error = StoreUnavailable("away")
        joining = asyncio.create_task(late.membership.join())
        await asyncio.sleep(20)
        assert not joining.done()
        assert not late.membership.in_contact
        late.way.error = None
        await joining
        assert late.epochs == [1]

    run(told())


@promise("M2")
def test_stray_beats_are_forgotten() -> None:
    """Signs of life of processes that are no members do not pile up."""

    async def told() -> None:
        world = World()
        await world.ledger.beat("7/ghost")
        one = await world.process(1)
        await asyncio.sleep(SESSION_SECONDS)
        assert await world.beating() == {one.membership.process}

    run(told())
