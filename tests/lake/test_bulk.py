"""Rows appended in bulk are in the log and in both tables, once, in their order, whoever dies on the way."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from harness.virtual import EPOCH_MS, run
from headwater.app.doctor.examining import check_references, check_reservations, check_stream
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_segments, check_tables
from headwater.app.node import Node
from headwater.client.partitioner import partition_of_key
from headwater.errors import NotFound, OutcomeUnknown, StoreUnavailable
from headwater.state.cluster.domain import Topic
from headwater.state.commands.base import Tick
from headwater.state.commands.tables import Reserve
from headwater.state.results import Done
from tests.support.batches import Rec, batch
from tests.support.bulk import Loader, numbered, rows
from tests.support.lake import ONE, Fate, LakeWorld, Row, files_left, log_rows
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("L8",)

FETCH, LIST, TRIM = 1, 2, 21
LATEST, LARGEST = -1, -3


async def fetch(node: Node, offset: int, wait_ms: int = 0) -> Any:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    limits = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    response = await Caller(node)(FETCH, 11, topics=[{"topic": "t", "partitions": [wanted]}], **limits)
    return response.responses[0].partitions[0]


async def list_offset(node: Node, timestamp: int) -> int:
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    response = await Caller(node)(LIST, 7, topics=wanted)
    return int(response.topics[0].partitions[0].offset)


async def trim(node: Node, offset: int) -> tuple[ErrorCode, int]:
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    response = await Caller(node)(TRIM, 2, topics=wanted)
    answer = response.topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


async def caught_up(node: Node) -> None:
    await node.domains[ONE].barrier()


def examined(node: Node) -> list[str]:
    """What the doctor finds."""
    report, state = Report(), node.domains[ONE].state
    for stream in state.streams.values():
        check_stream(stream, report)
    check_references(state, report)
    check_reservations(state, report)
    check_tables(state, report)
    return sorted({finding.check for finding in report.findings})


def sound(node: Node) -> None:
    assert examined(node) == []


async def agreed(world: LakeWorld, node: Node, made: Topic) -> list[Row]:
    """What is in the log, after it was settled and followed; both tables hold the same."""
    compaction = await world.compaction()
    await compaction.finish()
    await caught_up(node)
    sound(node)
    world.lay_out()
    in_log = await log_rows(node, made)
    assert world.iceberg_rows(node, made) == in_log
    assert world.delta_rows(node, made) == in_log
    stored, known = files_left(world, node)
    assert stored == known
    report = Report()
    await check_segments(world.store, node.domains[ONE].state, report)
    assert report.findings == []
    state = node.domains[ONE].state
    assert all(s.settled == s.end == s.next_offset for s in state.streams.values())
    await compaction.close()
    return in_log


def in_world(tmp_path: Path, story: Any) -> None:
    async def main() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        await story(world, node)
        await node.stop()

    run(main())


# --- in the log and in the tables -----------------------------------------------------------------------------


@promise("L8", "T3")
def test_rows_go_into_the_log_and_both_tables(tmp_path: Path) -> None:
    """Between what producers wrote, spread by the hash of their keys, in their order."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, partitions=3)
        for partition, stream in enumerate(made.streams):
            await sent(node, stream, batch([Rec(b"before-%d" % partition, timestamp=5)]))
        loader = await Loader(world).start()
        bulk = loader.bulk(made, rows_per_file=20)
        written = await bulk.append(numbered(50))
        assert (written.records, written.files) == (50, 3)
        for partition, stream in enumerate(made.streams):
            await sent(node, stream, batch([Rec(b"after-%d" % partition)]))
        await caught_up(node)
        in_log = await log_rows(node, made)  # from WAL and segments
        expected: list[tuple[int, bytes]] = []
        for p in range(3):
            mine = [i for i in range(50) if partition_of_key(b"k%d" % i, 3) == p]
            assert written.partitions[p] == (len(mine), 1, len(mine))
            expected += [(p, b"before-%d" % p), *((p, b"bulk-%d" % i) for i in mine), (p, b"after-%d" % p)]
        assert [(p, v) for p, _, _, _, v, _ in in_log] == expected
        assert [t for *_, t, k, _, _ in in_log if k is not None and k == b"k7"] == [1_007]
        assert await agreed(world, node, made) == in_log
        state = node.domains[ONE].state
        known = state.typed[made.id]
        assert known.files.keys() == state.tables[made.id].files.keys(), "every segment has a digest"
        assert all(known.files[file.number].digest for file in state.tables[made.id].live())
        first = next(i for i in range(20, 50) if partition_of_key(b"k%d" % i, 3) == 0)
        assert in_log[await list_offset(node, 1_020)][4] == b"bulk-%d" % first
        await loader.close()

    in_world(tmp_path, story)


@promise("L8")
def test_without_keys_the_files_take_turns(tmp_path: Path) -> None:
    """And a partition that is asked for gets all; headers, nulls and times are as they were given."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, partitions=3, message_timestamp_after_max_ms=str(1 << 61))
        loader = await Loader(world).start()
        pieces = [rows([(None, b"%d" % i, None)], [("h", b"1"), ("h", None)]) for i in range(8)]
        written = await loader.bulk(made, rows_per_file=2).append(pieces)
        assert {p: count for p, (count, _, _) in written.partitions.items()} == {0: 4, 1: 2, 2: 2}
        await loader.bulk(made, partition=1).append([rows([(b"k", None, -5), (b"", b"", 1 << 60)])])
        in_log = await agreed(world, node, made)
        assert [(p, v) for p, *_, v, _ in in_log if p != 1] == [
            (0, b"0"), (0, b"1"), (0, b"6"), (0, b"7"), (2, b"4"), (2, b"5")
        ]  # fmt: skip
        now = [t for p, _, t, *_ in in_log if p != 1]
        assert all(EPOCH_MS <= t < EPOCH_MS + 60_000 for t in now)
        assert in_log[0][5] == (("h", b"1"), ("h", None))
        assert [row[1:5] for row in in_log if row[0] == 1][2:] == [(2, -5, b"k", None), (3, 1 << 60, b"", b"")]
        await loader.close()

    in_world(tmp_path, story)


@promise("L8", "T5")
def test_small_bulk_segments_are_merged_with_the_others(tmp_path: Path) -> None:
    """Also where files were entered in another order than that of their offsets."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, partitions=2)
        loader = await Loader(world).start()
        compaction = await world.compaction(merge_files=3)
        for number in range(6):
            for stream in made.streams:
                await sent(node, stream, batch([Rec(b"wal-%d" % number)]))
            await loader.bulk(made, rows_per_file=4).append(numbered(8, 100 * number))
            if number % 2:
                await compaction.round()
        await compaction.finish()
        await caught_up(node)
        table = node.domains[ONE].state.tables[made.id]
        assert compaction.compactor.merged_files >= 6
        assert len(list(table.live())) <= 6
        await compaction.close()
        in_log = await agreed(world, node, made)
        assert len(in_log) == 6 * (2 + 8)
        await loader.close()

    in_world(tmp_path, story)


@promise("L8", "T5")
def test_a_large_bulk_segment_does_not_keep_others_from_merging(tmp_path: Path) -> None:
    """It may lie between small files that were entered after it."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        loader = await Loader(world).start()
        await sent(node, made.streams[0], batch([Rec(b"first")]))
        await loader.bulk(made).append(numbered(2_000))
        compaction = await world.compaction(merge_files=3, small_file_bytes=9_000)
        for number in range(8):
            await sent(node, made.streams[0], batch([Rec(b"wal-%d" % number)]))
            await asyncio.sleep(0.01)
            await compaction.round()
        await compaction.finish()
        assert compaction.compactor.merged_files >= 3
        await compaction.close()
        assert len(await agreed(world, node, made)) == 2_009
        await loader.close()

    in_world(tmp_path, story)


# --- readers and an open reservation ------------------------------------------------------------------------------


def stopped(world: LakeWorld) -> None:
    """Files cannot be stored until the gate is opened again."""
    world.store.gate.clear()


async def reserved(node: Node, count: int = 1) -> None:
    """Until so many reservations are open."""
    while len(node.domains[ONE].state.reservations) < count:
        await asyncio.sleep(0.01)


@promise("L8")
def test_readers_stop_before_it_and_wake_when_it_is_filled(tmp_path: Path) -> None:
    """Fetch, ListOffsets by place and time, DeleteRecords and retention see the log end there."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, retention_ms="1000", message_timestamp_before_max_ms=str(1 << 60))
        [stream] = made.streams
        await sent(node, stream, batch([Rec(b"one", timestamp=EPOCH_MS)]))
        loader = await Loader(world).start()
        stopped(world)
        now = EPOCH_MS + 5_000
        work = asyncio.create_task(loader.bulk(made).append([rows([(None, b"two", now), (None, b"three", now)])]))
        await reserved(node)
        later = asyncio.create_task(sent(node, stream, batch([Rec(b"four", timestamp=now + 1)])))
        waiting = asyncio.create_task(fetch(node, 1, wait_ms=60_000))
        first = await fetch(node, 0)
        assert (first.high_watermark, first.last_stable_offset) == (1, 1)
        assert await list_offset(node, LATEST) == 1
        assert await list_offset(node, now) == -1
        assert (await fetch(node, 2)).error_code is ErrorCode.offset_out_of_range
        assert (await trim(node, 2))[0] is ErrorCode.offset_out_of_range
        await asyncio.sleep(1)
        assert not waiting.done()
        world.store.gate.set()
        written = await work
        assert written.partitions[0] == (2, 1, 2)
        assert (await later).offset == 3
        woken = await waiting
        assert woken.high_watermark >= 3
        assert len(woken.records) > 0
        assert await list_offset(node, now) == 1
        assert await list_offset(node, LATEST) == 4
        await loader.close()

    in_world(tmp_path, story)


@promise("L8")
def test_appends_behind_an_open_reservation_come_later(tmp_path: Path) -> None:
    """They are acknowledged at once, and seen when it is closed; deletions and retention do not pass it."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, retention_ms="0", message_timestamp_before_max_ms=str(1 << 60))
        [stream] = made.streams
        await sent(node, stream, batch([Rec(b"one", timestamp=5)]))
        loader = await Loader(world).start()
        [result] = await loader.domain.submit([Reserve(made.id, [(stream, 3)], 10_000)])
        assert isinstance(result, Done)
        assert (await sent(node, stream, batch([Rec(b"five", timestamp=2 * EPOCH_MS)]))).offset == 4
        await caught_up(node)
        found = await fetch(node, 0)
        assert found.high_watermark == 1
        assert (await list_offset(node, 6), await list_offset(node, LARGEST)) == (-1, 0)
        waiting = asyncio.create_task(fetch(node, 1, wait_ms=600_000))
        await node.housekeeper.round()
        assert node.domains[ONE].state.streams[stream].log_start == 1
        assert node.housekeeper.released_reservations == 0
        assert await trim(node, -1) == (ErrorCode.none, 1)
        await asyncio.sleep(30)
        assert not waiting.done()
        await node.housekeeper.round()
        assert node.housekeeper.released_reservations == 1
        assert (await waiting).high_watermark == 5
        assert (await list_offset(node, 6), await list_offset(node, LARGEST)) == (4, 4)
        await node.housekeeper.round()
        assert node.domains[ONE].state.streams[stream].log_start == 1, "a gap goes with the records behind it"
        assert await trim(node, 4) == (ErrorCode.none, 4)
        sound(node)
        await loader.close()

    in_world(tmp_path, story)


@promise("L8")
def test_what_comes_too_late_is_appended_once_more(tmp_path: Path) -> None:
    """A store that takes longer than a reservation lasts leaves a gap, and no file that nobody knows."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        loader = await Loader(world).start()
        await node.housekeeper.round()
        stopped(world)
        work = asyncio.create_task(loader.bulk(made, reserved_ms=2_000).append(numbered(3)))
        await reserved(node)
        await asyncio.sleep(60)
        await node.housekeeper.round()
        world.store.gate.set()
        assert (await work).partitions[0] == (3, 3, 5)
        assert [row[1] for row in await agreed(world, node, made)] == [3, 4, 5]
        await loader.close()

    in_world(tmp_path, story)


@promise("L8", "O6")
def test_what_the_doctor_finds(tmp_path: Path) -> None:
    """Reservations, the entries they hold and the head say the same; what is settled is all that can be."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        [name] = made.streams
        await sent(node, name, batch([Rec(b"one")]))
        loader = await Loader(world).start()
        await loader.bulk(made).append(numbered(3))
        await loader.domain.submit([Reserve(made.id, [(name, 2)], 60_000)])
        await sent(node, name, batch([Rec(b"last")]))
        await caught_up(node)
        state = node.domains[ONE].state
        stream, [found] = state.streams[name], state.reservations.values()
        assert (stream.settled, stream.end, stream.next_offset) == (0, 4, 7)
        sound(node)
        stream.open = ()
        assert examined(node) == ["reservations"]
        stream.open = (4,)
        del state.reservations[found.number]
        assert examined(node) == ["reservations"]
        for wrong in (
            msgspec.structs.replace(found, parts=((name, 4, 6), (name, 9, 10))),
            msgspec.structs.replace(found, parts=((name, 4, 5),)),
            msgspec.structs.replace(found, owner=0, number=99),
        ):
            state.reservations = {wrong.number: wrong}
            assert examined(node) == ["reservations"]
        state.reservations = {found.number: found}
        for settled, findings in ((1, ["heads"]), (4, ["heads"]), (7, ["heads"]), (0, [])):
            stream.settled = settled
            assert examined(node) == findings
        await loader.close()

    in_world(tmp_path, story)


# --- failures -------------------------------------------------------------------------------------------------------


@promise("L8")
def test_a_store_that_fails_now_and_then(tmp_path: Path) -> None:
    """A file is tried again; every row is there once."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node, partitions=2)
        loader = await Loader(world).start()
        world.store.put_errors = [StoreUnavailable("no"), StoreUnavailable("no")]
        written = await loader.bulk(made, rows_per_file=4).append(numbered(12))
        assert (written.records, written.files) == (12, 3)
        in_log = await agreed(world, node, made)
        assert sorted(row[4] or b"" for row in in_log) == sorted(b"bulk-%d" % i for i in range(12))
        await loader.close()

    in_world(tmp_path, story)


@promise("L8")
def test_a_store_that_fails_for_good(tmp_path: Path) -> None:
    """Nothing is left behind but gaps, and the error says what is in the log."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        loader = await Loader(world).start()
        bulk = loader.bulk(made, rows_per_file=4)

        def breaking() -> Any:
            yield from numbered(4)
            world.store.put_errors = [StoreUnavailable("no")] * 100
            yield from numbered(4, 4)

        with pytest.raises(StoreUnavailable, match="first 4 records are in the log"):
            await bulk.append(breaking())
        world.store.put_errors = []
        assert [row[4] for row in await agreed(world, node, made)] == [b"bulk-%d" % i for i in range(4)]
        await loader.close()

    in_world(tmp_path, story)


@promise("L8")
def test_a_topic_deleted_meanwhile(tmp_path: Path) -> None:
    """The append fails, and nothing of it stays."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        other = await topic(node, "other")
        await sent(node, other.streams[0], batch([Rec(b"x")]))
        loader = await Loader(world).start()
        stopped(world)
        work = asyncio.create_task(loader.bulk(made).append(numbered(3)))
        await reserved(node)
        await node.broker.topics.delete(made)
        world.store.gate.set()
        with pytest.raises(NotFound, match="could be reserved"):
            await work
        await loader.close()
        assert len(await agreed(world, node, other)) == 1
        assert node.domains[ONE].state.reservations == {}

    in_world(tmp_path, story)


@promise("L8")
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize("loses", ["nothing", "its epoch", "its place"])
def test_a_fill_of_unknown_outcome(tmp_path: Path, lands: bool, loses: str) -> None:
    """The reply is lost. The rows are in the log once, also if the loader is fenced then, or the ledger cut."""

    async def story(world: LakeWorld, node: Node) -> None:
        made = await topic(node)
        loader = await Loader(world).start()
        stopped(world)
        work = asyncio.create_task(loader.bulk(made).append(numbered(3)))
        await reserved(node)
        epoch = loader.membership.epoch
        loader.way.faults.append((lands, OutcomeUnknown("the reply was lost")))
        if loses != "nothing":
            loader.way.faults += [(False, OutcomeUnknown("lost on the way"))] * 4
            loader.way.deaf = True
        world.store.gate.set()
        await asyncio.sleep(0.06)
        if loses == "its epoch":
            [member] = [m for m in node.cluster.state.processes.values() if m.epoch == epoch]
            await node.membership.fence(member)
        elif loses == "its place":
            for _ in range(2):
                await node.domains[ONE].submit([Tick()])
                await node.checkpoint_here(ONE)
        loader.way.deaf = False
        written = await work
        start = 3 if loses == "its epoch" and not lands else 0
        assert written.partitions[0] == (3, start, start + 2)
        assert [(row[1], row[4]) for row in await agreed(world, node, made)] == [
            (start + i, b"bulk-%d" % i) for i in range(3)
        ]
        assert (loader.membership.epoch == epoch) is (loses == "nothing")
        await loader.close()

    in_world(tmp_path, story)


# --- deaths ---------------------------------------------------------------------------------------------------------

PORTIONS = 3
EACH = 6


async def load(loader: Loader, made: Topic, node: Node) -> None:
    """Portions of rows, with records of producers between them."""
    for number in range(PORTIONS):
        for stream in made.streams:
            await sent(node, stream, batch([Rec(b"wal-%d" % number)]))
        await loader.bulk(made, rows_per_file=EACH).append(numbered(EACH, EACH * number))


async def death(world: LakeWorld, fate: Fate) -> list[str]:
    """Load until the loader dies or all is done; others go on, and the log and the tables agree."""
    node = await world.node()
    made = await topic(node, partitions=2)
    loader = await Loader(world, fate=fate).start()
    await fate.outlived(load(loader, made, node))
    waiting = asyncio.create_task(fetch(node, node.domains[ONE].state.streams[made.streams[0]].end, wait_ms=600_000))
    await loader.abandon()
    for stream in made.streams:
        await sent(node, stream, batch([Rec(b"last")]))
    await asyncio.sleep(10)  # of virtual time: the broker sees that the beats have stopped
    assert (await waiting).error_code is ErrorCode.none
    assert node.domains[ONE].state.reservations == {}
    second = await Loader(world, 2).start()
    await second.bulk(made).append(numbered(4, word=b"again"))
    in_log = await agreed(world, node, made)
    found = [row[4] or b"" for row in in_log]
    in_bulk = [v for v in found if v.startswith((b"bulk", b"again"))]
    assert len(set(in_bulk)) == len(in_bulk), "no row twice"
    for number in range(PORTIONS):
        portion = [b"bulk-%d" % i for i in range(EACH * number, EACH * (number + 1))]
        assert sum(v in found for v in portion) in (0, EACH), "all rows of a file, or none"
    assert {v for v in found if v.startswith(b"again")} == {b"again-%d" % i for i in range(4)}
    assert found.count(b"last") == 2
    await second.close()
    await node.stop()
    return fate.steps


def steps_of(tmp_path: Path) -> list[str]:
    return run(death(LakeWorld(tmp_path / "objects"), Fate()))


@promise("L8")
def test_nobody_dies(tmp_path: Path) -> None:
    """The story itself; a portion is a reservation, a file and what fills it."""
    steps = steps_of(tmp_path)
    assert steps.count("put _data") == PORTIONS
    assert sum(step.startswith("append ") for step in steps) >= 2 * PORTIONS


@promise("L8")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_write(tmp_path: Path, after: bool) -> None:
    """Dying before or after any write leaves whole files or none, and readers go on."""
    for step in range(len(steps_of(tmp_path))):
        fate = Fate(step, after=after)
        try:
            run(death(LakeWorld(tmp_path / "objects"), fate))
        except BaseException as error:
            raise AssertionError(f"died {'after' if after else 'before'} write {step}: {fate.steps[-1]}") from error
