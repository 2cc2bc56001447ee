"""Topics that a link copies become tables, at the offsets of their source; nothing is appended to them in bulk."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app.node import Node
from headwater.errors import Mirrored
from headwater.log.batch import split_batches
from headwater.state.commands.links import LinkPhase, SkipStreams
from tests.lake.test_bulk import agreed, caught_up, in_world
from tests.support.bulk import Loader, numbered
from tests.support.lake import ONE, LakeWorld
from tests.support.links import link
from tests.support.promise import promise

PROMISES = ("N1",)


@promise("N1", "T3")
def test_a_mirror_becomes_tables(tmp_path: Path) -> None:
    """Gaps at the start, between and at the end; consumers get no leader epoch of settled records either."""

    async def story(world: LakeWorld, node: Node) -> None:
        found = await link(node, "t")
        for start, values in ((5, [b"a", b"b"]), (7, [b"c"]), (20, [b"d"])):
            await found.copy(start, values)
        stream, replica = found.stream(), node.domains[ONE]
        await replica.submit([SkipStreams([(int(stream.id), stream.mirror.generation, 21, 30)])])
        rows = await agreed(world, node, found.topic)
        assert [(offset, value) for _, offset, _, _, value, _ in rows] == [(5, b"a"), (6, b"b"), (7, b"c"), (20, b"d")]
        assert (stream.settled, stream.next_offset, stream.mirror.on) == (30, 30, True)
        read = await node.broker.reader.read(replica, int(stream.id), 5, 1 << 20, True)
        epochs = {int.from_bytes(bytes(one[12:16]), "big", signed=True) for one in split_batches(read.records)}
        assert epochs == {-1}

    in_world(tmp_path, story)


@promise("N1", "L8")
def test_nothing_is_appended_in_bulk_until_it_is_promoted(tmp_path: Path) -> None:
    """The refusal says why, and leaves no file."""

    async def story(world: LakeWorld, node: Node) -> None:
        found = await link(node, "t")
        await found.copy(3, [b"a"])
        loader = await Loader(world).start()
        await caught_up(node)
        with pytest.raises(Mirrored, match="only its link appends to it"):
            await loader.bulk(found.topic).append(numbered(5))
        assert found.stream().next_offset == 4
        await found.change(LinkPhase.PROMOTED)
        written = await loader.bulk(found.topic).append(numbered(5))
        assert written.partitions[0] == (5, 4, 8)
        await loader.close()

    in_world(tmp_path, story)
