"""A compactor dies before or after any of its writes while it settles, decodes the past, writes letters, replays.

One record in a hundred is bad: half of them have a schema that is registered later, the others are garbage. Another
compactor takes over; then each bad record is in the dead-letter topic once. After the schema was mended they are
decoded again, by a compactor that dies too; then those with the schema have their columns, and there are no more
letters.
"""

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
from headwater.state.cluster.domain import Topic
from headwater.state.commands.columns import WantDecoded
from tests.lake.test_letters import letters_in, origins
from tests.lake.test_typed import produce, rows_of
from tests.support.lake import ONE, Compaction, Fate, LakeWorld
from tests.support.promise import promise
from tests.support.soak import WHOLE, first_middle_last
from tests.support.virtual_nodes import topic
from tests.unit.schemas.test_typer import LINE, POINT, avro

PROMISES = ("T7",)

pytestmark = pytest.mark.long
EACH = 100
"""Records of a batch. Two batches have two bad ones each, in every partition."""
PARTITIONS = 2
SAMPLED = 1
"""Deaths that `make test-full` has of each kind; the soak has all."""


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def values(first: int) -> list[bytes]:
    """A batch: points, a line, whose schema is not registered yet, and garbage."""
    found = [framed(1, avro(POINT, {"x": first + number})) for number in range(EACH)]
    found[first % 7 + 3] = framed(2, avro(LINE, {"x": "far", "y": first}))
    found[first % 7 + 40] = framed(1, b"\xff\xff")
    return found


def wanted(*, mended: bool) -> list[dict[str, object] | None]:
    """The values of a partition's rows, as their columns should have them."""
    found: list[dict[str, object] | None] = []
    for first in (0, EACH):
        batch: list[dict[str, object] | None] = [{"x": first + number} for number in range(EACH)]
        batch[first % 7 + 3] = {"x__string": "far", "y": first} if mended else None
        batch[first % 7 + 40] = None
        found += batch
    return found


async def check(world: LakeWorld, node: Node, made: Topic, dlq: Topic, *, mended: bool) -> None:
    bad = [(p, number) for p in range(PARTITIONS) for number, one in enumerate(wanted(mended=False)) if one is None]
    assert sorted(origins(await letters_in(node, dlq))) == bad
    rows = await rows_of(world, node, made, ["value_data", "decode_error"])
    shown = [{n: v for n, v in (row["value_data"] or {}).items() if v is not None} or None for row in rows]
    assert shown == wanted(mended=mended) * PARTITIONS
    assert all((row["decode_error"] is None) == (one is not None) for row, one in zip(rows, shown, strict=True))


async def finish_after(world: LakeWorld, doomed: Compaction) -> None:
    """Another compactor takes over and finishes."""
    await doomed.abandon()
    await asyncio.sleep(60)
    heir = await world.compaction(merge_files=3)
    await heir.finish(8)
    await heir.close()


async def story(directory: Path, first: Fate, second: Fate) -> tuple[list[str], list[str]]:
    """Returns the writes of the compactor before the schema was mended, and after."""
    world = LakeWorld(directory)
    node = await world.node()
    await Registry(node.domains.cluster).register("t-value", Draft("AVRO", json.dumps(POINT)))
    dlq = await topic(node, name="dlq")
    made = await topic(node, partitions=PARTITIONS, headwater_dlq_topic="dlq")
    await produce(node, made, *values(0))
    doomed = await world.compaction(first, merge_files=3)

    async def settle() -> None:
        await doomed.finish(2)

    alive = await first.outlived(settle())
    await node.broker.topics.alter(made, {"headwater.value.schema": "auto"}, [])  # the past is decoded from now on
    await produce(node, made, *values(EACH))
    if alive:
        await first.outlived(doomed.finish(6))
    await finish_after(world, doomed)
    await check(world, node, made, dlq, mended=False)

    await Registry(node.domains.cluster).register("lines", Draft("AVRO", json.dumps(LINE)))
    await asyncio.sleep(60)
    await node.domains[ONE].submit([WantDecoded(made.id, False)])
    replaying = await world.compaction(second, merge_files=3)
    await second.outlived(replaying.finish(6))
    await finish_after(world, replaying)
    await check(world, node, made, dlq, mended=True)
    await node.stop()
    return first.steps, second.steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """All writes of both phases, if nobody dies."""
    return run(story(tmp_path_factory.mktemp("whole"), Fate(), Fate()))


@promise("T7")
@pytest.mark.timeout(3_600 if WHOLE else 300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("phase", [0, 1], ids=["letters", "replay"])
def test_every_write(tmp_path: Path, whole: tuple[list[str], list[str]], phase: int, after: bool) -> None:
    """A write of each phase; all of them in the soak."""
    steps = whole[phase]
    assert len(steps) > 5 and any("Units" in step for step in steps) is (phase == 0), steps
    chosen = first_middle_last(steps)
    if not WHOLE:
        chosen = chosen[len(chosen) // 2 + 2 * after :][:SAMPLED]
    for number in chosen:
        fates = [Fate(), Fate()]
        fates[phase] = Fate(number, after=after)
        try:
            run(story(tmp_path / str(number), *fates))
        except BaseException as error:
            where = f"{'after' if after else 'before'} write {number}"
            raise AssertionError(f"died {where}: {fates[phase].steps[-1]}") from error
