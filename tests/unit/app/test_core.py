"""A core without a node id, as a gateway has it, beside a broker: it writes and is fenced like one, and is none."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.virtual import SeededChance, VirtualClock, run
from headwater.app.core import Core
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import NO_NODE
from headwater.state.results import Verdict
from tests.support.batches import batch
from tests.support.virtual_nodes import ONE, QUIET, NodeWorld, read, sent, topic


async def started(world: NodeWorld) -> Core:
    """A core without a node id, of the same cluster."""
    settings = Settings(objects="memory://", housekeeping=QUIET)
    core = Core(settings, world.ledger, world.store, VirtualClock(), SeededChance(7))
    await core.start()
    return core


def test_it_is_no_broker() -> None:
    """It has an epoch and is a process of the cluster, but no client is sent to it and nothing is placed there."""

    async def story() -> None:
        world = NodeWorld()
        node = await world.node()
        core = await started(world)
        await node.cluster.barrier()
        state = node.cluster.state
        assert [member.node for member in state.serving()] == [1]
        assert sorted(member.node for member in state.processes.values()) == sorted([NO_NODE, 1])
        assert state.processes[core.membership.epoch].listeners == ()
        epoch = core.membership.epoch
        await core.stop()
        await node.cluster.barrier()
        assert epoch not in state.processes and node.domains[ONE].state.is_fenced(epoch)
        await node.stop()

    run(story())


def test_what_it_writes_brokers_read() -> None:
    """And what it wrote before it was fenced stays. It then takes another epoch and goes on."""

    async def story() -> None:
        world = NodeWorld()
        node = await world.node()
        core: Any = await started(world)
        made = await topic(node)
        await core.domains[ONE].barrier()
        first = await sent(core, made.streams[0], batch([b"a"]))
        assert (first.verdict, first.offset) == (Verdict.ACCEPTED, 0)
        before = core.membership.epoch
        await node.cluster.barrier()
        await node.membership.fence(node.cluster.state.processes[before])
        while core.membership.epoch in (0, before):
            await asyncio.sleep(0.1)  # of virtual time
        second = await sent(core, made.streams[0], batch([b"b"]))
        assert (second.verdict, second.offset) == (Verdict.ACCEPTED, 1)
        await node.domains[ONE].barrier()
        found = await read(node, made.streams[0])
        assert b"a" in found and b"b" in found
        await core.stop()
        await node.stop()

    run(story())
