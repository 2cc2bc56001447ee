"""Properties 6, 7, 10 and 23: commits that are concurrent, stale or repeated."""

from __future__ import annotations

from headwater.lake.planning import Limits
from headwater.state.records import decode
from headwater.state.results import Done, Reason, Refused
from headwater.types import Position
from tests.properties.lakes import Lake, each_of
from tests.unit.query.test_snapshot import COMPACTOR, WRITER

PROMISES = ("T1",)

WHOLE = Limits(file_bytes=1 << 20)


def test_of_several_commits_of_one_plan_one_stands() -> None:
    """6: compactors that settled the same records at the same time: one commit stands, in any order of arrival."""

    async def story(lake: Lake) -> bool:
        job = lake.settle_job(WHOLE)
        if not job:
            return False
        rivals = [lake.settling(await lake.attempted(job)) for _ in range(lake.chance.randint(2, 4))]
        commands = [(COMPACTOR, command) for command in rivals] + [(WRITER, rivals[0])]
        lake.chance.shuffle(commands)
        results = [(epoch, lake.commit(command, epoch)) for epoch, command in commands]
        stood = [(epoch, result) for epoch, result in results if isinstance(result, Done)]
        assert [epoch for epoch, _ in stood] == [COMPACTOR], "a writer without the lease never commits"
        refused = [result for _, result in results if isinstance(result, Refused)]
        assert len(refused) == len(commands) - 1 and all(result.reason is Reason.STALE for result in refused)
        assert await lake.rows() == lake.visible()
        return True

    each_of(story)


def test_a_stale_plan_is_refused() -> None:
    """7: a plan whose records were settled meanwhile is refused, and the refusal changes nothing."""

    async def story(lake: Lake) -> bool:
        job = lake.settle_job(WHOLE)
        if not job:
            return False
        late = lake.settling(await lake.attempted(job))
        await lake.step("settle", lake.chance.choice((1, 150, 1 << 20)))
        await lake.walk(2)
        content, version = lake.content(), lake.version
        result = lake.commit(late)
        assert isinstance(result, Refused) and result.reason is Reason.STALE
        assert (lake.content(), lake.version) == (content, version)
        return True

    each_of(story)


def test_a_repeated_commit_changes_nothing() -> None:
    """10, 23: a record that comes a second time, by a writer that did not hear of the first, is known by its number."""

    async def story(lake: Lake) -> bool:
        content, digest = lake.content(), lake.state.digest
        for record in lake.chance.choices(lake.scribe.records, k=5):
            assert lake.state.apply(Position(lake.state.position + 1), decode(record)) is None
        assert (lake.content(), lake.state.digest) == (content, digest)
        return True

    each_of(story)
