"""Records that cannot be decoded are in the dead-letter topic once, by compactors in virtual time."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.node import Node
from headwater.replica.schema_sources import Draft
from headwater.replica.schemas import Registry
from headwater.security.guard import Guard
from headwater.settings.settings import Security
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.commands.access import PutAcls
from headwater.state.commands.columns import WantDecoded
from tests.lake.test_typed import POINT, encoded, produce, told, values_of
from tests.support.lake import ONE, Fate, LakeWorld, Row, log_rows
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.virtual_nodes import topic

PROMISES = ("T7", "S2")

DLQ = {"headwater_value_schema": "json", "headwater_dlq_topic": "dlq"}


def origins(letters: list[Row]) -> list[tuple[int, int]]:
    """Partition and offset of the records that letters are copies of, in the order of the letters."""
    found = []
    for *_, headers in letters:
        said = dict(headers)
        found.append((int(said["headwater.dlq.partition"] or b""), int(said["headwater.dlq.offset"] or b"")))
    return found


async def letters_in(node: Node, dlq: Topic) -> list[Row]:
    await node.domains[ONE].barrier()
    return await log_rows(node, dlq)


@promise("T7")
def test_each_bad_record_becomes_one_letter(tmp_path: Path) -> None:
    """With its bytes, its place and the reason; merges and further rounds add none."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        dlq = await topic(node, name="dlq", partitions=2)
        made = await topic(node, partitions=3, **DLQ)
        compaction = await world.compaction()
        for number in range(6):
            await produce(node, made, *told({"n": number}), b"bad %d" % number, *told({"n": -number}))
            await compaction.round()
        await compaction.finish()
        assert compaction.compactor.merged_files
        letters = await letters_in(node, dlq)
        assert sorted(origins(letters)) == [(p, 3 * n + 1) for p in range(3) for n in range(6)]
        assert sorted({row[0] for row in letters}) == [0, 1]
        first = next(row for row in letters if origins([row]) == [(2, 4)])
        said = dict(first[5])
        assert first[4] == b"bad 1" and said["headwater.dlq.topic"] == b"t"
        assert said["headwater.dlq.error.class"] == b"bad-data" and said["headwater.dlq.error.text"]
        assert "headwater.dlq.schema.id" not in said
        assert compaction.letters.written == {"t": 18} and not compaction.letters.alerts
        await node.domains[ONE].submit([WantDecoded(made.id, True)])
        await compaction.finish()
        assert compaction.compactor.rewritten_files
        assert len(await letters_in(node, dlq)) == 18
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_a_schema_that_is_mended_fills_the_columns(tmp_path: Path) -> None:
    """After the schema is there the rows are decoded again; their letters stay, and no new ones come."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        registry = Registry(node.domains.cluster)
        dlq = await topic(node, name="dlq")
        made = await topic(node, headwater_value_schema="auto", headwater_dlq_topic="dlq")
        compaction = await world.compaction()
        await produce(node, made, encoded(POINT, 1, {"x": 1}), struct.pack(">bI", 0, 77) + b"?")
        await compaction.finish(2)
        letters = await letters_in(node, dlq)
        assert [dict(row[5])["headwater.dlq.schema.id"] for row in letters] == [b"1", b"77"]
        _, known = await registry.register("t-value", Draft("AVRO", json.dumps(POINT)))
        assert known.id == 1
        await asyncio.sleep(60)
        await node.domains[ONE].submit([WantDecoded(made.id, False)])
        await compaction.finish()
        assert await values_of(world, node, made) == [{"x": 1}, None]
        assert len(await letters_in(node, dlq)) == 2
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_letters_wait_for_their_topic(tmp_path: Path) -> None:
    """A dead-letter topic that does not exist or has one itself is an alert, and settling goes on."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, **DLQ)
        compaction = await world.compaction()
        await produce(node, made, b"bad")
        await compaction.finish(2)
        assert "does not exist" in compaction.letters.alert
        assert node.domains[ONE].state.streams[made.streams[0]].settled == 1
        dlq = await topic(node, name="dlq", headwater_dlq_topic="t")
        await asyncio.sleep(60)
        await compaction.round()
        assert "has one itself" in compaction.letters.alert
        await node.broker.topics.alter(dlq, {}, ["headwater.dlq.topic"])
        await asyncio.sleep(60)
        await produce(node, made, b"worse")
        await compaction.finish(2)
        assert not compaction.letters.alert
        assert origins(await letters_in(node, dlq)) == [(0, 0), (0, 1)]
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7", "S2")
def test_letters_wait_while_who_set_their_topic_has_lost_the_right(tmp_path: Path) -> None:
    """They come once the right is there again."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        dlq = await topic(node, name="dlq")
        made = await topic(node, **DLQ, headwater_dlq_setter="127.0.0.1 User:eve")
        read, write = rule("User:eve", Operation.READ, "t"), rule("User:eve", Operation.WRITE, "dlq")
        await node.cluster.submit([PutAcls((read,))])
        compaction = await world.compaction()
        compaction.letters._guard = Guard(Security(acls=True), compaction.domains.cluster.state.access)
        await produce(node, made, b"bad")
        await compaction.finish(2)
        assert "User:eve has set the dead-letter topic" in compaction.letters.alert
        assert not await letters_in(node, dlq)
        await node.cluster.submit([PutAcls((write,))])
        await asyncio.sleep(60)
        await compaction.finish(2)
        assert not compaction.letters.alert and origins(await letters_in(node, dlq)) == [(0, 0)]
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_a_large_record_is_a_letter_without_its_value(tmp_path: Path) -> None:
    """A letter never exceeds what its topic takes; a header says what was left out."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        dlq = await topic(node, name="dlq", max_message_bytes="2000")
        made = await topic(node, **DLQ)
        compaction = await world.compaction()
        await produce(node, made, b"x" * 5_000, b"short")
        await compaction.finish(2)
        letters = await letters_in(node, dlq)
        assert [row[4] for row in letters] == [None, b"short"]
        assert dict(letters[0][5])["headwater.dlq.left.out"] == b"value"
        await compaction.close()
        await node.stop()

    run(story())


async def _killed(directory: Path, writes: int, after: bool) -> bool:
    """A story whose compactor dies at one of its writes; whether it came so far."""
    world = LakeWorld(directory)
    node = await world.node()
    dlq = await topic(node, name="dlq")
    made = await topic(node, partitions=2, **DLQ)
    doomed = await world.compaction(Fate(writes, after=after), merge_files=100)
    await produce(node, made, b"bad", *told({"n": 1}), b"worse")

    async def work() -> None:
        await doomed.finish(2)
        await produce(node, made, *told({"n": 2}), b"last")
        await doomed.finish(2)

    outlived = await doomed.fate.outlived(work())
    await doomed.abandon()
    await asyncio.sleep(60)
    heir = await world.compaction(merge_files=100)
    await produce(node, made, b"very last")
    await heir.finish(3)
    found = sorted(origins(await letters_in(node, dlq)))
    bad = {b"bad", b"worse", b"last", b"very last"}
    assert found == [(row[0], row[1]) for row in await log_rows(node, made) if row[4] in bad], (writes, after)
    await heir.close()
    await node.stop()
    return not outlived


@promise("T7")
@pytest.mark.parametrize("after", [False, True])
def test_a_compactor_that_dies_doubles_no_letter(tmp_path: Path, after: bool) -> None:
    """Whatever write is the last one of a compactor, each bad record is a letter once."""
    writes = 0
    while run(_killed(tmp_path / str(writes), writes, after)):
        writes += 1
    assert writes > 10
