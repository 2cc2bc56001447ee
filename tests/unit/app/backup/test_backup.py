"""Backups of a cluster that goes on: the copy is whole, apart from the original, and the next one is short."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.app.backup import backup, gathering, placing
from headwater.app.backup.placing import take_over
from headwater.app.backup.receipt import read_receipt
from headwater.app.directories import prepare
from headwater.errors import ConfigError, NotReady
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Command
from headwater.state.commands.tables import Follow
from headwater.state.results import Result
from tests.support.lake import ONE, log_rows, rows_of
from tests.support.virtual_nodes import topic
from tests.unit.app.backup.disk import DiskWorld, files_of, findings, kinds_of, run, served, settings_of, settle, write


def test_a_copy_has_everything_up_to_its_moment(tmp_path: Path) -> None:
    """Records in the WAL and in both tables; what comes later is not in it, and the original goes on."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 3)
        await world.checkpoint()
        await settle(node, made, compaction, 3)
        await topic(node, "other")
        await world.checkpoint()
        await write(node, made, 3, "in the WAL ")
        before = await log_rows(node, made)
        settled = [row for row in before if not row[4] or not row[4].startswith(b"in the WAL")]
        done = await world.back_up(copy)
        assert (done.rounds, done.lost, done.catalogs) == (1, [], [])
        assert done.counts.linked > 0, "the two directories are on one file system"
        assert kinds_of(copy) == kinds_of(world.data), "no kind of object is forgotten"
        assert done.cluster == node.domains.cluster.state.cluster_id
        await write(node, made, 2, "later ")
        await settle(node, made, compaction, 2, "later still ")
        await world.close()
        assert await findings(copy) == []
        log, iceberg, delta = await served(copy)
        assert log == before
        assert iceberg == delta == settled
        assert await findings(tmp_path / "data") == []

    run(story)


def test_the_original_may_vanish(tmp_path: Path) -> None:
    """Nothing in the copy names the original's directory: Iceberg's files have the place of the copy."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 5)
        before = await log_rows(node, made)
        await world.back_up(copy, links=False)
        await world.close()
        (tmp_path / "data").rename(tmp_path / "gone")
        log, iceberg, delta = await served(copy)
        assert log == iceberg == delta == before

    run(story)


def test_a_table_that_is_ahead_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its follower has committed more than it has told the ledger: the copy shows what the ledger says."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 2)
        told = await log_rows(node, made)
        submit = compaction.domain.submit

        async def refusing(commands: Sequence[Command]) -> list[Result]:
            if any(isinstance(command, Follow) and command.follower == "delta" for command in commands):
                raise NotReady("the ledger is away")
            return await submit(commands)

        monkeypatch.setattr(compaction.domain, "submit", refusing)
        await write(node, made, 1, "later")
        await compaction.domain.barrier()
        table = compaction.domain.state.tables[made.id]
        before = table.last_sequence
        while not before < table.last_sequence == table.followers["iceberg"].cursor:
            await asyncio.sleep(0.005)
            await compaction.round()
        rows = await log_rows(node, made)
        assert table.followers["delta"].cursor == before
        assert rows_of(DeltaTable(str(world.data / "objects" / table.root)).to_pyarrow_table()) == rows
        await world.back_up(copy)
        await world.close()
        assert await served(copy) == (rows, rows, told)
        assert await findings(copy) == []

    run(story)


def test_no_process_of_the_original_is_part_of_the_copy(tmp_path: Path) -> None:
    """They are fenced in the ledger, so no client is sent to them, and their leases end."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, _ = await world.begin()
        await write(node, made, 1)
        epochs = set(node.domains.cluster.state.processes)
        assert len(epochs) == 2
        await world.back_up(copy)
        assert set(node.domains.cluster.state.processes) == epochs, "the original is as it was"
        await world.close()
        taken = DiskWorld(copy)
        other = await taken.node(2)
        taken.nodes.append(other)
        state: ClusterState = other.domains.cluster.state
        assert not epochs & set(state.processes)
        assert all(other.domains[ONE].state.is_fenced(epoch) for epoch in epochs)
        assert state.cluster_id == node.domains.cluster.state.cluster_id
        await taken.close()

    run(story)


@pytest.mark.parametrize("links", [True, False])
def test_the_next_backup_brings_only_what_is_new(tmp_path: Path, links: bool) -> None:
    """Also by copies. What the cluster no longer needs goes, and a backup without changes brings no object."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 3)
        await world.back_up(copy, links=links)
        before = files_of(copy)
        await settle(node, made, compaction, 3, "more ")
        second = await world.back_up(copy, links=links)
        after = files_of(copy)
        assert second.counts.kept > 0 and second.counts.removed > 0
        kept = [path for path in before.keys() & after.keys() if not path.endswith("version-hint.text")]
        assert kept and all(before[path] == after[path] for path in kept), "these were not written again"
        assert len(after) == second.objects
        third = await world.back_up(copy, links=links)
        assert (third.counts.linked, third.counts.copied, third.counts.kept) == (0, 0, third.objects)
        rows = await log_rows(node, made)
        await world.close()
        assert await findings(copy) == []
        assert await served(copy) == (rows, rows, rows)

    run(story)


def test_objects_that_go_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling deletes WAL objects and versions after the ledger was copied: another round, held, brings what came."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 2)
        await write(node, made, 2, "to be settled ")
        bring, disturbed = gathering.Gathering._bring, 0

        async def disturbing(self: gathering.Gathering, number: int, found: gathering.Round) -> None:
            nonlocal disturbed
            if number == 1:
                disturbed += 1
                before = files_of(world.data)
                await settle(node, made, compaction, 16, "meanwhile ")
                for name in before.keys() & {p for p in files_of(world.data) if p.startswith("wal/")}:
                    (world.data / "objects" / name).unlink()  # as housekeeping does
            await node.domains[ONE].barrier()
            assert len(node.domains[ONE].state.held) == number - 1, "the second round is held"
            await bring(self, number, found)

        monkeypatch.setattr(gathering.Gathering, "_bring", disturbing)
        done = await world.back_up(copy)
        assert disturbed == 1
        assert (done.rounds, done.lost) == (2, [])
        await node.domains[ONE].barrier()
        assert not node.domains[ONE].state.held
        rows = await log_rows(node, made)
        await world.close()
        assert await findings(copy) == []
        assert await served(copy) == (rows, rows, rows)

    run(story)


def test_what_the_cluster_has_lost(tmp_path: Path) -> None:
    """An object that the newest ledger names and that is gone: the backup says so, and has all the rest."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, _ = await world.begin()
        await write(node, made, 3)
        gone = min(p for p in files_of(world.data) if p.startswith("wal/"))
        (world.data / "objects" / gone).unlink()
        done = await world.back_up(copy)
        assert (done.rounds, done.lost) == (2, [f"no object {gone}"])
        await world.close()
        assert all(gone in finding for finding in await findings(copy))
        assert len(files_of(copy)) == done.objects - 1

    run(story)


def test_an_interrupted_backup_is_refused_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each step of a first backup: servers and doctor refuse it, and the next one goes on with what is there."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 3)
        for module, name in ((gathering, "copy_ledger"), (gathering, "excerpt"), (backup, "_fence")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, _dies)
                with pytest.raises(_Died):
                    await world.back_up(copy)
            for attempt in (lambda: prepare(settings_of(copy)), lambda: asyncio.run(findings(copy))):
                with pytest.raises(ConfigError, match="interrupted"):
                    await asyncio.to_thread(attempt)
        done = await world.back_up(copy)
        assert done.counts.kept > 0, "it went on with what was there"
        rows = await log_rows(node, made)
        await world.close()
        assert await findings(copy) == []
        assert await served(copy) == (rows, rows, rows)

    run(story)


def test_an_interrupted_second_backup_leaves_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last step. From then on whoever comes finishes the second."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 3)
        first = await log_rows(node, made)
        await world.back_up(copy)
        await settle(node, made, compaction, 14, "more ")
        second = await log_rows(node, made)
        with monkeypatch.context() as patch:
            patch.setattr(backup, "write_receipt", _dies)
            with pytest.raises(_Died):
                await world.back_up(copy)
        assert await findings(copy) == []
        await back_up_again(world, copy, tmp_path / "as the first")
        with monkeypatch.context() as patch:
            patch.setattr(backup, "place", _dies)
            with pytest.raises(_Died):
                await world.back_up(copy)
        await world.close()
        receipt = read_receipt(copy)
        assert receipt is not None and receipt.placing
        assert await findings(copy) == []
        receipt = read_receipt(copy)
        assert receipt is not None and receipt.complete and not receipt.placing
        assert await served(tmp_path / "as the first") == (first, first, first)
        take_over(copy)
        assert await served(copy) == (second, second, second)

    async def back_up_again(world: DiskWorld, copy: Path, again: Path) -> None:
        """Of the copy itself, which is at rest."""
        world.data, data = copy, world.data
        await world.back_up(again)
        world.data = data

    run(story)


def test_a_backup_of_a_backup_restores_it_elsewhere(tmp_path: Path) -> None:
    """Also if it was moved before: each copy names its own place."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 4)
        rows = await log_rows(node, made)
        await world.back_up(copy)
        await world.close()
        (tmp_path / "data").rename(tmp_path / "broken")
        copy.rename(tmp_path / "moved")
        world.data = tmp_path / "moved"
        await world.back_up(tmp_path / "data")
        assert await served(tmp_path / "data") == (rows, rows, rows)
        world.data = tmp_path / "data"
        await world.back_up(tmp_path / "moved")  # a backup at another place than before
        assert await findings(tmp_path / "moved") == []
        assert await served(tmp_path / "moved") == (rows, rows, rows)

    run(story)


def test_a_copy_that_was_served_is_no_target(tmp_path: Path) -> None:
    """It has records of its own, which a backup would remove."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, _ = await world.begin()
        await write(node, made, 1)
        await world.back_up(copy)
        prepare(settings_of(copy))
        with pytest.raises(ConfigError, match="neither empty nor a backup"):
            await world.back_up(copy)
        await world.close()

    run(story)


def test_a_target_of_another_cluster(tmp_path: Path) -> None:
    async def story() -> None:
        worlds = [DiskWorld(tmp_path / name) for name in ("one", "two")]
        for number, world in enumerate(worlds):
            node = await world.node(number + 1)
            world.nodes.append(node)
            await write(node, await topic(node), 1)
        await worlds[0].back_up(tmp_path / "copy")
        before = files_of(tmp_path / "copy")
        with pytest.raises(ConfigError, match="is a backup of cluster"):
            await worlds[1].back_up(tmp_path / "copy")
        assert files_of(tmp_path / "copy") == before
        for world in worlds:
            await world.close()
        assert await findings(tmp_path / "copy") == []

    run(story)


@pytest.mark.parametrize("step", range(5))
def test_a_crash_in_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Before and after each change: whoever comes next finishes it, and the copy is the second backup as a whole."""

    async def story() -> None:
        world, copy = DiskWorld(tmp_path / "data"), tmp_path / "copy"
        node, made, compaction = await world.begin()
        await settle(node, made, compaction, 3)
        await world.back_up(copy)
        await settle(node, made, compaction, 3, "more ")
        second = await log_rows(node, made)
        crashing = Crashing(step)
        with monkeypatch.context() as patch:
            patch.setattr(placing.os, "replace", crashing.before(os.replace))
            patch.setattr(placing, "exchange", crashing.before(placing.exchange))
            patch.setattr(placing, "write_receipt", crashing.before(placing.write_receipt))
            with pytest.raises(_Died):
                await world.back_up(copy)
        await world.close()
        assert await findings(copy) == []
        assert await served(copy) == (second, second, second)

    run(story)


class Crashing:
    """Ends the process before one of several calls."""

    def __init__(self, step: int) -> None:
        self._left = step

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if not self._left:
                raise _Died
            self._left -= 1
            return call(*arguments)

        return wrapped


class _Died(BaseException):
    """As if the process was killed here."""


def _dies(*_: object, **__: object) -> None:
    raise _Died
