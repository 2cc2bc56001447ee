"""A batch counts from its arrival until it is decided or dropped, whatever becomes of its request."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.errors import HeadwaterError, StoreUnavailable
from headwater.log.batch import check_batch
from headwater.log.write.budget import Budget
from headwater.log.write.part import Outcome, Part
from headwater.settings.settings import Profile, Wal
from headwater.state.results import Verdict
from tests.support.batches import batch, values
from tests.support.promise import promise
from tests.support.virtual_nodes import LAX, NodeWorld, read, sent, topic

PROMISES = ("S4",)

QUICK = Profile(object_bytes=300, min_interval_ms=0, gather_ms=0, flushes=2)
THRIFTY = Profile(object_bytes=300, min_interval_ms=40, gather_ms=0, flushes=2)
WAL = Wal(hold_ms=100, latency=QUICK, cost=THRIFTY)
PROFILES = ("latency", "cost")


@dataclass
class Requests:
    """Sends batches, and knows which of them have no outcome yet."""

    node: Node
    undecided: dict[int, Part] = field(default_factory=dict)
    outcomes: dict[int, Outcome | HeadwaterError] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    sent: int = 0

    def send(self, stream: int, profile: str, producer: tuple[int, int, int] = (-1, -1, -1)) -> int:
        data = batch([b"%d" % self.sent], producer=producer)
        part = Part(stream, check_batch(data, LAX, EPOCH_MS), self, self.sent)
        self.sent += 1
        self.undecided[part.number] = part
        self.node.writers.of(1, profile).append(part)
        return part.number

    def withdraw(self, number: int) -> bool:
        dropped = self.node.writers.withdraw(self.undecided[number])
        if dropped:
            del self.undecided[number]
            self.dropped.add(number)
        return dropped

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        self.decided(number, Outcome(Verdict.ACCEPTED, offset))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        del self.undecided[number]  # raises if it was decided before, or dropped
        self.outcomes[number] = outcome

    @property
    def bytes(self) -> int:
        return sum(len(part.batch.data) for part in self.undecided.values())


def test_the_limit_and_half_of_it() -> None:
    budget, changes = Budget(100), []
    budget.on_change = lambda: changes.append(budget.exceeded)
    budget.take(100)
    assert not budget.exceeded
    budget.take(1)
    budget.take(5)
    budget.give(56)
    assert changes == [True]
    budget.give(1)
    assert changes == [True, False] and budget.used == 49


def test_a_batch_whose_request_was_answered_goes_into_no_object() -> None:
    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=WAL)
        [stream] = (await topic(node)).streams
        requests, budget = Requests(node), node.writers.budget
        world.store.gate.clear()
        flying = [requests.send(stream, "latency")]
        await asyncio.sleep(0.01)
        queued = [requests.send(stream, "latency") for _ in range(60)]
        await asyncio.sleep(0.01)
        assert budget.used == requests.bytes
        flying += [number for number in queued if not requests.withdraw(number)]
        assert 1 < len(flying) < 10, "two flushes are being stored"
        assert budget.used == requests.bytes > 0
        assert not any(requests.withdraw(number) for number in flying), "no batch leaves a flush"
        world.store.gate.set()
        await asyncio.sleep(1)
        assert not requests.undecided and budget.used == 0
        assert [v for _, v in values(await read(node, stream))] == [b"%d" % number for number in flying]
        assert world.store.puts == 2

    run(told())


@promise("K11")
def test_a_held_batch_is_dropped() -> None:
    """The batches behind it are judged as if it had never come."""

    async def told() -> None:
        world = NodeWorld()
        one, two = await world.node(1, wal=WAL), await world.node(2, wal=WAL)
        stream, other = (await topic(one, partitions=2)).streams
        for node in (one, two):
            await sent(node, other, batch([b"x"]))
        requests = Requests(two)
        held = [requests.send(stream, "latency", (7, 0, first)) for first in (2, 3)]
        await asyncio.sleep(0.01)
        assert requests.undecided and requests.withdraw(held[0])
        assert two.writers.budget.used == requests.bytes > 0
        first = requests.send(stream, "latency", (7, 0, 0))
        await asyncio.sleep(1)
        assert requests.outcomes[first] == Outcome(Verdict.ACCEPTED, 0)
        gap = requests.outcomes[held[1]]
        assert isinstance(gap, Outcome) and gap.verdict in (Verdict.MOVED, Verdict.OUT_OF_ORDER)
        again = [requests.send(stream, "latency", (7, 0, first)) for first in (1, 2, 3)]
        await asyncio.sleep(1)
        assert [requests.outcomes[number] for number in again] == [Outcome(Verdict.ACCEPTED, i) for i in (1, 2, 3)]
        assert two.writers.budget.used == 0

    run(told())


steps = st.one_of(
    st.tuples(
        st.just("send"), st.integers(0, 2), st.sampled_from(PROFILES), st.sampled_from([-1, 7]), st.integers(0, 9)
    ),
    st.tuples(st.just("withdraw"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.05, 0.2])),
    st.sampled_from([("stall",), ("go on",), ("fail",)]),
)


@settings(max_examples=100, deadline=None)
@given(many=st.lists(steps, min_size=5, max_size=60))
def test_the_budget_is_exact_at_every_moment(many: list[tuple[object, ...]]) -> None:
    """Whatever is sent, dropped, moved between profiles, held, stalled and failed."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=WAL)
        *streams, other = (await topic(node, partitions=4)).streams
        await sent(await world.node(2, wal=WAL), other, batch([b"x"]))  # so that batches are held
        requests, budget = Requests(node), node.writers.budget
        for step in many:
            match step:
                case ("send", int(stream), str(profile), int(producer), int(first)):
                    identity = (producer, 0, first) if producer >= 0 else (-1, -1, -1)
                    requests.send(streams[stream], profile, identity)
                case ("withdraw", int(i)) if requests.undecided:
                    requests.withdraw(list(requests.undecided)[i % len(requests.undecided)])
                case ("wait", float(seconds)):
                    await asyncio.sleep(seconds)
                case ("stall",):
                    world.store.gate.clear()
                case ("go on",):
                    world.store.gate.set()
                case ("fail",):
                    world.store.put_errors.append(StoreUnavailable("planted"))
            assert budget.used == requests.bytes
        world.store.gate.set()
        await asyncio.sleep(5)
        assert not requests.undecided and budget.used == 0
        stored = {int(v) for stream in streams for _, v in values(await read(node, stream)) if v is not None}
        accepted = {n for n, o in requests.outcomes.items() if isinstance(o, Outcome) and o.verdict is Verdict.ACCEPTED}
        assert stored == accepted and not stored & requests.dropped
        assert repr(node.writers._handovers[min(node.writers._handovers)]) == "<Handover of 0 streams, 0 batches wait>"

    run(told())
