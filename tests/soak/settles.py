"""Five hundred settles of one small topic; a follower's commit costs in the end what it cost in the beginning.

One process, objects in memory, real followers. Compares the last fifth with the second fifth.

python -m tests.soak.settles --settles 500
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from harness import virtual
from headwater.lake.tables.follower import Batch, Standing, TableFollower, TableRef
from tests.lake.test_many_settles import Size, settle_once
from tests.soak.common import Verdict, progress, workplace
from tests.support.lake import ONE, LakeWorld, files_left, log_rows
from tests.support.virtual_nodes import topic

PROMISES = ("T5",)

GROWTH = 1.5
LIMIT_SECONDS = 1e8
"""Of virtual time, which runs on while threads are at work."""
SETTINGS: dict[str, Any] = {"merge_files": 8, "keep_versions": 50, "expire_interval_ms": 5_000}


class Stopwatch:
    """The CPU time of every commit of a follower, in milliseconds."""

    def __init__(self, follower: TableFollower) -> None:
        self.name = follower.name
        self.taken: list[tuple[int, float]] = []
        self.settle = 0
        self._commit = follower.commit
        follower.commit = self._timed  # type: ignore[method-assign]

    async def _timed(self, table: TableRef, location: str, batch: Batch) -> Standing:
        before = time.process_time()
        result = await self._commit(table, location, batch)
        self.taken.append((self.settle, (time.process_time() - before) * 1000))
        return result

    def median(self, settles: range) -> float:
        return statistics.median(ms for settle, ms in self.taken if settle in settles)


async def story(directory: Path, settles: int) -> tuple[list[Size], list[Stopwatch]]:
    world = LakeWorld(directory / "objects")
    node = await world.node()
    made = await topic(node, partitions=2)
    compaction = await world.compaction(**SETTINGS)
    watches = [Stopwatch(follower) for follower in compaction._followers]
    sizes = []
    with progress() as bars:
        bar = bars.add_task("settles", total=settles, now="")
        for number in range(settles):
            for watch in watches:
                watch.settle = number
            sizes.append(await settle_once(world, node, made, compaction, number))
            bars.update(bar, advance=1, now=f"{sizes[-1].segments} segments, {sizes[-1].iceberg} Iceberg objects")
    await compaction.finish()
    await node.domains[ONE].barrier()
    world.lay_out()
    in_log = await log_rows(node, made)
    assert len(in_log) == settles * 2 * 3
    assert world.iceberg_rows(node, made) == in_log
    assert world.delta_rows(node, made) == in_log
    stored, known = files_left(world, node)
    assert stored == known, stored ^ known
    await compaction.close()
    await node.stop()
    return sizes, watches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settles", type=int, default=500)
    options = parser.parse_args()
    virtual.LIMIT_SECONDS = LIMIT_SECONDS
    with workplace("settles") as directory:
        sizes, watches = virtual.run(story(directory, options.settles))
    fifth = options.settles // 5
    early, late = range(fifth, 2 * fifth), range(options.settles - fifth, options.settles)
    verdict = Verdict(f"{options.settles} settles: the last {fifth} against those from {early.start} to {early.stop}")
    for watch in watches:
        first, last = watch.median(early), watch.median(late)
        verdict.fact(f"{watch.name}: commit, median ms of CPU", f"{first:.1f} → {last:.1f}")
        verdict.rule(f"{watch.name}: growth", last / first, GROWTH)
    for name in Size.__dataclass_fields__:
        small, large = (max(getattr(sizes[i], name) for i in part) for part in (early, late))
        verdict.fact(name, f"{small:,} → {large:,}")
        verdict.rule(f"{name}: growth", large / small, GROWTH)
    verdict.leave()


if __name__ == "__main__":
    main()
