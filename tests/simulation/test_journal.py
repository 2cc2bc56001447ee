"""The journal under seeded misfortune: kills, power failures, failed syncs, full disks. Planted defects are found."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from harness.virtual import SeededChance
from headwater.ledger.journal.disk import Disk
from headwater.ledger.journal.opening import open_journal
from headwater.ledger.journal.writer import Writer
from tests.simulation.journal import planted
from tests.simulation.journal.disk import PAGE, Machine, Process
from tests.simulation.journal.run import FILE_BYTES, simulate
from tests.support.journals import state_of, writer_of
from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("M1",)

SEEDS = 10_000 if WHOLE else 25
LOOKED_AT = 600
LOOK_FROM = {
    "synced is set to the number at the sync's end": 198,
    "a failed sync is forgotten": 22,
    "files are deleted before the truncation is synced": 117,
    "headers of files that were never published": 341,
    "torn images count": 35,
}
"""The seed with which the search for a defect begins, where the first seeds do not find it."""


@pytest.mark.timeout(SEEDS * 2 + 120)
def test_seeds_run_clean() -> None:
    acknowledged = refused = 0
    for seed in range(SEEDS):
        outcome = simulate(seed)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        acknowledged += outcome.acknowledged
        refused += outcome.refused
    assert acknowledged > SEEDS and refused


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", planted.PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    with planted.PLANTED[name]():
        for seed in range(0 if WHOLE else LOOK_FROM.get(name, 0), LOOKED_AT):
            if simulate(seed).problem is not None:
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(1) == simulate(1)


@promise("M1")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_cut_overwrites_nothing(in_place: bool) -> None:
    """Frames 2 and 3 are lost with the power, and frame 4 is not: it must not follow when they are written anew."""
    machine = Machine(7)
    chance = SeededChance(7)

    def unsynced(disk: Disk) -> None:
        writer = writer_of(disk, open_journal(disk, 0, chance, FILE_BYTES), chance)
        writer.append(0, b"first")
        with patch.object(Writer, "_sync", lambda *_: None):
            for record in (b"lost", b"lost", b"behind what was lost"):
                writer.append(1, record)

    def two_more(disk: Disk) -> None:
        writer = writer_of(disk, open_journal(disk, 0, chance, FILE_BYTES), chance)
        assert [writer.append(0, b"new"), writer.append(0, b"new")] == [2, 3]

    def look(disk: Disk) -> None:
        states.append(state_of(open_journal(disk, 0, chance, FILE_BYTES)[0]))

    states: list[dict[int, tuple[object, ...]]] = []

    def alone(work: Callable[[Disk], None]) -> Exception | None:
        process = Process(machine, work)
        machine.finish()
        return process.error

    assert alone(unsynced) is None
    [file] = [file for file in machine.files.values() if file.dirty]
    kept = max(file.dirty) * PAGE
    file.stored[kept : kept + PAGE] = file.seen[kept : kept + PAGE]
    file.dirty.clear()
    machine.lose_power()
    if in_place:  # the defect: it is found by its position, or shown
        with planted.cut_in_place():
            assert alone(two_more) is None
        machine.lose_power()
        assert alone(look) is not None or states[0][1][0]
        return
    assert alone(two_more) is None
    machine.lose_power()
    assert alone(look) is None
    assert [states[0][domain][0] for domain in (0, 1)] == [3, 0]
