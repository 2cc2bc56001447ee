"""Properties 26 to 31: which files are merged, and that no reader notices."""

from __future__ import annotations

from harness.virtual import run
from headwater.lake.merging import mergeable
from headwater.lake.planning import Limits
from headwater.state.commands.columns import Replace
from headwater.state.results import Done, Reason, Refused
from tests.properties.lakes import EXAMPLES, SMALL, Lake, each_of
from tests.support.scribe import TOPIC
from tests.unit.query.test_snapshot import ROOT

PROMISES = ("T5",)


def test_all_small_files_in_a_row_are_candidates() -> None:
    """26: files that settling wrote one after another are merged as soon as there are enough."""

    async def story(seed: int) -> None:
        lake = Lake(seed)
        count, limits = lake.chance.randint(1, 4), Limits(merge_files=lake.chance.randint(2, 4), file_bytes=1 << 30)
        await lake.write_and_settle(count)
        assert lake.table is not None
        runs = list(mergeable(lake.table, list(lake.state.streams.values()), limits))
        numbers = [[file.number for file in files] for files in runs]
        assert numbers == ([sorted(lake.table.files)] if count >= limits.merge_files else [])

    for seed in range(EXAMPLES):
        run(story(seed))


def test_a_merge_changes_files_and_no_rows() -> None:
    """27, 28, 30: one file with all rows of several, in one step; every version shows the same rows as before."""

    async def story(lake: Lake) -> bool:
        await lake.write_and_settle(1)
        job, version, table = lake.merge_job(), lake.version, lake.table
        if not job or table is None:
            return False
        settled = await lake.rows(version=version)
        old = [table.files[number] for number in job.removed[TOPIC]]
        [fact] = await lake.attempted(job)
        assert fact.file is not None and len(old) > 1
        assert fact.file.rows == sum(file.rows for file in old)
        assert fact.file.rows > max(file.rows for file in old) and fact.file.size < sum(file.size for file in old)
        assert isinstance(lake.commit(lake.merging(job, [fact])), Done) and lake.version == version + 1
        before, after = ({file.path for file in lake.take(version=at).files} for at in (version, version + 1))
        assert before - after == {f"{ROOT}/{file.name}" for file in old}
        assert after - before == {f"{ROOT}/{fact.file.name}"}
        assert await lake.rows(version=version) == await lake.rows(version=version + 1) == settled
        return True

    each_of(story)


def test_a_merge_beside_everything_else() -> None:
    """29: whatever happens between its plan and its commit, a merge stands or is refused, and all rows are there."""
    stood = refused = 0

    async def story(lake: Lake) -> bool:
        nonlocal stood, refused
        await lake.write_and_settle(1)
        job = lake.merge_job()
        if not job:
            return False
        late = lake.merging(job, await lake.attempted(job))
        await lake.walk(4)
        content = lake.content()
        result = lake.commit(late)
        stood += isinstance(result, Done)
        if isinstance(result, Refused):
            refused += 1
            assert lake.content() == content
        return True

    each_of(story)
    assert stood >= 10 and refused >= 10


def test_a_merge_of_an_older_version_is_refused() -> None:
    """31: files that were merged or retired meanwhile are not merged again, and the refusal changes nothing."""

    async def story(lake: Lake) -> bool:
        await lake.write_and_settle(1)
        job = lake.merge_job(SMALL)
        if not job:
            return False
        first, second = [lake.merging(job, await lake.attempted(job)) for _ in range(2)]
        if lake.chance.random() < 0.5:
            assert isinstance(lake.commit(first), Done)
        else:
            assert lake.table is not None
            live = sorted(file.number for file in lake.table.live())
            await lake.step("retire", live.index(lake.chance.choice(first.removed)))
        content = lake.content()
        result = lake.commit(second)
        assert isinstance(second, Replace) and isinstance(result, Refused) and result.reason is Reason.STALE
        assert lake.content() == content
        return True

    each_of(story)
