"""Checkpoints: there and back, damage, two kept, and the ledger cut to the older."""

import asyncio

import pytest

from headwater.errors import Damaged, Halted, StoreUnavailable, Truncated
from headwater.ledger.contract import Pointer
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import (
    MAGIC,
    decode_checkpoint,
    encode_checkpoint,
    load_state,
    path_of,
    replay,
    write_checkpoint,
)
from headwater.state.cluster.state import ClusterState
from headwater.state.records import FORMAT
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Pieces, Position
from tests.support.checkpoints import of_format
from tests.support.promise import promise
from tests.support.scribe import Scribe

PROMISES = ("M1",)

ONE = Domain(1)


class World:
    """A ledger that records go to, and what they fold into from the start."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.store: MemoryStore = MemoryStore()
        self.scribe = Scribe(StreamsState(ONE))
        self.scribe.streams(1, 2)

    async def grow(self, records: int) -> None:
        for i in range(records):
            self.scribe.append(1, 1 + i % 2, [(10, 1, i)], [(7, 0, self.scribe.counters[1])])
        for data in self.scribe.records[await self.ledger.last(ONE) :]:
            await self.ledger.append(ONE, data)

    async def checkpoint(self) -> bool:
        return await write_checkpoint(self.ledger, self.store, StreamsState(ONE))

    async def loaded(self) -> StreamsState:
        state = StreamsState(ONE)
        await load_state(self.ledger, self.store, state)
        return state

    async def agrees(self) -> None:
        """Whoever starts now has the whole state."""
        state = await self.loaded()
        await replay(self.ledger, state)
        assert state.image() == self.scribe.state.image()


@promise("M1")
def test_round_trip_and_damage() -> None:
    """Any changed byte, a cut, another domain's: not a checkpoint."""

    async def run() -> None:
        world = World()
        await world.grow(5)
        data = encode_checkpoint(world.scribe.state)
        assert data.startswith(MAGIC)
        state = StreamsState(ONE)
        decode_checkpoint(data, state)
        assert state.image() == world.scribe.state.image()
        for i in range(len(data)):
            damaged = bytearray(data)
            damaged[i] ^= 0x41
            with pytest.raises(Damaged):
                decode_checkpoint(bytes(damaged), StreamsState(ONE))
        for cut in (0, 5, 22, 23, len(data) - 1):
            with pytest.raises(Damaged):
                decode_checkpoint(data[:cut], StreamsState(ONE))
        with pytest.raises(Damaged):
            decode_checkpoint(data, StreamsState(Domain(2)))
        with pytest.raises((Damaged, Halted)):
            decode_checkpoint(data, ClusterState())

    asyncio.run(run())


@promise("M5")
def test_a_checkpoint_of_another_format() -> None:
    """It is refused with what to do, and not taken for a damaged one whose predecessor would be read instead."""

    async def run() -> None:
        world = World()
        await world.grow(5)
        await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        await world.store.put(pointer.path, [of_format(world.store.objects[pointer.path], FORMAT - 1)])
        with pytest.raises(Halted, match=f"the checkpoint has format {FORMAT - 1}, .* reads format {FORMAT} only"):
            await world.loaded()

    asyncio.run(run())


@promise("M1")
def test_a_record_that_cannot_be_read_is_named() -> None:
    """An operator has to find it."""

    async def run() -> None:
        world = World()
        await world.grow(2)
        await world.ledger.append(ONE, world.scribe.records[-1][:-1])
        with pytest.raises(Halted, match=r"record 4 of domain 1: .* damaged"):
            await world.agrees()

    asyncio.run(run())


@promise("M1")
def test_two_are_kept_and_the_ledger_is_cut_to_the_older() -> None:
    async def run() -> None:
        world = World()
        assert not await world.checkpoint(), "nothing to keep yet"
        ends = []
        for round_ in range(1, 5):
            await world.grow(10)
            ends.append(await world.ledger.last(ONE))
            assert await world.checkpoint()
            assert not await world.checkpoint(), "nothing new"
            pointer = await world.ledger.pointer(ONE)
            assert pointer is not None
            assert pointer.position == ends[-1]
            older = pointer.older[0] if pointer.older else None
            assert older == (ends[-2] if round_ > 1 else None)
            kept = {pointer.path} | ({pointer.older[1]} if pointer.older else set())
            assert set(world.store.objects) == kept
            if older is None:
                assert len(await world.ledger.read(ONE, Position(0), 1000)) == ends[-1]
            else:
                assert len(await world.ledger.read(ONE, older, 1000)) == 10
                with pytest.raises(Truncated):
                    await world.ledger.read(ONE, Position(older - 1), 1)
            await world.agrees()

    asyncio.run(run())


@promise("M1")
@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_a_damaged_newest_falls_back_to_the_older(damage: str) -> None:
    """One bad object loses nothing."""

    async def run() -> None:
        world = World()
        for _ in range(3):
            await world.grow(10)
            await world.checkpoint()
        await world.grow(3)
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        objects = world.store.objects
        if damage == "missing":
            del objects[pointer.path]
        elif damage == "cut":
            objects[pointer.path] = objects[pointer.path][:-1]
        else:
            objects[pointer.path] = objects[pointer.path][:-1] + b"\xff"
        assert pointer.older is not None
        assert (await world.loaded()).position == pointer.older[0]
        await world.agrees()
        assert await world.checkpoint(), "and the next one heals it"
        assert (await world.loaded()).position == await world.ledger.last(ONE)
        await world.agrees()

    asyncio.run(run())


@promise("M1")
def test_both_damaged_is_said() -> None:
    """A state is never made up."""

    async def run() -> None:
        world = World()
        for _ in range(2):
            await world.grow(10)
            await world.checkpoint()
        for path in world.store.objects:
            world.store.objects[path] = b"rubbish"
        pointer, ends = await world.ledger.pointer(ONE), await world.ledger.last(ONE)
        assert pointer is not None and pointer.older is not None
        with pytest.raises(Damaged, match="start from a backup") as told:
            await world.loaded()
        assert pointer.path in str(told.value) and pointer.older[1] in str(told.value)
        with pytest.raises(Damaged):
            await world.checkpoint()
        assert (await world.ledger.pointer(ONE), await world.ledger.last(ONE)) == (pointer, ends)

    asyncio.run(run())


@promise("M1")
def test_one_bad_bit_in_the_only_one() -> None:
    """The ledger was never truncated, so its records give the whole state, whichever bit it is."""

    async def run() -> None:
        world = World()
        await world.grow(10)
        assert await world.checkpoint()
        await world.grow(3)
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None and pointer.older is None
        sound = world.store.objects[pointer.path]
        for bit in [*range(24 * 8), 100 * 8, len(sound) * 8 - 1]:
            damaged = bytearray(sound)
            damaged[bit // 8] ^= 1 << bit % 8
            world.store.objects[pointer.path] = bytes(damaged)
            state = StreamsState(ONE)
            [bad] = await load_state(world.ledger, world.store, state)
            assert bad.path == pointer.path and state.position == 0
            await world.agrees()

    asyncio.run(run())


@promise("M1")
@pytest.mark.parametrize("grown", [0, 3])
def test_a_new_one_replaces_the_damaged_one(grown: int) -> None:
    """Also if there is nothing new. The damaged one never becomes the older one, and no record is truncated for it."""

    async def run() -> None:
        world = World()
        await world.grow(10)
        await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        world.store.objects[pointer.path] = b"rubbish"
        await world.grow(grown)
        assert await world.checkpoint()
        mended = await world.ledger.pointer(ONE)
        assert mended is not None and mended.older is None
        assert mended.position == await world.ledger.last(ONE) and set(world.store.objects) == {mended.path}
        assert await load_state(world.ledger, world.store, StreamsState(ONE)) == []
        assert len(await world.ledger.read(ONE, Position(0), 1000)) == await world.ledger.last(ONE)
        await world.agrees()
        assert not await world.checkpoint(), "nothing is damaged or new"

    asyncio.run(run())


@promise("M1")
def test_the_older_one_stays_while_the_newest_is_damaged() -> None:
    """Two that can be read are needed again before more of the ledger goes."""

    async def run() -> None:
        world = World()
        for _ in range(3):
            await world.grow(10)
            await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None and pointer.older is not None
        world.store.objects[pointer.path] = b"rubbish"
        await world.grow(5)
        assert await world.checkpoint()
        mended = await world.ledger.pointer(ONE)
        assert mended is not None and mended.older == pointer.older
        assert set(world.store.objects) == {mended.path, pointer.older[1]}
        world.store.objects[mended.path] = b"rubbish, too"
        await world.agrees()

    asyncio.run(run())


@promise("M1")
def test_a_ledger_that_lost_its_end_is_no_substitute() -> None:
    """The damaged checkpoint had records that the ledger no longer has: a state without them would be wrong."""

    async def run() -> None:
        world = World()
        await world.grow(10)
        await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        world.store.objects[pointer.path] = b"rubbish"
        lost = MemoryLedger()
        for entry in (await world.ledger.read(ONE, Position(0), 1000))[:-1]:
            await lost.append(ONE, entry.data)
        await lost.set_pointer(ONE, Position(0), pointer)
        world.ledger = lost
        with pytest.raises(Damaged, match="no longer has all records"):
            await world.loaded()

    asyncio.run(run())


@promise("M1")
def test_it_is_verified_by_reading_back() -> None:
    """A store that does not keep what it was given gets no pointer, and nothing is truncated."""

    class Rotten(MemoryStore):
        async def put(self, path: str, pieces: Pieces) -> None:
            await super().put(path, [b"".join(pieces)[:-1] + b"?"])

    async def run() -> None:
        world = World()
        await world.grow(10)
        await world.checkpoint()
        before = await world.ledger.pointer(ONE)
        world.store.objects = dict(world.store.objects)
        good, world.store = world.store, Rotten()
        world.store.objects = good.objects
        await world.grow(10)
        with pytest.raises(Damaged, match="read back"):
            await world.checkpoint()
        assert await world.ledger.pointer(ONE) == before
        assert len(await world.ledger.read(ONE, Position(0), 1000)) == await world.ledger.last(ONE)
        await world.agrees()

    asyncio.run(run())


class Racing(MemoryStore):
    """Lets somebody else write a checkpoint between reading back and pointing."""

    def __init__(self, world: World, others: list[int]) -> None:
        super().__init__()
        self.world = world
        self.others = others
        """By how many records the ledger grows before each other checkpoint."""

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(path, start, length)
        others, self.others = self.others, []
        for records in others:
            await self.world.grow(records)
            assert await write_checkpoint(self.world.ledger, self, StreamsState(ONE))
        return data


@promise("M1")
@pytest.mark.parametrize("others", [[0], [5], [0, 5], [5, 5], [0, 5, 5]])
def test_who_comes_second_harms_nobody(others: list[int]) -> None:
    """It removes what it wrote, unless that is the very object that the quicker one points to."""

    async def run() -> None:
        world = World()
        store = world.store = Racing(world, list(others))
        await world.grow(10)
        assert not await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        assert pointer.position == await world.ledger.last(ONE)
        assert set(store.objects) == {pointer.path} | ({pointer.older[1]} if pointer.older else set())
        await world.agrees()

    asyncio.run(run())


@promise("M1")
def test_an_older_one_meanwhile_does_not_stop_a_newer() -> None:
    """A checkpoint is good also if the pointer moved to an older one while it was written."""

    async def run() -> None:
        world = World()
        await world.grow(10)
        older = Scribe(StreamsState(ONE))
        await replay(world.ledger, older.state)
        await world.grow(10)

        class Late(MemoryStore):
            async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
                if not await world.ledger.pointer(ONE):
                    late = path_of(ONE, older.state.position, older.state.digest)
                    await self.put(late, [encode_checkpoint(older.state)])
                    await world.ledger.set_pointer(ONE, Position(0), Pointer(older.state.position, late))
                return await super().get(path, start, length)

        world.store = Late()
        assert await world.checkpoint()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        assert pointer.older is not None
        assert (pointer.position, pointer.older[0]) == (await world.ledger.last(ONE), older.state.position)
        assert set(world.store.objects) == {pointer.path, pointer.older[1]}
        await world.agrees()

    asyncio.run(run())


@promise("M1")
def test_a_pointer_ahead_of_us_only() -> None:
    """Loading never takes a state back."""

    async def run() -> None:
        world = World()
        await world.grow(10)
        await world.checkpoint()
        await world.grow(10)
        state = StreamsState(ONE)
        await replay(world.ledger, state)
        before = state.image()
        await load_state(world.ledger, world.store, state)
        assert state.image() == before

    asyncio.run(run())


@promise("M1")
def test_a_store_that_is_away_is_not_a_damaged_checkpoint() -> None:
    """What cannot be reached may be there in a moment; falling back would hide it."""

    class Away(MemoryStore):
        async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
            raise StoreUnavailable("away")

    async def run() -> None:
        world = World()
        await world.grow(10)
        await world.checkpoint()
        with pytest.raises(StoreUnavailable):
            await load_state(world.ledger, Away(), StreamsState(ONE))

    asyncio.run(run())


@promise("M1")
def test_paths() -> None:
    """Golden: where checkpoints lie."""
    assert path_of(Domain(3), Position(42), 0xBEEF) == (
        "meta/v1/domain=3/checkpoint/00000000000000000042-0000beef.ckpt"
    )
    assert Pointer(Position(1), "x").older is None
