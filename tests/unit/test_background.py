"""Supervised duties, short tasks, and several items at once."""

import asyncio
import itertools
import logging
from collections.abc import Callable

import pytest

from harness.virtual import EPOCH_MS, VirtualClock, run
from headwater.background import (
    DUTIES,
    RESTART_LIMIT_SECONDS,
    RESTART_SECONDS,
    STEADY_SECONDS,
    Background,
    Duty,
    OnDeath,
    Tasks,
    each,
    launch,
    spawn,
)
from headwater.errors import DutyFailed, StoreUnavailable

PROMISES = ("M7",)


@pytest.fixture
def duty(monkeypatch: pytest.MonkeyPatch) -> Callable[[OnDeath], Duty]:
    """Makes duties that no other test sees."""
    monkeypatch.setattr("headwater.background.DUTIES", {})
    return lambda on_death: Duty("chore", on_death, "does something")


def died(log: pytest.LogCaptureFixture) -> list[str]:
    """Names of the duties that the log says died, each with its traceback."""
    records = [record for record in log.records if record.getMessage() == "a duty died"]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in records)
    return [record.duty for record in records]  # type: ignore[attr-defined]


class TestRestarting:
    def test_it_is_run_again_after_a_pause_that_doubles(self, duty: Callable[[OnDeath], Duty]) -> None:
        begun = []

        async def work() -> None:
            begun.append(asyncio.get_running_loop().time())
            raise RuntimeError("planted")

        async def story() -> None:
            background = Background(VirtualClock())
            background.run(duty(OnDeath.RESTART), work)
            await asyncio.sleep(1000)
            await background.close()

        run(story())
        pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
        assert pauses[:3] == pytest.approx([RESTART_SECONDS, 2 * RESTART_SECONDS, 4 * RESTART_SECONDS])
        assert pauses[-1] == pytest.approx(RESTART_LIMIT_SECONDS) and max(pauses) <= RESTART_LIMIT_SECONDS + 0.001

    def test_one_that_ran_for_long_is_restarted_soon(self, duty: Callable[[OnDeath], Duty]) -> None:
        begun, ended = [], []

        async def work() -> None:
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0 if len(begun) < 6 else STEADY_SECONDS)
            ended.append(asyncio.get_running_loop().time())
            raise RuntimeError("planted")

        async def story() -> None:
            background = Background(VirtualClock())
            background.run(duty(OnDeath.RESTART), work)
            await asyncio.sleep(300)
            await background.close()

        run(story())
        assert begun[6] - ended[5] == pytest.approx(RESTART_SECONDS)

    def test_log_and_health_tell_of_it(self, duty: Callable[[OnDeath], Duty], caplog: pytest.LogCaptureFixture) -> None:
        async def story() -> None:
            background, broken = Background(VirtualClock()), True

            async def work() -> None:
                await asyncio.sleep(2)
                if broken:
                    raise RuntimeError("planted")
                await asyncio.Event().wait()

            background.run(duty(OnDeath.RESTART), work, of="x")
            await asyncio.sleep(1)
            [report] = background.reports()
            assert (report.name, report.state, report.restarts, report.error) == ("chore-x", "running", 0, "")
            assert background.status == "healthy"
            await asyncio.sleep(1 + RESTART_SECONDS / 2)
            [report] = background.reports()
            assert (report.state, report.error, report.at_ms) == (
                "restarting",
                "RuntimeError: planted",
                EPOCH_MS + 2000,
            )
            assert background.status == "degraded"
            broken = False
            await asyncio.sleep(10)
            [report] = background.reports()
            assert (report.state, report.restarts, report.error) == ("running", 1, "RuntimeError: planted")
            assert background.status == "healthy" and background.failure is None
            await background.close()

        run(story())
        assert died(caplog) == ["chore-x"]
        assert 'RuntimeError("planted")' in caplog.text

    def test_a_cancellation_that_comes_from_elsewhere_is_a_death(self, duty: Callable[[OnDeath], Duty]) -> None:
        """What a duty waits for was cancelled: it would end without a trace."""

        async def story() -> None:
            async def work() -> None:
                gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone

            background = Background(VirtualClock())
            background.run(duty(OnDeath.RESTART), work)
            await asyncio.sleep(RESTART_SECONDS * 1.5)
            [report] = background.reports()
            assert report.restarts == 1 and report.error.startswith("CancelledError")
            await background.close()

        run(story())


class TestEnding:
    def test_the_process_hears_of_it_once(
        self, duty: Callable[[OnDeath], Duty], caplog: pytest.LogCaptureFixture
    ) -> None:
        failures: list[DutyFailed] = []

        async def work() -> None:
            raise RuntimeError("planted")

        async def story() -> None:
            background = Background(VirtualClock(), failures.append)
            background.run(duty(OnDeath.END), work)
            await asyncio.sleep(100)
            [report] = background.reports()
            assert (report.state, report.restarts, report.error) == ("failed", 0, "RuntimeError: planted")
            assert background.status == "unhealthy"
            assert background.failure is failures[0]
            await background.close()
            assert background.status == "unhealthy", "it stays what it was"

        run(story())
        assert [str(failure) for failure in failures] == ["the duty chore died: RuntimeError: planted"]
        assert died(caplog) == ["chore"]

    def test_of_what_a_part_of_its_work_met(
        self, duty: Callable[[OnDeath], Duty], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story() -> None:
            background = Background(VirtualClock())
            found = background.run(duty(OnDeath.END), asyncio.Event().wait)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            found.fail(RuntimeError("planted"))
            found.fail(RuntimeError("again"))
            await asyncio.sleep(1)
            assert background.status == "unhealthy" and not found.active
            await found.stop()

        run(story())
        assert died(caplog) == ["chore"]


class TestNoDeath:
    def test_being_stopped(self, duty: Callable[[OnDeath], Duty], caplog: pytest.LogCaptureFixture) -> None:
        async def story() -> None:
            background = Background(VirtualClock())
            kind = duty(OnDeath.END)
            found = background.run(kind, asyncio.Event().wait)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="runs already"):
                background.run(kind, asyncio.Event().wait)  # type: ignore[arg-type]
            await found.stop()
            assert background.reports() == [] and background.status == "healthy"
            again = background.run(kind, asyncio.Event().wait)  # type: ignore[arg-type]
            assert again.active
            await background.close()
            assert not again.active and background.failure is None

        run(story())
        assert died(caplog) == []

    def test_returning(self, duty: Callable[[OnDeath], Duty]) -> None:
        async def story() -> None:
            background = Background(VirtualClock())
            background.run(duty(OnDeath.END), lambda: asyncio.sleep(1))
            await asyncio.sleep(2)
            assert [report.state for report in background.reports()] == ["done"]
            assert background.status == "healthy"
            await background.close()

        run(story())


def test_two_kinds_do_not_share_a_name(duty: Callable[[OnDeath], Duty]) -> None:
    assert duty(OnDeath.END) == duty(OnDeath.END)
    with pytest.raises(ValueError, match="two duties have the name 'chore'"):
        duty(OnDeath.RESTART)
    assert "chore" not in DUTIES


class TestShortTasks:
    @pytest.mark.parametrize(
        ("error", "told"),
        [(RuntimeError("planted"), True), (StoreUnavailable("no"), False)],
        ids=["unexpected", "ours"],
    )
    def test_a_failure_is_never_lost(self, error: Exception, told: bool, caplog: pytest.LogCaptureFixture) -> None:
        """One that is not expected is logged, also if it is never awaited; one of ours reaches the caller."""

        async def work() -> None:
            raise error

        async def story() -> None:
            held = Tasks()
            task = held.spawn(work(), "held")
            alone = spawn(work(), "alone")
            await asyncio.sleep(1)
            assert len(held) == 0
            with pytest.raises(type(error)):
                await task
            assert alone.done()

        run(story())
        names = [record.task for record in caplog.records]  # type: ignore[attr-defined]
        assert names == (["held", "alone"] if told else [])
        assert ("planted" in caplog.text) == told

    def test_closing_cancels_what_is_under_way(self) -> None:
        async def story() -> None:
            held = Tasks()
            task = held.spawn(asyncio.sleep(1000), "long")
            await asyncio.sleep(0)
            assert list(held) == [task]
            await held.close()
            assert task.cancelled() and not list(held)

        run(story())

    def test_a_task_whose_outcome_the_caller_looks_at(self) -> None:
        async def work() -> int:
            return 7

        async def story() -> None:
            assert await launch(work()) == 7

        run(story())


class TestEach:
    def test_in_order_and_bounded(self) -> None:
        under_way = most = 0

        async def work(item: int) -> int:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001 * (item % 3))
            under_way -= 1
            return item * 2

        assert run(each(work, range(50), at_once=4)) == [2 * i for i in range(50)]
        assert most == 4
        assert run(each(work, [])) == []
        assert run(each(work, [7])) == [14]

    @pytest.mark.parametrize(("cancel", "over"), [(False, [0, 1, 2]), (True, [])])
    def test_a_failure_ends_it(self, cancel: bool, over: list[int]) -> None:
        """Nothing more begins, and the failure is raised once what is under way has ended, or was cancelled."""
        begun, ended = [], []

        async def work(item: int) -> None:
            begun.append(item)
            await asyncio.sleep(0)
            if item == 3:
                raise StoreUnavailable("no")
            await asyncio.sleep(1)
            ended.append(item)

        with pytest.raises(StoreUnavailable):
            run(each(work, range(50), at_once=4, cancel=cancel))
        assert begun == [0, 1, 2, 3]
        assert ended == over

    def test_being_cancelled(self) -> None:
        """Nothing goes on behind the caller's back."""
        ended = []

        async def work(item: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(item)

        async def scenario() -> None:
            task = asyncio.create_task(each(work, range(10), at_once=4))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(scenario())
        assert sorted(ended) == [0, 1, 2, 3]
