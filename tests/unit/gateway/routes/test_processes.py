"""The cluster over HTTP: processes, ledger and level; a raise of the level that a process does not know."""

from __future__ import annotations

import asyncio

import pytest

from headwater.gateway.routes import processes
from headwater.settings.settings import Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from headwater.state.commands.base import TakeLease
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.machine import LEVEL
from headwater.state.results import Done
from headwater.state.streams.domain import COMPACTION
from headwater.types import Domain
from tests.support.gateways import ALICE, gateway, secured
from tests.support.newer import BUILD, NEXT, be_newer
from tests.support.promise import promise
from tests.support.rules import rule

PROMISES = ("H2",)

PATH, UPGRADE = "/v1/cluster", "/v1/cluster/upgrade"


def test_the_processes_of_a_cluster() -> None:
    async def story() -> None:
        settings = Settings(ledger="etcd://me:secret@h1:1/base?token=x")
        async with gateway(settings) as found:
            await found.topic("orders", 3)
            told = (await found.get(PATH)).json()
            assert told["cluster_id"] and (told["level"], told["known_level"]) == (LEVEL, LEVEL)
            assert (told["topics"], told["partitions"], told["groups"]) == (1, 3, 0)
            assert told["ledger"] == "etcd://h1:1/base" and told["health"] == "healthy"
            assert told["brokers"] == [] and [p["role"] for p in told["processes"]] == ["command"]
            assert [d["domain"] for d in told["domains"]] == [0, 1]
            await found.core.domains[Domain(1)].submit([TakeLease(COMPACTION, 60_000)])
            told = (await found.get(PATH)).json()
            assert [(lease["domain"], lease["name"]) for lease in told["leases"]] == [(1, COMPACTION)]
            assert told["holds"] == []
            async with found.services.holding.query():
                epoch = found.core.membership.epoch
                [hold] = (await found.get(PATH)).json()["holds"]
                assert (hold["domain"], hold["epoch"], hold["keeps"], hold["versions"]) == (1, epoch, False, 0)

    asyncio.run(story())


@promise("M5")
def test_the_level_is_raised_when_all_processes_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """This gateway knows a made-up level, another process does not."""

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            [old] = await found.core.cluster.submit([TakeEpoch("old", -1, "", (), LEVEL, "0.1")])
            assert isinstance(old, Done)
            be_newer(monkeypatch, processes)
            [new] = await found.core.cluster.submit([TakeEpoch("new", -1, "", (), NEXT, BUILD)])
            assert isinstance(new, Done)
            assert (await found.get(PATH)).json()["known_level"] == LEVEL
            refused = await found.ask("POST", UPGRADE, json={})
            assert refused.status_code == 409, refused.text
            assert (await found.get(PATH)).json()["level"] == LEVEL
            for epoch in [epoch for epoch, process in found.services.state.processes.items() if process.level < NEXT]:
                del found.services.state.processes[epoch]
            checked = await found.ask("POST", UPGRADE, json={}, params={"validate_only": "true"})
            assert checked.json() == {"level": NEXT} and found.services.state.level == LEVEL
            done = await found.ask("POST", UPGRADE, json={"level": NEXT})
            assert done.status_code == 200 and done.json() == {"level": NEXT}
            assert found.core.domains[Domain(1)].state.level == NEXT
            assert (await found.ask("POST", UPGRADE, json={})).status_code == 200

    asyncio.run(story())


@pytest.mark.parametrize("body", [{"level": LEVEL - 1}, {"level": NEXT}, {"level": "high"}, {"to": 3}, []])
def test_levels_that_the_cluster_cannot_have(body: object) -> None:
    async def story() -> None:
        async with gateway() as found:
            assert (await found.ask("POST", UPGRADE, json=body)).status_code == 400
            assert found.services.state.level == LEVEL

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            assert (await found.get(PATH, "bob")).status_code == 403
            assert (await found.get(PATH, "alice")).status_code == 200
            assert (await found.ask("POST", UPGRADE, "alice", json={})).status_code == 403
            await found.allow(rule(ALICE, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER))
            assert (await found.ask("POST", UPGRADE, "alice", json={})).status_code == 200

    asyncio.run(story())
