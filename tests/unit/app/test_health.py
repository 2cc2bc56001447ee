"""What the health pages say of a process and its duties, and how a process ends whose duty has failed."""

import asyncio
import json

import pytest

from harness.virtual import VirtualClock, run
from headwater.app import lifecycle
from headwater.app.health import judged
from headwater.background import Background, Duty, OnDeath
from headwater.cli.errors import exit_code
from headwater.errors import DutyFailed
from headwater.log.damage import DamageLine
from tests.support.promise import promise

PROMISES = ("O4",)


@pytest.fixture(autouse=True)
def own_duties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.background.DUTIES", {})


async def dying(on_death: OnDeath | None) -> Background:
    """The duties of a process, one of which has just died, if so."""

    async def work() -> None:
        if on_death is None:
            await asyncio.Event().wait()
        raise RuntimeError("planted")

    background = Background(VirtualClock())
    background.run(Duty("chore", on_death or OnDeath.RESTART, "does something"), work)
    await asyncio.sleep(0.1)
    return background


@pytest.mark.parametrize(
    ("on_death", "status", "code", "state"),
    [
        (None, "healthy", 200, "running"),
        (OnDeath.RESTART, "degraded", 200, "restarting"),
        (OnDeath.END, "unhealthy", 503, "failed"),
    ],
)
def test_pages(on_death: OnDeath | None, status: str, code: int, state: str) -> None:
    async def story() -> None:
        background = await dying(on_death)
        page = judged(background).page()
        told = json.loads(page.body)
        assert (page.status, told["status"]) == (code, status)
        [duty] = told["duties"]
        assert (duty["name"], duty["state"]) == ("chore", state)
        assert duty["error"] == ("" if on_death is None else "RuntimeError: planted")
        assert told.get("reason") == ("DutyFailed" if on_death is OnDeath.END else None)
        short = judged(background).short_page()
        assert (short.status, short.body) == (code, f'{{"status":"{status}"}}')
        await background.close()

    run(story())


@promise("L10")
def test_damaged_records_are_named() -> None:
    """The process serves all other records, so it is degraded."""

    async def story() -> None:
        background = await dying(None)
        line = DamageLine("t", 3, 10, 19, "wal/x", "the object is missing")
        page = judged(background, damage=[line]).page()
        told = json.loads(page.body)
        assert (page.status, told["status"]) == (200, "degraded")
        assert told["damage"] == [
            {"topic": "t", "partition": 3, "first_offset": 10, "last_offset": 19, "object": "wal/x",
             "reason": "the object is missing"}
        ]  # fmt: skip
        assert judged(background, damage=[line]).short_page().body == '{"status":"degraded"}'
        await background.close()

    run(story())


@promise("M1")
def test_damaged_checkpoints_are_named() -> None:
    async def story() -> None:
        background = await dying(None)
        told = json.loads(judged(background, checkpoints=["meta/x (cut)"]).page().body)
        assert (told["status"], told["checkpoints"]) == ("degraded", ["meta/x (cut)"])
        await background.close()

    run(story())


def test_a_reason_counts_more_than_duties() -> None:
    async def story() -> None:
        background = await dying(OnDeath.RESTART)
        page = judged(background, reason="StoreUnavailable", degraded=True).page()
        told = json.loads(page.body)
        assert (page.status, told["status"], told["reason"]) == (503, "unhealthy", "StoreUnavailable")
        assert judged(await dying(None), degraded=True).status == "degraded"
        await background.close()

    run(story())


class TestEndOfAProcess:
    @pytest.mark.parametrize("error", [None, RuntimeError("another")])
    def test_one_with_a_failed_duty_stops_and_fails(self, error: Exception | None) -> None:
        async def stop() -> None:
            if error is not None:
                raise error

        async def story() -> None:
            background = await dying(OnDeath.END)
            with pytest.raises(DutyFailed, match="the duty chore died: RuntimeError: planted") as failed:
                await lifecycle.stopped(stop(), background)
            assert exit_code(failed.value) == lifecycle.FAILED_CODE

        run(story())

    def test_one_whose_parts_do_not_stop_ends_without_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What they wait for may never come."""
        codes = []

        def leave(code: int) -> None:
            codes.append(code)
            raise KeyError("the process is gone")

        monkeypatch.setattr(lifecycle.os, "_exit", leave)

        async def story() -> None:
            background = await dying(OnDeath.END)
            with pytest.raises(KeyError):
                await lifecycle.stopped(asyncio.sleep(1e6), background)

        run(story())
        assert codes == [lifecycle.FAILED_CODE]

    def test_one_without_stops_all_its_duties(self) -> None:
        async def story() -> None:
            background = await dying(OnDeath.RESTART)
            await lifecycle.stopped(asyncio.sleep(1), background)
            assert background.reports() == []

        run(story())


def test_a_process_that_fails_while_it_starts() -> None:
    async def story() -> None:
        stop = asyncio.Event()
        stop.set()
        background = await dying(OnDeath.END)
        with pytest.raises(DutyFailed):
            await lifecycle.started(asyncio.sleep(1e6), stop, background)

    run(story())
