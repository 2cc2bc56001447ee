"""A copy of a ledger folds to the same state in a store with other positions, and brokers go on from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from headwater.app.ledgers.copying import NOTHING, LedgerCopy, fingerprint_of
from headwater.clock import SystemChance, SystemClock
from headwater.errors import ConfigError, Damaged, OutcomeUnknown
from headwater.ledger.contract import Entry, Ledger, Pointer
from headwater.ledger.memory import MemoryLedger
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.objects import ObjectStore
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import load_state, replay, write_checkpoint
from headwater.replica.domains import new_state
from headwater.replica.replica import CHECK_EVERY
from headwater.state.commands.base import Fence
from headwater.state.commands.holds import TakeHold
from headwater.state.records import Record, encode
from headwater.state.streams.state import StreamsState
from headwater.types import CLUSTER, Domain, Position
from tests.faults.raw import fresh
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.unit.broker.handlers.transactions.calls import OK, Who, end, offset_of, stage, started

PROMISES = ("M1",)

ONE = Domain(1)
PRODUCE, LIST_OFFSETS, CREATE = 0, 2, 19


class Sparse(MemoryLedger):
    """Positions as a store with one counter for everything gives them: far apart, and high."""

    dense = False

    async def append(self, domain: Domain, record: bytes) -> Position:
        return _outside(await super().append(domain, record))

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        found = await super().read(domain, _inside(after), limit)
        return [Entry(_outside(entry.position), entry.data) for entry in found]

    async def last(self, domain: Domain) -> Position:
        return _outside(await super().last(domain))

    async def watch(self, domain: Domain, after: Position) -> Position:
        return Position(max(after + 1, _outside(await super().watch(domain, _inside(after)))))

    async def truncate(self, domain: Domain, through: Position) -> None:
        await super().truncate(domain, _inside(through))


def _outside(position: Position) -> Position:
    return Position(position * 7 + 1000) if position else position


def _inside(position: Position) -> Position:
    return Position(max(0, (position - 1000) // 7))


async def produced(call: Caller, times: int) -> None:
    """Write some records, one after the other, so that each has a record of its own in the ledger."""
    for n in range(times):
        data = [{"name": "t", "partition_data": [{"index": 0, "records": fresh([b"%d" % n])}]}]
        answer = await call(PRODUCE, 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


async def end_of(call: Caller) -> int:
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}]
    answer = await call(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=wanted)
    found: int = answer.topics[0].partitions[0].offset
    return found


async def lived(ledger: Ledger, store: ObjectStore, records: int, *, create: bool = False) -> int:
    """A cluster starts on a ledger, writes and leaves; answers where its log ends."""
    async with cluster(ledger=ledger, store=store) as [call]:
        if create:
            topics = [{"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}]
            await call(CREATE, 5, topics=topics, timeout=1000, validate_only=False)
        await produced(call, records)
        return await end_of(call)


async def copied(source: Ledger, target: Ledger, store: ObjectStore, *, force: bool = False) -> dict[Domain, Position]:
    found = await LedgerCopy(source, target, store, SystemClock(), SystemChance()).run(force=force)
    return {c.domain: c.target_position for c in found}


async def fingerprint(ledger: Ledger, store: ObjectStore, domain: Domain) -> int:
    state = new_state(domain)
    await load_state(ledger, store, state)
    await replay(ledger, state)
    return fingerprint_of(state)


@promise("M1")
def test_from_store_to_store_and_back(tmp_path: Path) -> None:
    """Dense to sparse to SQLite, with records written on each of them and checks of digests among the records."""

    async def run() -> None:
        store = MemoryStore()
        first, second, third = MemoryLedger(), Sparse(), SqliteLedger(tmp_path / "ledger.db")
        end = await lived(first, store, CHECK_EVERY + 20, create=True)
        for source, target in ((first, second), (second, third)):
            positions = await copied(source, target, store)
            for domain in (CLUSTER, ONE):
                assert await fingerprint(source, store, domain) == await fingerprint(target, store, domain)
                pointer = await target.pointer(domain)
                assert pointer is not None and pointer.position == positions[domain] and pointer.older is not None
            # Its own checkpoints follow those of the copy, and the process that wrote them is fenced.
            assert await lived(target, store, CHECK_EVERY + 20) == end + CHECK_EVERY + 20
            end += CHECK_EVERY + 20
            for _ in range(2):
                assert await write_checkpoint(target, store, new_state(ONE))
                end = await lived(target, store, 1)
        await third.close()

    asyncio.run(run())


@promise("M1", "Q2")
def test_holds_are_copied() -> None:
    """With the time that they had. The fence of their process ends them in the copy as well."""

    async def run() -> None:
        store, first, second = MemoryStore(), MemoryLedger(), Sparse()
        await lived(first, store, 2, create=True)
        await first.append(ONE, encode(Record(99, 1, SystemClock().wall_ms(), 0, [TakeHold()])))
        await copied(first, second, store)
        found = []
        for ledger in (first, second):
            state = StreamsState(ONE)
            await load_state(ledger, store, state)
            await replay(ledger, state)
            found.append(state.held.pack())
        assert found[0] == found[1] and found[0][0][0] == 99
        await second.append(ONE, encode(Record(100, 1, SystemClock().wall_ms(), 0, [Fence(99)])))
        await replay(second, state)
        assert state.held.pack() == []

    asyncio.run(run())


@promise("M1", "K12")
def test_transactions_are_copied() -> None:
    """Open, aborted and committed ones, with staged offsets. The producer of an open one goes on with it."""

    async def write(call: Caller, id: str, who: Who, value: bytes) -> None:
        records = fresh([value], producer=(*who, 0), attributes=TRANSACTIONAL_BIT)
        data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        answer = await call(PRODUCE, 12, acks=-1, timeout=1000, transactional_id=id, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    async def run() -> None:
        store = MemoryStore()
        first, second, third = MemoryLedger(), Sparse(), MemoryLedger()
        await lived(first, store, 1, create=True)
        async with cluster(ledger=first, store=store) as [call]:
            who = {id: await started(call, id) for id in ("open", "done", "gone")}
            for id in who:
                await write(call, id, who[id], id.encode())
            assert await stage(call, who["open"], 7, id="open", group="staged") is OK
            assert await stage(call, who["done"], 8, id="done", group="told") is OK
            assert (await end(call, who["done"], id="done"))[0] is OK
            assert (await end(call, who["gone"], id="gone", commit=False))[0] is OK
        for source, target in ((first, second), (second, third)):
            await copied(source, target, store)
            for domain in (CLUSTER, ONE):
                assert await fingerprint(source, store, domain) == await fingerprint(target, store, domain)
        async with cluster(ledger=third, store=store) as [call]:
            [stream] = [s for s in call.node.domains[ONE].state.streams.values() if s.next_offset]
            assert (stream.stable, stream.end) == (1, 6)
            assert [(gone.first, gone.marker) for gone in stream.aborted.between(0, 6)] == [(3, 5)]
            assert await offset_of(call, "told") == 8
            assert await offset_of(call, "staged") is ErrorCode.unstable_offset_commit
            assert (await end(call, who["done"], id="done"))[0] is OK, "the answer was lost before the copy"
            assert (await end(call, who["open"], id="open"))[0] is OK
            assert await offset_of(call, "staged") == 7
            assert stream.stable == stream.end == 7
        assert await lived(third, store, 1) == 8

    asyncio.run(run())


@promise("M1")
def test_the_source_may_have_checkpoints_and_stays_as_it_was() -> None:
    """A ledger that is cut to a checkpoint is copied as well; what it points to is not touched."""

    async def run() -> None:
        store, source, target = MemoryStore(), MemoryLedger(), Sparse()
        await lived(source, store, 5, create=True)
        for _ in range(3):
            assert await write_checkpoint(source, store, new_state(ONE))
            await lived(source, store, 5)
        before = await source.pointer(ONE), await source.last(ONE), await fingerprint(source, store, ONE)
        await copied(source, target, store)
        end = await lived(target, store, 1)
        for _ in range(3):
            assert await write_checkpoint(target, store, new_state(ONE))
            assert await lived(target, store, 1) == (end := end + 1)
        assert before == (await source.pointer(ONE), await source.last(ONE), await fingerprint(source, store, ONE))

    asyncio.run(run())


@promise("M1")
def test_a_target_that_is_not_empty_is_refused() -> None:
    """Also one that holds a copy already."""

    async def run() -> None:
        store, source, target = MemoryStore(), MemoryLedger(), MemoryLedger()
        await lived(source, store, 1, create=True)
        await copied(source, target, store)
        with pytest.raises(ConfigError, match="empty"):
            await copied(source, target, store)

    asyncio.run(run())


@promise("M1")
def test_a_cluster_that_lives_is_refused() -> None:
    """While somebody beats nothing is copied, unless forced; what is appended meanwhile is noticed even then."""

    async def run() -> None:
        store, source, target = MemoryStore(), MemoryLedger(), MemoryLedger()
        async with cluster(ledger=source, store=store):
            with pytest.raises(ConfigError, match="stop all brokers"):
                await copied(source, target, store)
            assert not await target.last(CLUSTER)
            await copied(source, target, store, force=True)

        class Busy(MemoryLedger):
            """Somebody appends whenever one looks at the end."""

            async def last(self, domain: Domain) -> Position:
                return await self.append(domain, NOTHING)

        busy = Busy()
        busy._logs = source._logs
        with pytest.raises(ConfigError, match="nothing was copied"):
            await copied(busy, MemoryLedger(), store)

    asyncio.run(run())


@promise("M1")
def test_lost_replies_and_foreign_pointers() -> None:
    """A step whose outcome is unknown is repeated; somebody else on the target is noticed."""

    class Losing(MemoryLedger):
        lost = 0

        async def append(self, domain: Domain, record: bytes) -> Position:
            position = await super().append(domain, record)
            self.lost += 1
            if self.lost % 2:
                raise OutcomeUnknown("the reply was lost")
            return position

    class Meddling(MemoryLedger):
        async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
            return False

    async def run() -> None:
        store, source, target = MemoryStore(), MemoryLedger(), Losing()
        end = await lived(source, store, 3, create=True)
        await copied(source, target, store)
        assert target.lost > 2
        target.lost = -(1 << 30)
        with pytest.raises(Damaged, match="another process"):
            await copied(source, Meddling(), store)
        assert await fingerprint(source, store, ONE) == await fingerprint(target, store, ONE)
        assert end == 3

    asyncio.run(run())
