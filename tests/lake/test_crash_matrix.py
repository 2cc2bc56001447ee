"""A compactor that dies before or after any of its writes loses, doubles and leaves nothing.

The whole way is covered: plan, run, settle, follow, merge, retire, expire and garbage collection. A second compactor
takes over; then the log holds exactly what was produced, and both tables show the same, save for files that their
retention has taken out. Those go once the log has forgotten them too.
"""

import asyncio
from pathlib import Path

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Fate, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.soak import first_middle_last
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T1", "T2", "T5", "L3", "L6")

pytestmark = pytest.mark.long
ROUNDS = 12
"""Enough small segments for a merge, and for versions to expire."""
OUTDATED = 3
"""So many rounds produce records that the table does not keep."""
HOUR_MS = 3_600_000


async def produce(node: Node, made: Topic, number: int) -> None:
    for partition, stream in enumerate(made.streams):
        ms = EPOCH_MS - 2 * HOUR_MS * (number < OUTDATED)
        records = [Rec(b"v%d-%d-%d" % (number, partition, i), key=b"k%d" % i, timestamp=ms) for i in range(3)]
        await sent(node, stream, batch(records))


async def story(world: LakeWorld, fate: Fate) -> list[str]:
    """Produce and settle until the compactor dies or all is done; then have another one finish."""
    node = await world.node()
    made = await topic(node, partitions=2, headwater_table_retention_ms=str(HOUR_MS))
    first = await world.compaction(fate)
    number = 0
    while number < ROUNDS and not fate.dead:
        await produce(node, made, number)
        await asyncio.sleep(0.05)
        await fate.outlived(first.round())
        number += 1
    if not fate.dead:
        await fate.outlived(first.finish())
    await first.abandon()
    for later in range(number, ROUNDS):
        await produce(node, made, later)
    await asyncio.sleep(10)  # of virtual time: the broker sees that the beats have stopped
    second = await world.compaction()
    await second.finish()
    await check(world, node, made, exact=fate.left is None)
    await node.domains[ONE].submit([TrimStreams([(stream, 3 * OUTDATED) for stream in made.streams])])
    await second.finish(2)
    await check_files(world, node, made)
    await second.close()
    await node.stop()
    return fate.steps


async def check(world: LakeWorld, node: Node, made: Topic, *, exact: bool) -> None:
    await node.domains[ONE].barrier()
    await asyncio.sleep(0.01)
    wanted = [
        (p, n * 3 + i, b"k%d" % i, b"v%d-%d-%d" % (n, p, i)) for p in range(2) for n in range(ROUNDS) for i in range(3)
    ]
    world.lay_out()
    in_log = await log_rows(node, made)
    assert [(p, o, k, v) for p, o, _, k, v, _ in in_log] == wanted
    shown = world.iceberg_rows(node, made)
    assert world.delta_rows(node, made) == shown
    assert len(shown) == sum(file.rows for file in node.domains[ONE].state.tables[made.id].live())
    table = node.domains[ONE].state.tables[made.id]
    assert await world.by_path(table) == await world.store.get(table.followers["iceberg"].location)
    gone = [row for row in in_log if row not in shown]
    assert [row for row in in_log if row not in gone] == shown
    assert all(row[2] < EPOCH_MS - HOUR_MS for row in gone)
    assert not exact or len(gone) == OUTDATED * 2 * 3
    stored, known = files_left(world, node)
    assert stored == known
    assert all(s.settled == s.next_offset for s in node.domains[ONE].state.streams.values())


async def check_files(world: LakeWorld, node: Node, made: Topic) -> None:
    """The log has forgotten what the table has: nobody needs those files."""
    await node.domains[ONE].barrier()
    stored, known = files_left(world, node)
    assert stored == known
    table = node.domains[ONE].state.tables[made.id]
    assert table.ripe() == []
    assert not any(file.references for file in table.files.values() if file.removed)


@promise("T1", "T5")
def test_nobody_dies(tmp_path: Path) -> None:
    """The story itself; it covers every kind of write."""
    steps = run(story(LakeWorld(tmp_path / "objects"), Fate()))
    kinds = {"put _data", "put _iceberg", "put metadata", "create _delta_log", "delete _data", "delete _iceberg"}
    assert kinds <= set(steps)
    appended = {command for step in steps if step.startswith("append ") for command in step.split()[1:]}
    assert len(appended) >= 5, "settling, following, merging, retiring and collecting are records of different kinds"


@promise("T1", "T2", "T5")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_write(tmp_path: Path, after: bool) -> None:
    """The first, the middle and the last write of each kind; all of them in the soak."""
    for step in first_middle_last(run(story(LakeWorld(tmp_path / "objects"), Fate()))):
        fate = Fate(step, after=after)
        try:
            run(story(LakeWorld(tmp_path / "objects"), fate))
        except BaseException as error:
            raise AssertionError(f"died {'after' if after else 'before'} write {step}: {fate.steps[-1]}") from error
