"""Raising the feature level over all domains, and what processes do about it when they start."""

import asyncio

import pytest

from harness.virtual import run
from headwater.replica import levels, membership
from headwater.replica.levels import lowest_level, raise_level
from headwater.settings.settings import Housekeeping
from headwater.state import machine
from headwater.state.commands.base import SetLevel
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.results import Done, Refused
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, NodeWorld, topic

PROMISES = ("M5",)

NEXT, BUILD = LEVEL + 1, "9.9.9"
QUIET = Housekeeping(interval_ms=1 << 40, lease_ms=30_000)


def be_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a build that knows the next level."""
    for module in (machine, levels, membership):
        monkeypatch.setattr(module, "LEVEL", NEXT)
    for module in (machine, levels):
        monkeypatch.setattr(module, "LEVELS", {**LEVELS, NEXT: BUILD})


@promise("M5")
def test_a_new_cluster_starts_at_the_newest_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has any stream, and without an operator."""
    be_newer(monkeypatch)

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=QUIET)
        assert lowest_level(node.cluster.state, node.domains) == NEXT
        assert (node.cluster.state.build, node.domains[ONE].state.build) == (BUILD, BUILD)

    run(told())


@promise("M5")
def test_a_cluster_with_streams_is_raised_by_its_operator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer build leaves the level alone and names the command; the raise needs all processes to know it."""

    async def told() -> None:
        world = NodeWorld()
        older = await world.node(1, housekeeping=QUIET)
        await topic(older, "t")
        be_newer(monkeypatch)
        newer = await world.node(2, housekeeping=QUIET)
        assert lowest_level(newer.cluster.state, newer.domains) == LEVEL
        assert "headwater cluster upgrade" in caplog.text
        refused = await raise_level(newer.cluster, newer.domains, NEXT)
        assert isinstance(refused, Refused) and "broker 1 runs" in refused.detail
        assert newer.domains[ONE].state.level == LEVEL
        await older.stop()
        assert await raise_level(newer.cluster, newer.domains, NEXT) == Done(NEXT)
        assert lowest_level(newer.cluster.state, newer.domains) == NEXT

    run(told())


@promise("M5")
def test_a_raise_that_stopped_half_way_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """By housekeeping. Until then brokers announce the lowest level of all domains."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=QUIET)
        await topic(node, "t")
        await node.stop()
        be_newer(monkeypatch)
        node = await world.node(housekeeping=QUIET)
        await node.cluster.submit([SetLevel(NEXT, BUILD)])
        assert lowest_level(node.cluster.state, node.domains) == LEVEL
        await asyncio.sleep(60)
        await node.housekeeper.round()
        assert lowest_level(node.cluster.state, node.domains) == NEXT
        assert node.domains[ONE].state.build == BUILD

    run(told())


@promise("M5")
def test_a_process_that_starts_finishes_a_raise_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain below the cluster's level refuses newer commands, and clients take that for final."""

    async def told() -> None:
        world = NodeWorld()
        older = await world.node(1, housekeeping=QUIET)
        await topic(older, "t")
        await older.stop()
        be_newer(monkeypatch)
        half = await world.node(2, housekeeping=QUIET)
        assert await half.cluster.submit([SetLevel(NEXT, BUILD)]) == [Done(NEXT)]
        assert half.domains[ONE].state.level == LEVEL
        node = await world.node(3, housekeeping=QUIET)
        assert lowest_level(node.cluster.state, node.domains) == NEXT

    run(told())
