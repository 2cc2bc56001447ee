"""Kafka's quotas of users hold at a gateway, and are told by 429."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.errors import QuotaExceeded
from headwater.gateway.quotas import PAUSE_SECONDS, CallerQuotas, Usage
from headwater.settings.limits import Quotas
from headwater.state.cluster.access import Operation
from headwater.state.cluster.resources import Resources
from headwater.state.commands.cluster import AlterQuota
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.hands import Hands
from tests.support.rules import rule

PROMISES = ("K14",)

RECORDS = "/v1/topics/orders/records"
V3 = "/v3/clusters/any/topics/orders/records"
PRODUCER, CONSUMER, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION = "controller_mutation_rate"


def quotas(clock: Hands, **limits: str) -> tuple[CallerQuotas, Resources]:
    """Quotas of the user alice."""
    resources = Resources()
    resources.alter_quota(AlterQuota((("user", "alice"),), limits, ()))
    return CallerQuotas(Quotas(), clock, lambda: resources), resources


async def limited(found: InGateway, user: str, **limits: str) -> None:
    await found.core.cluster.submit([AlterQuota((("user", user),), limits, ())])


async def appended(found: InGateway, size: int, user: str = "alice", path: str = RECORDS) -> Any:
    body = (
        {"records": [{"value": "v" * size}]} if path == RECORDS else {"value": {"type": "STRING", "data": "v" * size}}
    )
    return await found.ask("POST", path, user, json=body)


def test_bytes_are_counted_as_brokers_count_them() -> None:
    """A burst of the whole window is free. After that the caller is silent until its rate is down to the limit."""
    clock = Hands()
    own, _ = quotas(clock, **{PRODUCER: "100"})
    usage = own.of(ALICE)
    usage.received(5_000)  # nothing counts before the request says what it is
    usage.appends()
    usage.received(1_000)
    own.of(ALICE).appends()
    usage.received(500)
    usage.sent(5_000)
    for what in (own.of(ALICE).appends, usage.appends):
        with pytest.raises(QuotaExceeded, match=PRODUCER) as refused:
            what()
        assert refused.value.seconds == pytest.approx(5.0)
    own.of(ALICE).reads()
    own.of("User:bob").appends()
    clock.now += 5.01
    own.of(ALICE).appends()


def test_a_great_debt_is_paid() -> None:
    """The samples are forgotten after eleven seconds; the silence they were worth is not."""
    clock = Hands()
    own, resources = quotas(clock, **{CONSUMER: "100"})
    usage = own.of(ALICE)
    usage.reads()
    usage.sent(6_000)
    assert usage.pause_before_sending == PAUSE_SECONDS
    clock.now += 45
    with pytest.raises(QuotaExceeded):
        own.of(ALICE).reads()
    assert usage.pause_before_sending == pytest.approx(5.0)
    resources.alter_quota(AlterQuota((("user", "alice"),), {CONSUMER: "1000000"}, ()))
    own.of(ALICE).reads()
    assert usage.pause_before_sending == 0.0


def test_a_share_of_time() -> None:
    """The steps of a request count, not its waiting, and nobody is silent for longer than a sample."""
    clock = Hands()
    own, _ = quotas(clock, **{REQUEST: "10"})

    async def work(seconds: float) -> None:
        clock.now += seconds
        await asyncio.sleep(0)

    async def story() -> None:
        await own.of(ALICE).timed(work(0.5))
        own.of(ALICE).check_time()
        await own.of(ALICE).timed(work(50.0))
        with pytest.raises(QuotaExceeded) as refused:
            own.of(ALICE).check_time()
        assert refused.value.seconds == pytest.approx(1.0)
        await own.of("User:bob").timed(work(50.0))
        own.of("User:bob").check_time()

    asyncio.run(story())


def test_without_quotas_nothing_is_kept() -> None:
    resources = Resources()
    own = CallerQuotas(Quotas(), Hands(), lambda: resources)
    usage = own.of(ALICE)
    usage.appends()
    usage.received(1 << 40)
    own.mutate(ALICE, 1_000_000)
    assert usage.pause_before_sending == 0.0 and repr(own) == "<CallerQuotas, 0 callers were silenced>"


def test_what_is_known_of_callers_is_bounded() -> None:
    resources = Resources()
    resources.alter_quota(AlterQuota((("user", None),), {PRODUCER: "1"}, ()))
    own = CallerQuotas(Quotas(entities=10), Hands(), lambda: resources)
    for number in range(100):
        usage = own.of(f"User:{number}")
        usage.appends()
        usage.received(1_000)
    assert repr(own) == "<CallerQuotas, 10 callers were silenced>"


@pytest.mark.parametrize("path", [RECORDS, V3])
def test_appends_over_the_quota(path: str) -> None:
    """The request that goes over it is served, and the next ones are refused before anything is appended."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.allow(rule("User:*", Operation.WRITE, "orders"))
            await limited(found, "alice", **{PRODUCER: "1000"})
            assert (await appended(found, 20_000, path=path)).status_code == 200
            refused = await appended(found, 1, path=path)
            assert refused.status_code == 429 and 9 <= int(refused.headers["retry-after"]) <= 11
            assert PRODUCER in refused.text
            assert (await appended(found, 1, "bob", path)).status_code == 200
            assert len(await found.records("orders")) == 2
            await limited(found, "alice", **{PRODUCER: "1000000"})
            assert (await appended(found, 1, path=path)).status_code == 200

    asyncio.run(story())


def test_reads_over_the_quota() -> None:
    """All ways to read count together. Other calls do not."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.fill("orders", 1_000)
            await found.allow(rule("User:*", Operation.READ, "orders"))
            await limited(found, "alice", **{CONSUMER: "100"})
            assert (await found.get(f"{RECORDS}?limit=1000", "alice")).status_code == 200
            for path in (
                f"{RECORDS}?limit=1",
                "/v1/topics/orders/partitions/0/records/0",
                "/v1/topics/orders/latest?key=a",
                "/v1/topics/orders/rows",
            ):
                refused = await found.get(path, "alice")
                assert refused.status_code == 429 and refused.json()["type"] == "/problems/over-quota", path
            assert (await found.get("/v1/topics/orders", "alice")).status_code == 200
            assert (await found.get(f"{RECORDS}?limit=1", "bob")).status_code == 200

    asyncio.run(story())


def test_a_share_of_time_over_http() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await limited(found, "alice", **{REQUEST: "0.0001"})
            assert (await found.get("/v1/topics", "alice")).status_code == 200
            refused = await found.get("/v1/topics", "alice")
            assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
            assert found.services.stats.refusals["over-quota"] == 1 and found.services.requests.count == 0
            assert (await found.get("/v1/topics", "bob")).status_code == 200
            assert (await found.get("/v1/health", "alice")).status_code == 200

    asyncio.run(story())


def test_partitions_over_the_quota() -> None:
    """Created, added and deleted partitions count. A check alone costs nothing."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            for operation in (Operation.CREATE, Operation.ALTER, Operation.DELETE):
                await found.allow(rule(ALICE, operation, "orders"))
            await limited(found, "alice", **{MUTATION: "1"})
            make = {"name": "orders", "partitions": 20}
            for _ in range(3):
                dry = await found.ask("POST", "/v1/topics?validate_only=true", "alice", json=make)
                assert dry.status_code == 200
            assert (await found.ask("POST", "/v1/topics", "alice", json=make)).status_code == 201
            grown = await found.ask("POST", "/v1/topics/orders/partitions", "alice", json={"partitions": 21})
            gone = await found.ask("DELETE", "/v1/topics/orders", "alice")
            for refused in (grown, gone):
                assert refused.status_code == 429 and refused.json()["type"] == "/problems/over-quota"
                assert int(refused.headers["retry-after"]) > 1
            assert found.services.state.names["orders"].ready == 20
            await limited(found, "alice", **{MUTATION: "1000"})
            assert (await found.ask("DELETE", "/v1/topics/orders", "alice")).status_code == 204

    asyncio.run(story())


def test_a_stream_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits after a part that went over the quota, and goes on. It ends at once when the gateway stops."""
    pauses: list[float] = []

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.fill("orders", 500)
            await found.allow(rule("User:*", Operation.READ, "orders"))
            await limited(found, "alice", **{CONSUMER: "1"})
            seen = Usage.pause_before_sending.fget
            assert seen is not None

            def pause(usage: Usage) -> float:
                pauses.append(seen(usage))
                if pauses[-1]:
                    found.services.stopping.set()
                return pauses[-1]

            monkeypatch.setattr(Usage, "pause_before_sending", property(pause))
            headers = {"Accept": "application/x-ndjson"}
            answer = await found.get(f"{RECORDS}?follow=true", "alice", headers=headers)
            assert answer.status_code == 200 and 0 < len(answer.text.split()) < 500
            assert max(pauses) == PAUSE_SECONDS

    asyncio.run(story())
