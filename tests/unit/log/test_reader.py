"""Reading a stream: offsets, limits, times, caches, and objects that are gone."""

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import EPOCH_MS, run
from headwater.errors import Damaged, NotFound, OffsetOutOfRange, StoreUnavailable
from headwater.log.batch import base_offset_of, max_timestamp_of, offsets_of, split_batches
from headwater.log.damage import RECHECK_SECONDS
from headwater.log.reader import ReadResult, TimedOffset, Want
from headwater.settings.settings import Cache
from headwater.state.commands.streams import TrimStreams
from headwater.state.streams.index import MARKER_BYTES
from tests.support.batches import Rec, batch, data_of, is_control, values
from tests.support.promise import promise
from tests.support.transactions import Transactor
from tests.support.virtual_nodes import ONE, NodeWorld, read, send, sent, topic

PROMISES = ("K4", "K5", "L1", "L9")

NO_CACHE = Cache(wal_bytes=1)


async def filled(world: NodeWorld, counts: list[list[int]]) -> tuple[object, int]:
    """A node and a stream with one object per list of batch sizes."""
    node = await world.node()
    [stream] = (await topic(node)).streams
    n = 0
    for sizes in counts:
        waiting = []
        for size in sizes:
            waiting.append(send(node, stream, batch([f"{n + i}".encode() for i in range(size)])))
            n += size
        await asyncio.gather(*waiting)
    return node, stream


@promise("K4", "L1")
def test_read_from_every_offset() -> None:
    """Whole batches from the one that holds the offset; from memory and from the store alike."""

    async def told() -> None:
        world = NodeWorld()
        node, stream = await filled(world, [[1], [3, 2], [1, 1, 4], [5]])
        other = await world.node(2, cache=NO_CACHE)
        total = 17
        for reader in (node, other):
            for offset in range(total):
                found = values(await read(reader, stream, offset))  # type: ignore[arg-type]
                first = found[0][0]
                assert first <= offset
                assert found == [(i, f"{i}".encode()) for i in range(first, total)]
            assert await read(reader, stream, total) == b""  # type: ignore[arg-type]
        result = await other.broker.reader.read(other.domains[ONE], stream, 3, 10**6, True)
        assert (result.high_watermark, result.log_start) == (total, 0)

    run(told())


@promise("K4")
def test_limits() -> None:
    """Never more than `max_bytes`, except for a first batch that alone is larger, and only if asked for."""

    async def told() -> None:
        world = NodeWorld()
        node, stream = await filled(world, [[1], [3, 2], [1, 1, 4], [5]])
        whole = split_batches(await read(node, stream))  # type: ignore[arg-type]
        for limit in range(0, sum(len(b) for b in whole) + 10, 13):
            for first_whole in (False, True):
                got = split_batches(await read(node, stream, 0, limit, first_whole))  # type: ignore[arg-type]
                fitting = 0
                while fitting < len(whole) and sum(len(b) for b in whole[: fitting + 1]) <= limit:
                    fitting += 1
                wanted = max(fitting, 1) if first_whole else fitting
                assert [bytes(b) for b in got] == [bytes(b) for b in whole[:wanted]]

    run(told())


@promise("L1", "K11")
def test_refused_batches_are_never_read() -> None:
    """They lie in the object between others, but no entry names them."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        await sent(node, stream, batch([b"a"], producer=(7, 0, 0)))
        parts = [
            batch([b"b"]),
            batch([b"a"], producer=(7, 0, 0)),
            batch([b"c"], producer=(7, 0, 1)),
            batch([b"zzz"], producer=(7, 0, 9)),
            batch([b"d"]),
        ]
        await asyncio.gather(*(send(node, stream, part) for part in parts))
        assert len(world.wal_paths()) == 2
        other = await world.node(2)
        for reader in (node, other):
            assert values(await read(reader, stream)) == list(enumerate([b"a", b"b", b"c", b"d"]))

    run(told())


@promise("L9")
def test_one_read_per_object() -> None:
    """Many readers at once share one read, and later ones none; a small cache forgets."""

    async def told() -> None:
        world = NodeWorld()
        _, stream = await filled(world, [[1, 2, 3], [4]])
        other = await world.node(2)
        await asyncio.gather(*(read(other, stream, offset) for offset in range(10)))
        assert world.store.reads == 2
        await read(other, stream)
        assert world.store.reads == 2
        assert other.cache.bytes == sum(len(world.store.objects[path]) for path in world.wal_paths())
        forgetful = await world.node(3, cache=NO_CACHE)
        for _ in range(2):
            await read(forgetful, stream)
        assert world.store.reads == 6
        assert forgetful.cache.bytes == 0

    run(told())


@promise("L9")
def test_the_cache_is_bounded() -> None:
    """The least recently used objects go first."""

    async def told() -> None:
        world = NodeWorld()
        _, stream = await filled(world, [[1]] * 10)
        size = len(world.store.objects[world.wal_paths()[0]])
        other = await world.node(2, cache=Cache(wal_bytes=3 * size))
        for offset in range(10):
            await read(other, stream, offset, 1)
            assert other.cache.bytes <= 3 * size
        reads = world.store.reads
        await read(other, stream, 9, 1)
        await read(other, stream, 8, 1)
        assert world.store.reads <= reads + 1
        await read(other, stream, 0, 1)
        assert world.store.reads > reads

    run(told())


@promise("K3")
def test_log_append_time() -> None:
    """Patched on the way out, with a CRC that holds; the stored bytes keep the producer's time."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node, message_timestamp_type="LogAppendTime")).streams
        outcome = await sent(node, stream, batch([Rec(b"x", None, 5), Rec(b"y", None, 7)]))
        assert outcome.append_ms >= EPOCH_MS
        for reader in (node, await world.node(2)):
            [one] = split_batches(await read(reader, stream))
            assert max_timestamp_of(one) == outcome.append_ms
            assert struct.unpack_from(">h", one, 21)[0] & 8
            found = await reader.broker.reader.find_time(reader.domains[ONE], stream, 100)
            assert found == TimedOffset(0, outcome.append_ms)

    run(told())


@promise("L3")
def test_what_is_missing() -> None:
    """An object that is gone means that the index moved on, or that something is very wrong; each is said."""

    async def told() -> None:
        world = NodeWorld()
        node, stream = await filled(world, [[2], [2]])
        other = await world.node(2)
        reader = other.broker.reader
        with pytest.raises(NotFound):
            await reader.read(other.domains[ONE], 999, 0, 100, True)
        paths = world.wal_paths()
        kept = world.store.objects.pop(paths[0])
        with pytest.raises(Damaged, match="missing"):
            await read(other, stream)
        assert values(await read(other, stream, 2)) == [(2, b"2"), (3, b"3")]
        world.store.objects[paths[0]] = kept
        await asyncio.sleep(RECHECK_SECONDS)
        assert len(values(await read(other, stream))) == 4, "a failure is not remembered for long"

        # The log start moves and the object goes while a reader is on its way to it.
        third = await world.node(3)
        await third.domains[ONE].barrier()
        third.way.deaf = True  # type: ignore[attr-defined]
        await node.domains[ONE].submit([TrimStreams([(stream, 2)])])  # type: ignore[attr-defined]
        del world.store.objects[paths[0]]
        with pytest.raises(OffsetOutOfRange):
            await read(third, stream)

    run(told())


@promise("K4")
def test_a_store_that_is_away() -> None:
    """Is retriable, for everybody who waited for that object."""

    async def told() -> None:
        world = NodeWorld()
        _, stream = await filled(world, [[2]])
        other = await world.node(2)
        inner = world.store.get_many

        async def away(paths: object) -> list[bytes | None]:
            await asyncio.sleep(0.01)
            raise StoreUnavailable("away")

        world.store.get_many = away  # type: ignore[method-assign, assignment]
        outcomes = await asyncio.gather(*(read(other, stream) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        world.store.get_many = inner  # type: ignore[method-assign]
        assert len(values(await read(other, stream))) == 2

    run(told())


# --- times ---------------------------------------------------------------------------------------------

stamps = st.lists(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=3), max_size=5)


@promise("K5")
@settings(max_examples=60, deadline=None)
@given(objects=stamps, codec=st.sampled_from([0, 4]), trimmed=st.integers(0, 12), wanted=st.integers(-1, 32))
def test_find_time(objects: list[list[list[int]]], codec: int, trimmed: int, wanted: int) -> None:
    """The first record of at least a timestamp, exact with any disorder, and never one before the log start."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        flat: list[int] = []
        for batches in objects:
            waiting = []
            for times in batches:
                flat += times
                waiting.append(send(node, stream, batch([Rec(b"x", None, t) for t in times], codec=codec)))
            await asyncio.gather(*waiting)
        start = min(trimmed, len(flat))
        replica = node.domains[ONE]
        await replica.submit([TrimStreams([(stream, start)])])
        expected = next((TimedOffset(i, t) for i, t in enumerate(flat) if i >= start and t >= wanted), None)
        assert await node.broker.reader.find_time(replica, stream, wanted) == expected

    run(told())


@promise("K5")
def test_max_timestamp() -> None:
    """The first record with the largest timestamp; nothing in an empty log."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        reader, replica = node.broker.reader, node.domains[ONE]
        assert await reader.find_max_timestamp(replica, stream) is None
        for times in ([5, 9, 1], [9, 3], [2]):
            await sent(node, stream, batch([Rec(b"x", None, t) for t in times]))
        assert await reader.find_max_timestamp(replica, stream) == TimedOffset(1, 9)
        await replica.submit([TrimStreams([(stream, 3)])])
        assert await reader.find_max_timestamp(replica, stream) == TimedOffset(3, 9)
        await replica.submit([TrimStreams([(stream, 5)])])
        assert await reader.find_max_timestamp(replica, stream) == TimedOffset(5, 2)

    run(told())


@promise("K4")
def test_batches_carry_their_offsets() -> None:
    """Base offsets and leader epoch 0 are patched in, whatever the producer wrote there."""

    async def told() -> None:
        world = NodeWorld()
        node, stream = await filled(world, [[1, 2], [3]])
        data = await read(node, stream)  # type: ignore[arg-type]
        assert [(base_offset_of(b), offsets_of(b)) for b in split_batches(data)] == [(0, 1), (1, 2), (3, 3)]

    run(told())


@promise("K12")
def test_markers_are_batches_of_the_log() -> None:
    """From every offset, from memory and from the store, the same bytes, and offsets without holes."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        first = await Transactor.at(node, "a", 500)
        for commit in (True, False, True):
            await sent(node, stream, first.batch(stream, [b"x", b"y"]), joins=True)
            await sent(node, stream, batch([b"plain"]))
            await first.end(commit=commit)
        other = await world.node(2, cache=NO_CACHE)
        whole = await read(node, stream)
        assert whole == await read(other, stream)
        batches = split_batches(whole)
        assert [base_offset_of(one) for one in batches] == [0, 2, 3, 4, 6, 7, 8, 10, 11]
        assert [base_offset_of(one) for one in batches if is_control(one)] == [3, 7, 11]
        for reader in (node, other):
            for offset in range(12):
                found = await read(reader, stream, offset)
                assert whole.endswith(found)
                assert base_offset_of(found) <= offset < base_offset_of(found) + offsets_of(found)
            assert await read(reader, stream, 12) == b""
            assert await read(reader, stream, 3, max_bytes=MARKER_BYTES + 1) == bytes(batches[2])
            assert await read(reader, stream, 3, max_bytes=10, first_whole=False) == b""

    run(told())


@promise("K4", "K12")
def test_readers_of_committed_records() -> None:
    """They stop at the first open transaction, in the middle of an object too, and learn what was aborted."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        reader, replica = node.broker.reader, node.domains[ONE]
        one, two = await Transactor.at(node, "a", 500), await Transactor.at(node, "b", 600)

        async def committed(offset: int) -> ReadResult:
            [found] = await reader.read_many([Want(replica, stream, offset, 1 << 20, committed=True)], 1 << 20)
            assert isinstance(found, ReadResult)
            return found

        waiting = [
            send(node, stream, batch([b"0", b"1"])),
            send(node, stream, one.batch(stream, [b"2", b"3"]), joins=True),
            send(node, stream, two.batch(stream, [b"4"]), joins=True),
        ]
        await asyncio.gather(*waiting)
        assert len(replica.state.streams[stream].index) == 3, "an entry ends where a transaction begins"
        found = await committed(0)
        assert values(found.records) == [(0, b"0"), (1, b"1")]
        assert (found.high_watermark, found.stable, list(found.aborted)) == (5, 2, [])
        assert (await committed(2)).records == (await committed(4)).records == b""
        await one.end(commit=False)
        found = await committed(0)
        assert [(a.producer, a.first) for a in found.aborted] == [(500, 2)]
        assert (values(data_of(found.records))[-1], found.stable) == ((3, b"3"), 4)
        await two.end(commit=True)
        found = await committed(3)
        assert [(a.producer, a.first) for a in found.aborted] == [(500, 2)], "it began before the offset"
        assert [base_offset_of(b) for b in split_batches(found.records)] == [2, 4, 5, 6]
        assert found.stable == found.high_watermark == 7
        assert list((await committed(6)).aborted) == []
        plain = await reader.read(replica, stream, 0, 1 << 20, True)
        assert list(plain.aborted) == []

    run(told())


@promise("K12")
def test_the_aborted_list_is_as_old_as_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling that forgets an aborted transaction while its object is on the way does not let it through."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        one = await Transactor.at(node, "a", 500)
        await sent(node, stream, one.batch(stream, [b"x"]), joins=True)
        await one.end(commit=False)
        other = await world.node(2, cache=NO_CACHE)
        replica = other.domains[ONE]
        load = other.broker.reader.cache.load

        async def slow(*arguments: object) -> object:
            replica.state.streams[stream].aborted.forget(99)
            return await load(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(other.broker.reader.cache, "load", slow)
        [found] = await other.broker.reader.read_many([Want(replica, stream, 0, 1 << 20, committed=True)], 1 << 20)
        assert isinstance(found, ReadResult)
        assert values(data_of(found.records)) == [(0, b"x")]
        assert [a.producer for a in found.aborted] == [500]
        assert len(replica.state.streams[stream].aborted) == 0

    run(told())


@promise("K5")
def test_times_of_committed_records() -> None:
    """Nothing at or behind the stable offset is found, by a time or as the largest one; markers have no time."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        reader, replica = node.broker.reader, node.domains[ONE]
        one = await Transactor.at(node, "a", 500)
        await asyncio.gather(
            send(node, stream, batch([Rec(b"0", None, 5), Rec(b"1", None, 7)])),
            send(node, stream, one.batch(stream, [Rec(b"2", None, 9)]), joins=True),
            send(node, stream, batch([Rec(b"3", None, 8)])),
        )

        async def at(timestamp: int, committed: bool = True) -> TimedOffset | None:
            return await reader.find_time(replica, stream, timestamp, committed=committed)

        assert await at(6) == TimedOffset(1, 7)
        assert (await at(8), await at(9)) == (None, None)
        assert await at(8, committed=False) == TimedOffset(2, 9)
        assert await reader.find_max_timestamp(replica, stream, committed=True) is None
        await one.end(commit=True)
        assert (await at(8), await at(10)) == (TimedOffset(2, 9), None)
        assert await reader.find_max_timestamp(replica, stream, committed=True) == TimedOffset(2, 9)

    run(told())
