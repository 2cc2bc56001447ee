"""The etcd ledger over a model of etcd: one order for everybody, whatever the network does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from harness.loop import SimLoop
from harness.virtual import SeededChance, run
from headwater.errors import Halted, OutcomeUnknown, Retriable, StoreFull, StoreUnavailable, Truncated
from headwater.ledger.contract import Entry
from headwater.ledger.etcd.client import Compacted, Found, Get, Pair, Put, Transacted
from headwater.ledger.etcd.layout import Feed, Keys, Pages, Sizes, pack
from headwater.ledger.etcd.ledger import EtcdLedger
from headwater.types import Domain, Position
from tests.simulation.backends import SMALL
from tests.simulation.etcd_model import Direct, EtcdModel, ModelClient, SimNetwork
from tests.simulation.stores import Faults, World
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
START = Position(0)
BAD = Faults(
    append_lost=0.1, append_reply_lost=0.1, append_late=0.1, late_seconds=3.0, append_refused=0.05, read_refused=0.1,
    delay=0.01,
)  # fmt: skip


class Cluster:
    """A model that remembers every record, and processes that reach it over a bad network."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.rng = random.Random(seed)
        self.world = World(loop, self.rng, BAD)
        self.model = EtcdModel()
        self.truth: list[Entry] = []
        keys = Keys("x", ONE)
        self.model.subscribe(keys.records, keys.records_end, 0, self._remember)
        self.truncated = 0
        self.told: dict[int, bytes] = {}
        self._handles = 0

    def _remember(self, pairs: Sequence[Pair]) -> None:
        self.truth += [Entry(Position(pair.created), pair.value) for pair in pairs]

    def open(self) -> EtcdLedger:
        self._handles += 1
        client = ModelClient(self.model, SimNetwork(self.world))
        return EtcdLedger(client, "x", SeededChance(self._handles), sizes=SMALL)

    async def write(self, name: int, count: int) -> None:
        ledger = self.open()
        for number in range(count):
            data = b"%d %d" % (name, number)
            while True:
                try:
                    position = await ledger.append(ONE, data)
                    break
                except Retriable:
                    await asyncio.sleep(0.05)
            assert position not in self.told
            self.told[position] = data
            await asyncio.sleep(self.rng.random() * 0.02)
        await ledger.close()

    async def follow(self, seen: list[Entry]) -> None:
        """Watch and read for ever. After a truncation one goes on where a checkpoint would be."""
        ledger, after = self.open(), START
        while True:
            try:
                reach = await ledger.watch(ONE, after)
                assert reach > after
                for entry in await ledger.read(ONE, after, self.rng.choice([1, 4, 50])):
                    seen.append(entry)
                    after = entry.position
            except Truncated:
                after = Position(self.truncated)
            except Retriable:
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.rng.choice([0, 0, 0.3]))

    async def disturb(self) -> None:
        """History goes and the ledger is cut short, again and again."""
        ledger = self.open()
        while True:
            await asyncio.sleep(self.rng.random())
            if self.rng.random() < 0.5 and self.model.revision > self.model.compacted:
                self.model.compact(self.rng.randint(self.model.compacted + 1, self.model.revision))
            elif self.truth:
                through = self.rng.choice(self.truth).position
                self.truncated = max(self.truncated, through)
                try:
                    await ledger.truncate(ONE, through)
                except Retriable:
                    continue


@promise("M1")
@pytest.mark.parametrize("seed", range(12))
def test_followers_see_one_order(seed: int) -> None:
    """What a follower sees is the order of the store without a hole, except where it was truncated away."""

    async def story() -> None:
        cluster = Cluster(seed)
        seen: list[list[Entry]] = [[], []]
        tasks = [asyncio.create_task(cluster.follow(one)) for one in seen]
        if seed % 3:
            tasks.append(asyncio.create_task(cluster.disturb()))
        await asyncio.gather(*(cluster.write(name, 50) for name in range(3)))
        cluster.world.faults = Faults(delay=0.01)
        for task in tasks[2:]:
            task.cancel()
        await asyncio.sleep(BAD.late_seconds * 2)
        for task in tasks:
            assert not task.done() or task.cancelled(), task
        truth = cluster.truth
        positions = [entry.position for entry in truth]
        assert positions == sorted(set(positions))
        assert cluster.told.items() <= {entry.position: entry.data for entry in truth}.items()
        index = {position: at for at, position in enumerate(positions)}
        for one in seen:
            assert one[-1] == truth[-1]
            before = -1
            for entry in one:
                at = index[entry.position]
                assert truth[at] == entry
                assert at > before
                if at > before + 1:
                    assert positions[at - 1] <= cluster.truncated, "a record was missed"
                before = at
        reader = cluster.open()
        assert await reader.last(ONE) == positions[-1]
        for task in tasks:
            task.cancel()

    run(story())


def opened(model: EtcdModel, network: Direct | None = None, sizes: Sizes = SMALL) -> EtcdLedger:
    return EtcdLedger(ModelClient(model, network), "x", SeededChance(7), sizes=sizes)


class Counting(Direct):
    """A network that counts questions, and can be made slow."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, work):  # type: ignore[no-untyped-def]
        self.asked += 1
        await self.gate.wait()
        return await super().ask(work)

    async def tell(self, work):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0)
        return work()


@promise("M1")
def test_looks_at_the_end_are_shared() -> None:
    """Calls that come while one is under way share the next, and none joins one that began before it."""

    async def story() -> None:
        network = Counting()
        model = EtcdModel()
        ledger, other = opened(model, network), opened(model)
        network.gate.clear()
        first = [asyncio.create_task(ledger.last(ONE)) for _ in range(5)]
        await asyncio.sleep(1)
        assert network.asked == 1
        position = await other.append(ONE, b"x")
        second = [asyncio.create_task(ledger.last(ONE)) for _ in range(5)]
        await asyncio.sleep(1)
        network.gate.set()
        await asyncio.gather(*first)
        assert await asyncio.gather(*second) == [position] * 5
        assert network.asked == 2

    run(story())


@promise("M1")
def test_a_follower_reads_without_asking() -> None:
    """What the watch brought, and one's own appends, need no further question."""

    async def story() -> None:
        network = Counting()
        model = EtcdModel()
        ledger, other = opened(model, network, Sizes()), opened(model)
        waiting = asyncio.create_task(ledger.watch(ONE, START))
        await asyncio.sleep(1)
        asked, after = network.asked, START
        for number in range(40):
            writer = ledger if number % 2 else other
            position = await writer.append(ONE, b"%d" % number)
            assert await ledger.watch(ONE, after) >= position
            assert await ledger.read(ONE, after, 10) == [Entry(position, b"%d" % number)]
            after = position
        assert await waiting > START
        assert network.asked == asked

    run(story())


@promise("M1")
def test_a_store_that_went_back_in_time() -> None:
    """An etcd whose revisions are smaller than they were is not written to in silence."""

    async def story() -> None:
        model = EtcdModel()
        ledger = opened(model)
        for _ in range(5):
            await ledger.append(ONE, b"x")
        ledger._client = ModelClient(EtcdModel())
        with pytest.raises(Halted, match="went back"):
            await ledger.append(ONE, b"y")

    run(story())


class Full(ModelClient):
    """An etcd beyond its quota, which says so; it may have done what it was asked all the same, as etcd does once."""

    enters = readable = True

    async def transact(self, *arguments: Any) -> Transacted:
        if self.enters:
            await super().transact(*arguments)
        raise StoreFull("no space")

    async def get(self, get: Get) -> Found:
        if not self.readable:
            raise StoreUnavailable("gone")
        return await super().get(get)


@promise("M1")
def test_a_record_that_was_refused_and_entered() -> None:
    """Nobody is told that a record is not there which others read."""

    async def story() -> None:
        model = EtcdModel()
        ledger, reader = opened(model), opened(model)
        client = ledger._client = Full(model)
        position = await ledger.append(ONE, b"entered")
        assert await reader.read(ONE, START, 9) == [Entry(position, b"entered")]
        client.enters = False
        with pytest.raises(StoreFull):
            await ledger.append(ONE, b"refused")
        client.readable = False
        with pytest.raises(OutcomeUnknown):
            await ledger.append(ONE, b"who knows")
        assert await reader.last(ONE) == position

    run(story())


@promise("M1")
def test_a_feed_is_bounded() -> None:
    """It lets the oldest go and says so; what it does not know it does not answer."""
    feed = Feed(0, Sizes(feed_records=4, feed_bytes=1000))
    for position in range(1, 10):
        feed.add([Entry(Position(position), b"x" * 10)], position)
        assert len(feed.after(feed.start, 100)) <= 4
        assert feed.bytes == 10 * len(feed.after(feed.start, 100))
    assert feed.start > 0
    assert feed.after(feed.start - 1, 100) == []
    assert [entry.position for entry in feed.after(feed.start, 2)] == [feed.start + 1, feed.start + 2]
    feed.add([Entry(Position(10), b"y" * 2000)], 12)
    assert (feed.start, feed.end, feed.bytes) == (10, 12, 0)
    feed.reset(20)
    feed.none_between(15, 19)
    assert feed.start == 20, "not known as far as where it begins"
    feed.none_between(15, 20)
    assert feed.start == 15


@promise("M1")
def test_pages() -> None:
    """Boundaries are found by position; those before the mark go, but for the one that still matters."""
    pages = Pages(Sizes(page_records=2, boundaries=3))
    assert (pages.floor(5), pages.next(0), pages.full) == (0, 0, False)
    pages.count(1)
    pages.count(1)
    assert pages.full
    pages.learn([Pair(b"page", pack([10, 20, 30]), 1, 40)])
    assert not pages.full
    assert [pages.floor(position) for position in (0, 9, 10, 25, 40, 99)] == [0, 0, 10, 20, 40, 40]
    assert [pages.next(boundary) for boundary in (0, 10, 40)] == [10, 20, 0]
    assert pages.value(0) == pack([20, 30, 40])
    assert pages.value(35) == pack([30, 40])
    pages.learn([Pair(b"page", pack([]), 1, 39)])
    assert pages.turned == 40, "news from the past"


@promise("M1")
def test_the_model_is_like_etcd() -> None:
    """Revisions, what a transaction sees of itself, and compaction, as a real server has them."""
    model = EtcdModel()
    assert model.get(Get(b"a")).revision == 1
    done = model.transact((), [Get(b"a"), Put(b"a", b"1"), Get(b"a")])
    assert done.revision == 2
    assert [list(found.pairs) for found in done.found] == [[], [Pair(b"a", b"1", 2, 2)]]
    model.transact((), [Put(b"a", b"2")])
    assert model.get(Get(b"a", revision=2)).pairs == [Pair(b"a", b"1", 2, 2)]
    model.compact(3)
    with pytest.raises(Compacted):
        model.get(Get(b"a", revision=2))
    assert model.get(Get(b"a", revision=3)).pairs == [Pair(b"a", b"2", 2, 3)]


@promise("M1")
def test_a_watch_that_dies_loses_no_record() -> None:
    """It is restarted, and begins with the changes on which it died."""

    async def story() -> None:
        model = EtcdModel()
        ledger, other = opened(model, sizes=Sizes()), opened(model, sizes=Sizes())
        watching = asyncio.create_task(ledger.watch(ONE, START))
        await asyncio.sleep(1)
        log = ledger._logs[ONE]
        feed_on, planted = log.feed_on, False

        def failing(entries: Sequence[Entry], through: int) -> None:
            nonlocal planted
            if not planted:
                planted = True
                raise RuntimeError("planted")
            feed_on(entries, through)

        log.feed_on = failing  # type: ignore[method-assign]
        for number in range(3):
            await other.append(ONE, b"%d" % number)
            await asyncio.sleep(2)
        assert planted and await watching
        entries, after = [], START
        while found := await ledger.read(ONE, after, 10):
            entries += [entry.data for entry in found]
            after = found[-1].position
        assert entries == [b"0", b"1", b"2"]
        [report] = ledger._background.reports()
        assert (report.name, report.state, report.restarts) == ("etcd-watch-1", "running", 1)
        await ledger.close()
        await other.close()

    run(story())
