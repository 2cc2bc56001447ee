"""Random histories of transactions, read from every kind of place: a reader sees what is committed, once."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.app.node import Node
from headwater.client.reader import without_aborted
from headwater.client.records import decode_batches
from headwater.log.reader import ReadResult, Want
from headwater.log.write.part import Outcome
from headwater.settings.settings import Cache
from headwater.state.results import Verdict
from tests.support.batches import batch
from tests.support.transactions import Transactor
from tests.support.virtual_nodes import ONE, NodeWorld, send, topic

PROMISES = ("K4", "K12")

PRODUCERS = 3
PLAIN = -1
NO_CACHE = Cache(wal_bytes=1)
Write = tuple[int, int]
"""The producer, or `PLAIN`, and how many records."""
writes = st.lists(st.tuples(st.integers(PLAIN, PRODUCERS - 1), st.integers(1, 4)), min_size=1, max_size=5)
ends = st.tuples(st.integers(0, PRODUCERS - 1), st.booleans(), st.booleans())
"""The producer, whether it commits, and whether its epoch moves on."""


@dataclass
class Model:
    """What the log should hold."""

    records: dict[int, tuple[bytes, list[str]]] = field(default_factory=dict)
    """By offset: the value and the fate of its transaction, a list of one word that all of its records share."""
    open: dict[int, tuple[int, list[str]]] = field(default_factory=dict)
    """By producer: the first offset and the fate."""
    end: int = 0

    def write(self, producer: int, offset: int, contents: list[bytes]) -> None:
        fate = ["committed"]
        if producer != PLAIN:
            _, fate = self.open.setdefault(producer, (offset, ["open"]))
        for i, value in enumerate(contents):
            self.records[offset + i] = (value, fate)
        self.end = max(self.end, offset + len(contents))

    def finish(self, producer: int, commit: bool) -> None:
        _, fate = self.open.pop(producer)
        fate[0] = "committed" if commit else "aborted"
        self.end += 1

    @property
    def stable(self) -> int:
        return min((first for first, _ in self.open.values()), default=self.end)

    def committed(self, start: int) -> list[tuple[int, bytes]]:
        seen = ((offset, *found) for offset, found in sorted(self.records.items()) if start <= offset < self.stable)
        return [(offset, value) for offset, value, fate in seen if fate[0] == "committed"]


async def consume(node: Node, stream: int, start: int, max_bytes: int) -> tuple[list[tuple[int, bytes | None]], int]:
    """What a consumer of committed records gets, fetch by fetch, and where it stops."""
    found, at = [], start
    while True:
        want = Want(node.domains[ONE], stream, at, max_bytes, committed=True)
        [result] = await node.broker.reader.read_many([want], max_bytes)
        assert isinstance(result, ReadResult)
        if not result.records:
            return found, at
        aborted = [(one.producer, one.first) for one in result.aborted]
        for one in without_aborted(decode_batches(result.records), aborted):
            assert one.base_offset <= at < one.next_offset <= result.stable
            found += [(record.offset, record.value) for record in one.records if record.offset >= at]
            at = one.next_offset


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(writes | ends, min_size=1, max_size=12),
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    max_bytes=st.sampled_from([1, 100, 300, 1 << 20]),
)
def test_committed_readers(
    history: list[list[Write] | tuple[int, bool, bool]], starts: list[int], max_bytes: int
) -> None:
    async def told() -> None:
        world, model, number = NodeWorld(), Model(), 0
        node = await world.node()
        [stream] = (await topic(node)).streams
        producers = [await Transactor.at(node, f"{i}", 500 + i) for i in range(PRODUCERS)]
        other = await world.node(2, cache=NO_CACHE)
        for step in history:
            if isinstance(step, tuple):
                who, commit, bump = step
                if who in model.open:
                    await producers[who].end(commit=commit, bump=bump)
                    model.finish(who, commit)
            else:
                sending = []
                for who, count in step:
                    contents = [b"%d" % (number + i) for i in range(count)]
                    number += count
                    data = batch(contents) if who == PLAIN else producers[who].batch(stream, contents)
                    sending.append((who, contents, send(node, stream, data, joins=True)))
                for who, contents, outcome in sending:
                    judged = await outcome
                    assert isinstance(judged, Outcome)
                    assert judged.verdict is Verdict.ACCEPTED
                    model.write(who, judged.offset, contents)
            await other.domains[ONE].barrier()
            for reader in (node, other):
                assert reader.domains[ONE].state.streams[stream].stable == model.stable
                for start in (0, *(start % (model.end + 1) for start in starts)):
                    found, stopped = await consume(reader, stream, start, max_bytes)
                    assert found == model.committed(start)
                    assert stopped == max(start, model.stable)

    run(told())
