"""The copy of one partition: what it knows of the source's history, and what it does when it is always second."""

import asyncio
from typing import Any, cast

from harness.virtual import SeededChance, VirtualClock, run
from headwater.link.ahead import Ahead
from headwater.link.copying.appending import AnotherEnd
from headwater.link.copying.partition import Copier
from headwater.link.copying.runs import Run
from headwater.link.copying.tails import Tail
from headwater.link.source.pieces import NO_EPOCH, Piece
from headwater.settings.links import Links

SETTINGS = Links(flush_ms=0)


class Log:
    """A log here that another process appends to, always just before this one."""

    def __init__(self) -> None:
        self.at = 0
        self.tries = 0
        self.rival = True

    async def end(self) -> int:
        return self.at

    async def tail(self) -> Tail | None:
        return None

    async def append(self, runs: list[Run]) -> None:
        raise NotImplementedError

    async def skip(self, end: int, to: int) -> None:
        self.tries += 1
        if self.rival:
            self.at += 1
            raise AnotherEnd("another process was first")
        self.at = to


def copier_of(log: Log) -> Copier:
    return Copier("t", None, 0, cast(Any, log), SETTINGS, VirtualClock(), SeededChance(), Ahead(SETTINGS))


def test_a_gap_without_an_epoch_keeps_what_was_known_before_it() -> None:
    """The source is asked for the epoch of the last piece that had one, up to where that ended."""
    copier = copier_of(Log())
    copier.position = 0

    def take(to: int, epoch: int) -> tuple[int, int]:
        copier.take(copier.position, [Piece(copier.position, to, None, epoch)], to, to)
        return copier.epoch, copier.epoch_end

    async def story() -> None:
        assert take(3, 5) == (5, -1)
        assert take(7, NO_EPOCH) == take(9, NO_EPOCH) == (5, 3)
        assert take(10, 6) == (6, -1)

    run(story())


def test_a_copy_that_is_always_second_lets_the_other_go_first() -> None:
    """And goes on within a second when the other is gone."""
    log = Log()
    copier = copier_of(log)

    async def fetching() -> None:
        while True:
            await asyncio.sleep(0.001)
            if copier.hungry:
                copier.take(copier.position, [Piece(copier.position, copier.position + 1, None, 0)], 0, 0)

    async def story() -> None:
        tasks = [asyncio.ensure_future(copier.run()), asyncio.ensure_future(fetching())]
        await asyncio.sleep(60)
        assert 30 <= log.tries <= 70
        log.rival, log.tries = False, 0
        await asyncio.sleep(1.2)
        assert log.tries > 100
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    run(story())
