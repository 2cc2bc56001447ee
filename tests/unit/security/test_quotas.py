"""Rates and buckets as Kafka's quotas measure them."""

import asyncio

import pytest

from headwater.security.quotas import ClientQuotas, Meter, Timed, candidates
from headwater.security.rates import SampledRate, TokenBucket
from headwater.settings import settings as config
from tests.support.hands import Hands
from tests.support.promise import promise

PROMISES = ("K14",)


@promise("K14")
def test_a_burst_counts_over_the_whole_window() -> None:
    """Eleven samples of a second each, all but one of them full or not yet begun."""
    rate = SampledRate(11, 1.0)
    assert rate.rate(0.0) == 0
    rate.record(1000, 0.0)
    assert rate.rate(0.0) == pytest.approx(100)
    assert rate.excess(100, 0.0) == 0
    rate.record(500, 0.5)
    assert rate.rate(0.5) == pytest.approx(1500 / 10.5)
    assert rate.excess(100, 0.5) == pytest.approx(4.5)
    assert rate.excess(100, 11.5) == 0


@promise("K14")
def test_old_samples_are_forgotten() -> None:
    rate = SampledRate(3, 1.0)
    for second in range(10):
        rate.record(10, float(second))
    assert rate.rate(9.0) == pytest.approx(30 / 2)
    assert rate.rate(20.0) == 0
    rate.record(6, 20.0)
    assert rate.rate(20.0) == pytest.approx(3)


@promise("K14")
def test_a_bucket_can_be_in_debt() -> None:
    bucket = TokenBucket(2.0, 5.0, 0.0)
    bucket.take(10, 0.0)
    assert bucket.debt(0.0) == 0
    bucket.take(4, 0.0)
    assert bucket.debt(0.0) == 2
    assert bucket.debt(1.0) == 1
    assert bucket.debt(2.0) == 0
    bucket.take(10, 100.0)
    assert bucket.debt(100.0) == 0, "it was full again, but no more than that"
    bucket.take(1, 100.0)
    assert bucket.debt(100.0) == 0.5


@promise("K14")
def test_which_quota_counts() -> None:
    """Kafka's order of precedence, and who shares a quota with whom."""
    order = candidates("u", "c")
    assert order == [
        (("client-id", "c"), ("user", "u")),
        (("client-id", None), ("user", "u")),
        (("user", "u"),),
        (("client-id", "c"), ("user", None)),
        (("client-id", None), ("user", None)),
        (("user", None),),
        (("client-id", "c"),),
        (("client-id", None),),
    ]
    quotas = ClientQuotas(config.Quotas(), Hands())
    assert not quotas.active
    held = {entity: {"producer_byte_rate": str(i + 1)} for i, entity in enumerate(order)}
    for i, entity in enumerate(order):
        quotas.refresh(held, i)
        limit = quotas.limit("producer_byte_rate", "u", "c")
        assert limit is not None and limit.value == i + 1
        kinds = {kind for kind, _ in entity}
        assert limit.sharers == ("u" if "user" in kinds else "", "c" if "client-id" in kinds else "")
        assert quotas.limit("consumer_byte_rate", "u", "c") is None
        assert quotas.active
        del held[entity]
    quotas.refresh(held, 99)
    assert quotas.limit("producer_byte_rate", "u", "c") is None
    assert not quotas.active
    quotas.refresh({(("ip", None),): {"connection_creation_rate": "1"}}, 100)
    assert not quotas.active, "addresses are looked at when they connect"


@promise("K14")
def test_clients_share_a_users_quota() -> None:
    """And each has the default for clients for itself."""
    clock = Hands()
    quotas = ClientQuotas(config.Quotas(), clock)
    quotas.refresh({(("user", "u"),): {"producer_byte_rate": "100"}}, 1)
    assert quotas.charge("producer_byte_rate", Meter("u", "a"), 1000) == 0
    assert quotas.charge("producer_byte_rate", Meter("u", "b"), 500) == pytest.approx(5)
    assert quotas.charge("producer_byte_rate", Meter("v", "b"), 5000) == 0, "nobody limits this one"
    quotas.refresh({(("client-id", None),): {"producer_byte_rate": "100"}}, 2)
    for client in ("c", "d"):
        assert quotas.charge("producer_byte_rate", Meter("u", client), 1000) == 0
        assert quotas.charge("producer_byte_rate", Meter("u", client), 100) == pytest.approx(1)


@promise("K14")
def test_time_is_counted_in_percent() -> None:
    """And nobody is silenced for longer than a sample."""
    quotas = ClientQuotas(config.Quotas(), Hands())
    quotas.refresh({(("user", "u"),): {"request_percentage": "10"}}, 1)
    assert quotas.charge_time(Meter("u", "c", 1.0)) == 0, "a second of ten is a tenth"
    assert quotas.charge_time(Meter("u", "c", 0.05)) == pytest.approx(0.5)
    assert quotas.charge_time(Meter("u", "c", 50.0)) == 1.0


@promise("K14")
def test_what_is_known_of_clients_is_bounded() -> None:
    quotas = ClientQuotas(config.Quotas(entities=10), Hands())
    quotas.refresh({(("client-id", None),): {"producer_byte_rate": "100"}}, 1)
    for i in range(100):
        quotas.charge("producer_byte_rate", Meter("u", str(i)), 1)
    assert repr(quotas) == "<ClientQuotas, 10 rates>"


@promise("K14")
def test_only_the_steps_of_a_coroutine_are_timed() -> None:
    """Neither its waiting; its result and its failures stay what they are."""

    async def main() -> None:
        clock, meter = Hands(), Meter("u", "c")
        loop = asyncio.get_running_loop()

        async def work(waits: asyncio.Future[None], fails: bool) -> str:
            clock.now += 1
            try:
                await waits
            except asyncio.CancelledError:
                clock.now += 4
                raise
            clock.now += 2
            if fails:
                raise ValueError("as it should")
            return "done"

        for fails in (False, True):
            waits = loop.create_future()
            task = asyncio.ensure_future(Timed(work(waits, fails), meter, clock))
            await asyncio.sleep(0)
            clock.now += 1000
            waits.set_result(None)
            if fails:
                with pytest.raises(ValueError, match="as it should"):
                    await task
            else:
                assert await task == "done"
        assert meter.seconds == 6
        task = asyncio.ensure_future(Timed(work(loop.create_future(), False), meter, clock))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert meter.seconds == 11

    asyncio.run(main())
