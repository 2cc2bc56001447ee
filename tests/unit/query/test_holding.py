"""What a process keeps for its queries: when holds are taken, moved and lost, and what that costs."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.virtual import run
from headwater.app.node import Node
from headwater.errors import BadInput, EpochLost, NotReady
from headwater.query import holding as holding_module
from headwater.query.holding import RENEW_SECONDS, Holding
from headwater.replica.membership import TICK_SECONDS
from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.tables import Merge, NewFile, SegmentRun, Settle
from headwater.state.results import Done
from headwater.state.streams.domain import COMPACTION, HOLDS_LEVEL
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.holds import Hold
from tests.support.batches import batch
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, NodeWorld, sent, topic

PROMISES = ("Q2",)

ROOT = "tables/t"


class Process:
    """A process with holds, and a compactor by hand. Whatever it settles is one record."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.domains = node.domains
        self.replica = node.domains[ONE]
        self.holding = Holding(node.domains)
        self.topic = uuid.UUID(int=0)
        self.stream = self.end = self.files = self.lease = 0

    @classmethod
    async def made(cls, **settings: Any) -> "Process":
        self = cls(await NodeWorld().node(**settings))
        made = await topic(self.node)
        self.topic, self.stream = made.id, made.streams[0]
        [result] = await self.replica.submit([TakeLease(COMPACTION, 1 << 40)])
        assert isinstance(result, Done)
        self.lease = result.value
        return self

    @property
    def state(self) -> StreamsState:
        return self.replica.state

    @property
    def hold(self) -> Hold | None:
        return self.state.held.get(self.replica.epoch)

    @property
    def since(self) -> int:
        assert self.hold is not None
        return self.hold.since_ms

    def file(self, rows: int) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}", 10, rows, 1, 0, 0, 0, 99, 1, 9, 0, 7)

    async def settle(self) -> None:
        """One record more, which is settled: its WAL object is dead."""
        await asyncio.sleep(0.01)
        await sent(self.node, self.stream, batch([b"a"]))
        run = SegmentRun(self.stream, self.end, self.end + 1, 0, 0, 1)
        self.end += 1
        [result] = await self.replica.submit([Settle(self.lease, self.topic, ROOT, [self.file(1)], [run])])
        assert isinstance(result, Done), result

    async def merge(self) -> None:
        """All files become one."""
        await asyncio.sleep(0.01)
        gone = [file.number for file in self.state.tables[self.topic].live()]
        run = SegmentRun(self.stream, 0, self.end, 0, 0, 1)
        [result] = await self.replica.submit([Merge(self.lease, self.topic, gone, [self.file(self.end)], [run])])
        assert isinstance(result, Done), result

    async def renew(self) -> None:
        """Renew the hold after some time of the ledger."""
        await asyncio.sleep(1)
        await self.replica.submit([Tick()])
        await self.holding.renew()

    def ripe(self) -> list[int]:
        return [file.number for file in self.state.ripe(self.state.tables[self.topic])]


def play(story: Callable[[Process], Awaitable[None]]) -> None:
    async def whole() -> None:
        process = await Process.made()
        await story(process)
        await process.holding.close()
        await process.node.stop()

    run(whole())


@promise("Q2")
def test_a_query_keeps_what_it_reads() -> None:
    """What is removed while it runs stays, what is removed before and what is left when it ended goes."""

    async def story(process: Process) -> None:
        for _ in range(2):
            await process.settle()
        async with process.holding.query() as held:
            assert not held.lost and len(process.holding) == 1
            await process.merge()
            for _ in range(3):
                await process.renew()
            assert process.ripe() == []
        assert len(process.holding) == 0 and process.ripe() == []
        await process.renew()
        assert process.ripe() == [1, 2]

    play(story)


@promise("Q2")
def test_a_query_about_the_present_costs_no_append() -> None:
    """The first one takes the hold; the others find it, and idle renewals append nothing."""

    async def story(process: Process) -> None:
        await process.settle()
        async with process.holding.query():
            pass
        before = process.state.position
        for _ in range(50):
            async with process.holding.query():
                await process.holding.renew()
        await process.holding.renew()
        assert process.state.position == before
        assert process.holding.renewals == 0

    play(story)


@promise("Q2")
def test_a_hold_moves_only_if_something_waits() -> None:
    """Once for what was removed, however often it is renewed, and up to the oldest query at most."""

    async def story(process: Process) -> None:
        old = await process.holding.begin()
        first = old.begun[ONE][1]
        await process.settle()
        await process.renew()
        young = await process.holding.begin()
        await process.settle()
        await process.holding.renew()
        assert process.since == first and process.holding.renewals == 0
        old.release()
        old.release()
        await process.holding.renew()
        assert process.since == young.begun[ONE][1] > first
        await process.holding.renew()
        assert process.holding.renewals == 1
        young.release()
        for _ in range(3):
            await process.renew()
        assert process.holding.renewals == 2
        assert not process.state.removed_between(process.since, process.state.clock_ms)

    play(story)


@promise("Q2")
def test_the_duty_renews() -> None:
    """Within ten seconds after the ledger's time has moved, without a call."""

    async def story(process: Process) -> None:
        await process.settle()
        process.holding.start()
        held = await process.holding.begin()
        await process.settle()
        await process.merge()
        await asyncio.sleep(RENEW_SECONDS + 1)
        assert process.ripe() == []
        held.release()
        await asyncio.sleep(TICK_SECONDS + RENEW_SECONDS + 1)
        assert process.ripe() == [1, 2]

    play(story)


@promise("Q2")
def test_many_queries_take_one_hold() -> None:
    """They begin at once, and one command is enough for all."""

    async def story(process: Process) -> None:
        before = process.state.position
        held = await asyncio.gather(*(process.holding.begin() for _ in range(20)))
        assert process.state.position == before + 1
        assert {one.begun[ONE][0] for one in held} == {process.replica.epoch}

    play(story)


@promise("M5", "Q2")
def test_below_its_level_nothing_is_held() -> None:
    """Queries run all the same, and know that nothing keeps what they read."""

    async def story(process: Process) -> None:
        await process.settle()
        await process.settle()
        process.state.level = HOLDS_LEVEL - 1
        async with process.holding.query() as held:
            assert held.lost
            await held.pin(process.topic, 1)
            await process.merge()
            assert process.ripe() == [1, 2]
        await process.holding.renew()
        process.state.level = HOLDS_LEVEL
        async with process.holding.query() as held:
            assert not held.lost

    play(story)


@promise("Q2", "M1")
def test_a_new_epoch_has_a_new_hold() -> None:
    """The fence ends the hold; what ran under it is lost, and does not hold the new one back."""

    async def story(process: Process) -> None:
        await process.settle()
        old = await process.holding.begin()
        epoch = process.replica.epoch
        await process.replica.submit([Fence(epoch)])
        assert old.lost
        with pytest.raises(EpochLost):
            await process.holding.begin()
        while process.replica.epoch in (0, epoch):
            await asyncio.sleep(0.1)
        assert old.lost
        [taken] = await process.replica.submit([TakeLease(COMPACTION, 1 << 40)])
        assert isinstance(taken, Done)
        process.lease = taken.value
        young = await process.holding.begin()
        await process.settle()
        with pytest.raises(NotReady, match="lost its hold"):
            await old.pin(process.topic, 1)
        await process.holding.renew()
        assert process.since == young.begun[ONE][1]
        young.release()
        old.release()
        assert len(process.holding) == 0

    play(story)


@promise("Q2")
def test_versions_are_counted() -> None:
    """Two queries may pin the same version; it goes with the second. The newest one costs nothing."""

    async def story(process: Process) -> None:
        for _ in range(2):
            await process.settle()
        one, two = await process.holding.begin(), await process.holding.begin()
        before = process.state.position
        await one.pin(process.topic, 2)
        assert process.state.position == before
        await one.pin(process.topic, 1)
        await two.pin(process.topic, 1)
        assert process.state.position == before + 1
        await process.merge()
        one.release()
        await process.holding.renew()
        assert process.hold is not None and list(process.hold.versions) == [(process.topic, 1)]
        two.release()
        await process.renew()
        assert process.hold.versions == {} and process.ripe() == [1, 2]
        three = await process.holding.begin()
        with pytest.raises(BadInput, match="version 1 has expired"):
            await three.pin(process.topic, 1)
        with pytest.raises(BadInput, match="there is no version 9"):
            await three.pin(process.topic, 9)
        with pytest.raises(BadInput, match="there is no topic"):
            await three.pin(uuid.UUID(int=1), 1)
        three.release()
        await three.pin(process.topic, 1)
        assert process.hold.versions == {}

    play(story)


@promise("Q2")
def test_a_pin_that_is_cancelled_is_released() -> None:
    """Its command may take effect; the next renewal lets the version go."""

    async def story(process: Process) -> None:
        for _ in range(2):
            await process.settle()
        held = await process.holding.begin()
        pinning = asyncio.ensure_future(held.pin(process.topic, 1))
        await asyncio.sleep(0)
        pinning.cancel()
        held.release()
        await asyncio.sleep(1)
        await process.holding.renew()
        assert process.hold is not None and process.hold.versions == {}
        held = await process.holding.begin()
        pinning = asyncio.ensure_future(held.pin(process.topic, 1))
        await asyncio.sleep(0)
        held.release()
        await pinning
        await process.holding.renew()
        assert process.hold.versions == {}

    play(story)


def test_the_number_of_queries_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding_module, "MAX_QUERIES", 1)

    async def story(process: Process) -> None:
        held = await process.holding.begin()
        with pytest.raises(NotReady, match="1 queries run"):
            await process.holding.begin()
        held.release()
        (await process.holding.begin()).release()

    play(story)
