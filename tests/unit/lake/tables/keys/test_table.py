"""The index of keys as a follower: each entry of the journal once, whatever is repeated, missing or in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.virtual import run
from headwater.errors import Retriable
from headwater.lake.following import batch_of
from headwater.lake.tables.follower import Expiry, ref_of
from headwater.lake.tables.keys import format as keys
from headwater.lake.tables.keys.table import KeyIndexFollower, number_of
from tests.support.scribe import TOPIC
from tests.unit.query.lookups.test_lookups import FOUR, Keyed, written


def _rows(made: Keyed, location: str) -> int:
    return sum(run.rows for run in keys.unpack_manifest(location, made.store.objects[location]).runs)


def test_commits() -> None:
    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20))
        follower, table = KeyIndexFollower(made.store, chance=made._chance), made.state.tables[TOPIC]
        ref, batch = ref_of(table), batch_of(table, 0)
        assert (await follower.standing(ref, "")).cursor == 0
        first = await follower.commit(ref, "", batch)
        keyed = len([1 for _, record in await made.all_rows() if record.key is not None])
        assert first.cursor == first.oldest == table.last_sequence and _rows(made, first.location) == keyed
        assert await follower.commit(ref, first.location, batch) == first  # nothing is entered twice
        with pytest.raises(Retriable, match="are not at 1: start from there"):
            await follower.commit(ref, "tables/gone/_keys/1-a.manifest", replace(batch, after=1, upto=2))
        await made.step("write", FOUR)
        await made.step("end", "a", False)
        await made.settle(1 << 20)
        second = await follower.commit(ref, first.location, batch_of(table, first.cursor))
        assert number_of(second.location) == 2 and _rows(made, second.location) > keyed
        assert await follower.standing(ref, second.location) == second
        assert await follower.expire(ref, second.location, Expiry()) == second
        assert first.location not in made.store.objects and second.location in made.store.objects
        assert await follower.versions(ref, second.location) == [] and not await follower.shown(ref, second.location)

    run(main())


def test_a_segment_that_is_gone() -> None:
    """The table has moved on: the commit is tried again with what the journal has then."""

    async def main() -> None:
        made = await written(("write", FOUR), ("end", "a", True), ("settle", 1 << 20))
        follower, table = KeyIndexFollower(made.store), made.state.tables[TOPIC]
        made.store.objects = {path: data for path, data in made.store.objects.items() if "_data/" not in path}
        with pytest.raises(Retriable, match="is gone: the table has moved on"):
            await follower.commit(ref_of(table), "", batch_of(table, 0))

    run(main())
