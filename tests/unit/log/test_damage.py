"""Stored bytes that changed or are gone: never delivered as data, and kept to their range."""

import asyncio
import contextlib
import errno
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.errors import Damaged
from headwater.log.batch import sound_offsets, split_batches
from headwater.log.damage import LOGGED_AT_ONCE, RECHECK_SECONDS, BadRange, DamagedRange
from headwater.log.segment.read import SegmentReader, footer_bytes
from headwater.log.wal import format as wal
from headwater.log.wal.cache import ReadWal, WalCache
from headwater.objects.local import LocalStore
from headwater.state.commands.streams import TrimStreams
from headwater.types import Domain, WalId
from tests.support.batches import Rec, batch, values
from tests.support.lake import LakeWorld
from tests.support.virtual_nodes import ONE, NodeWorld, read, send, sent, topic

PROMISES = ("L10",)

OBJECTS, BATCHES, RECORDS = 4, 3, 2
"""Every object has one run of the stream, of some batches of some records."""
PER_OBJECT = BATCHES * RECORDS
TOTAL = OBJECTS * PER_OBJECT
EVERYTHING = [(n, b"value %d" % n) for n in range(TOTAL)]


async def filled(world: NodeWorld, **configs: str) -> int:
    """A stream whose values name their offsets."""
    node = await world.node()
    [stream] = (await topic(node, **configs)).streams
    for first in range(0, TOTAL, PER_OBJECT):
        batches = [
            batch([b"value %d" % (at + i) for i in range(RECORDS)]) for at in range(first, first + PER_OBJECT, 2)
        ]
        await asyncio.gather(*(send(node, stream, data) for data in batches))
    assert len(world.wal_paths()) == OBJECTS
    return stream


def flip(world: NodeWorld, path: str, at: int, bit: int = 1) -> None:
    changed = bytearray(world.store.objects[path])
    changed[at] ^= bit
    world.store.objects[path] = bytes(changed)


def place(world: NodeWorld, path: str, value: int) -> int:
    """The position of a record's value in its object."""
    return world.store.objects[path].index(b"value %d" % value)


def object_of(path: str) -> WalId:
    found = wal.id_of_path(path)
    assert found is not None
    return found


async def readable(node: object, stream: int) -> set[int]:
    """The offsets that a consumer gets that goes on behind whatever it cannot read."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < TOTAL:
        try:
            records = values(await read(node, stream, offset))  # type: ignore[arg-type]
        except DamagedRange as error:
            assert error.bad.start <= offset < error.bad.end
            offset = error.bad.end
            continue
        found.update((n, value) for n, value in records if n >= offset)
        offset = records[-1][0] + 1
    assert found.items() <= dict(EVERYTHING).items(), "damage was delivered as data"
    return set(found)


@pytest.mark.parametrize("configs", [{}, {"message_timestamp_type": "LogAppendTime"}], ids=["as sent", "append time"])
def test_a_flipped_bit_is_kept_to_its_batch(configs: dict[str, str]) -> None:
    """Records before and behind the batch are read. A new CRC for append time never covers damage."""

    async def told() -> None:
        world = NodeWorld()
        stream = await filled(world, **configs)
        path = world.wal_paths()[1]
        flip(world, path, place(world, path, 8))
        other = await world.node(2)
        first = values(await read(other, stream))
        assert first == EVERYTHING[:8], "a read that begins before the range ends there"
        for offset in (8, 9):
            with pytest.raises(DamagedRange) as raised:
                await read(other, stream, offset)
            assert (raised.value.bad.start, raised.value.bad.end, raised.value.bad.path) == (8, 10, path)
        assert values(await read(other, stream, 10)) == EVERYTHING[10:]
        assert await other.wal_object(ONE, object_of(path)) is None, "other brokers do not get it"
        assert await other.wal_object(ONE, object_of(world.wal_paths()[0])) is not None
        assert await readable(other, stream) == set(range(TOTAL)) - {8, 9}

    run(told())


def test_a_missing_object_is_kept_to_its_range() -> None:
    async def told() -> None:
        world = NodeWorld()
        stream = await filled(world)
        path = world.wal_paths()[2]
        kept = world.store.objects.pop(path)
        other = await world.node(2)
        assert await readable(other, stream) == set(range(TOTAL)) - set(range(12, 18))
        [line] = other.damage.lines(10)
        assert (line.topic, line.partition, line.first_offset, line.last_offset, line.object) == ("t", 0, 12, 17, path)
        assert other.damage.lines(10, "other") == []
        shown = {sample.name: sample.samples for sample in other.damage.metrics()}
        [(labels, offsets)] = shown["headwater_damaged_offsets"]
        assert (labels["topic"], labels["first_offset"], labels["object"], offsets) == ("t", "12", path, 6)
        assert await other.wal_object(ONE, object_of(path)) is None, "other brokers do not get it"

        world.store.objects[path] = world.store.objects[world.wal_paths()[0]]
        await asyncio.sleep(RECHECK_SECONDS)
        with pytest.raises(DamagedRange, match="another object"):
            await read(other, stream, 12)
        world.store.objects[path] = kept
        await asyncio.sleep(RECHECK_SECONDS)
        assert await readable(other, stream) == set(range(TOTAL))
        assert other.damage.lines(10) == [] and not other.damage

    run(told())


def test_a_bad_range_is_read_twice_and_then_left_alone_for_a_while() -> None:
    async def told() -> None:
        world = NodeWorld()
        stream = await filled(world)
        path = world.wal_paths()[0]
        sound = world.store.objects[path]
        other = await world.node(2)
        inner, asked = world.store.get_many, 0

        async def once(paths: object) -> list[bytes | None]:
            """The first read is bad, as if the bytes had changed on the way."""
            nonlocal asked
            asked += 1
            world.store.objects[path] = sound
            if asked == 1:
                flip(world, path, place(world, path, 3))
            return await inner(paths)  # type: ignore[arg-type]

        world.store.get_many = once  # type: ignore[method-assign, assignment]
        assert values(await read(other, stream, 2, 1)) == EVERYTHING[2:4]
        assert asked == 2 and not other.damage, "the second read was good"
        world.store.get_many = inner  # type: ignore[method-assign]

        third = await world.node(3)
        flip(world, path, place(world, path, 3))
        before = world.store.reads
        for _ in range(10):
            with pytest.raises(DamagedRange):
                await read(third, stream, 2, 1)
        assert world.store.reads == before + 2

    run(told())


def test_a_range_that_leaves_the_log_is_forgotten() -> None:
    async def told() -> None:
        world = NodeWorld()
        stream = await filled(world)
        del world.store.objects[world.wal_paths()[0]]
        other = await world.node(2)
        with pytest.raises(DamagedRange):
            await read(other, stream)
        assert len(other.damage.lines(10)) == 1
        await other.domains[ONE].submit([TrimStreams([(stream, PER_OBJECT)])])
        assert other.damage.lines(10) == []

    run(told())


def test_a_look_up_by_time_in_a_damaged_range_is_an_error() -> None:
    """It could give a wrong offset. Look-ups that end before the range, or begin behind it, give theirs."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        for time in (10, 20, 30):
            await sent(node, stream, batch([Rec(b"x", None, time)]))
        del world.store.objects[world.wal_paths()[1]]
        other = await world.node(2)
        reader, replica = other.broker.reader, other.domains[ONE]
        for time, offset in ((5, 0), (25, 2)):
            found = await reader.find_time(replica, stream, time)
            assert found is not None and found.offset == offset
        with pytest.raises(DamagedRange):
            await reader.find_time(replica, stream, 15)

    run(told())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_to_an_object_is_delivered(data: st.DataObject) -> None:
    """Whatever happens to the bytes of a run, what is read was stored, at its offset."""
    stored = [batch([b"%d" % (n * 10 + i) for i in range(n + 1)]) for n in range(4)]
    run_bytes = bytearray(b"".join(len(one).to_bytes(4, "big") + one for one in stored))
    for _ in range(data.draw(st.integers(1, 3))):
        run_bytes[data.draw(st.integers(0, len(run_bytes) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    kept = data.draw(st.sampled_from([len(run_bytes), len(run_bytes), data.draw(st.integers(0, len(run_bytes)))]))
    offsets, first_of = 10, {0: 0, 1: 1, 2: 3, 3: 6}
    bodies = [one[21:] for one in stored]
    try:
        before, behind = ReadWal(bytes(run_bytes[:kept])).batches(0, len(run_bytes), offsets), []
    except wal.DamagedRun as error:
        before, behind = error.before, error.behind
        assert len(before) + len(behind) < len(stored)
    at = 0
    for one in before:
        assert first_of[bodies.index(bytes(one[21:]))] == at
        at += sound_offsets(one)
    at = offsets - sum(map(sound_offsets, behind))
    for one in behind:
        assert first_of[bodies.index(bytes(one[21:]))] == at
        at += sound_offsets(one)


def test_the_medium_cannot_read_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input error is damage of that object alone. The others of the same request are read."""

    async def told() -> None:
        store = LocalStore(tmp_path)
        await store.put("wal/a", [b"a"])
        await store.put("wal/b", [b"b"])
        inner = LocalStore._get

        def get(self: LocalStore, path: str, start: int, length: int | None) -> bytes:
            with contextlib.ExitStack() as stack:
                if path == "wal/b":
                    stack.enter_context(monkeypatch.context()).setattr("builtins.open", failing)
                return inner(self, path, start, length)

        def failing(*arguments: object, **options: object) -> object:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(LocalStore, "_get", get)
        with pytest.raises(Damaged, match="medium"):
            await store.get("wal/b")
        cache = WalCache(store, 1 << 20)
        a, b = await cache.load(1, [(WalId(1, 1), "wal/a"), (WalId(1, 2), "wal/b")])
        assert a.pieces() == [b"a"]
        with pytest.raises(Damaged, match="medium"):
            b.pieces()
        await store.close()

    asyncio.run(told())


def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    async def told() -> None:
        world = NodeWorld()
        stream = await filled(world)
        other = await world.node(2)
        for n in range(3 * LOGGED_AT_ONCE):
            for _ in range(3):
                other.damage.note(BadRange(Domain(ONE), stream, n, n + 1, "wal/x", "gone"))
        assert other.damage.found == 9 * LOGGED_AT_ONCE

    with caplog.at_level(logging.ERROR, "headwater.damage"):
        run(told())
    assert len(caplog.records) == LOGGED_AT_ONCE


# --- segments --------------------------------------------------------------------------------------------


async def settled(world: LakeWorld) -> tuple[int, list[str]]:
    """A stream with a segment per object, and the paths of the segments by offset."""
    node = await world.node()
    made = await topic(node)
    [stream] = made.streams
    compaction = await world.compaction(merge_files=1000)
    for first in range(0, TOTAL, PER_OBJECT):
        await sent(node, stream, batch([b"value %d" % (first + i) for i in range(PER_OBJECT)]))
        await asyncio.sleep(0.01)
        await compaction.compactor.round()
    table = compaction.domain.state.tables[made.id]
    files = sorted(table.files.values(), key=lambda file: file.first_offset)
    assert len(files) == OBJECTS
    await compaction.close()
    return stream, [f"{table.root}/{file.name}" for file in files]


@pytest.mark.parametrize("harm", ["missing", "page", "footer", "short"])
def test_a_damaged_segment_is_kept_to_its_range(tmp_path: Path, harm: str) -> None:
    async def told() -> None:
        world = LakeWorld(tmp_path / "objects")
        stream, paths = await settled(world)
        path = paths[1]
        kept = world.store.objects[path]
        if harm == "missing":
            del world.store.objects[path]
        elif harm == "page":
            [group] = SegmentReader(kept[-footer_bytes(kept) :]).groups
            flip(world, path, group.position + group.length // 2)
        elif harm == "footer":
            flip(world, path, len(kept) - 30)
        else:
            world.store.objects[path] = kept[:-20]
        other = await world.node(2)
        assert await readable(other, stream) == set(range(TOTAL)) - set(range(6, 12))
        [line] = other.damage.lines(10)
        assert (line.first_offset, line.last_offset, line.object) == (6, 11, path)
        world.store.objects[path] = kept
        await asyncio.sleep(RECHECK_SECONDS)
        assert await readable(other, stream) == set(range(TOTAL))

    run(told())


def test_sound_batches_are_split() -> None:
    """A run without damage is what `split_batches` would give."""
    stored = [batch([b"a"]), batch([b"b", b"c"])]
    data = b"".join(len(one).to_bytes(4, "big") + one for one in stored)
    assert wal.sound_batches(data, 0, len(data), 3) == split_batches(b"".join(stored))
    with pytest.raises(wal.DamagedRun, match="do not take 4"):
        wal.sound_batches(data, 0, len(data), 4)
