"""Scans: every record once, whatever the limits, over gaps and partitions; one chunk at a time for a slow client."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.records import Record, encode_batch
from headwater.gateway.records.positions import decoded, encoded
from headwater.gateway.records.scanning import Scan
from headwater.log.batch import check_batch
from headwater.log.write.part import Together
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import StartAt
from headwater.state.results import UnitResult, UnitVerdict
from headwater.types import Domain
from tests.support.gateways import InGateway, gateway
from tests.support.virtual_nodes import LAX


async def append(found: InGateway, topic: Topic, partition: int, count: int, skip: int, size: int) -> None:
    """Append a batch, behind a gap."""
    stream = topic.streams[partition]
    at = found.core.domains[Domain(topic.domain)].state.streams[stream].next_offset + skip
    batch = encode_batch([Record(0, 1, None, b"%d " % (at + i) + b"x" * size) for i in range(count)], codec=4)
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    unit = Together([(stream, check_batch(batch, LAX, 1))], [StartAt(stream, at)], done.set_result)
    found.core.writers.of(topic.domain, "latency").append_unit(unit)
    result = await done
    assert isinstance(result, UnitResult) and result.verdict is UnitVerdict.ACCEPTED


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from([0, 0, 1, 7]), st.sampled_from([0, 3000])),
             max_size=12),
    st.integers(1, 7),
    st.sampled_from([1, 500, 1 << 20]),
)  # fmt: skip
def test_every_record_once(batches: list[tuple[int, int, int, int]], records: int, size: int) -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 3)
            for partition, count, skip, value in batches:
                await append(found, topic, partition, count, skip, value)
            scan = Scan(found.services, topic, {0: 0, 1: 0, 2: 0})
            seen: list[tuple[int, int]] = []
            for _ in range(200):
                step = await scan.step(records, size)
                assert len(step.records) <= records and not step.resets
                for partition, record in step.records:
                    assert record.value is not None and record.value.split(b" ")[0] == b"%d" % record.offset
                    seen.append((partition, record.offset))
                scan = Scan(found.services, topic, decoded(topic, encoded(topic, scan.positions), None))
                if not scan.readable:
                    break
            assert not scan.readable and len(seen) == len(set(seen)) == sum(count for _, count, _, _ in batches)
            for partition in range(3):
                mine = [offset for p, offset in seen if p == partition]
                assert mine == sorted(mine)

    asyncio.run(story())


def test_a_page_looks_for_a_later_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gateway may have answered its writer already. A step of a stream does not look: the next one follows."""

    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            await append(found, topic, 0, 2, 0, 5)

            async def look(scan: Scan) -> None:
                await append(found, topic, 0, 1, 0, 5)

            monkeypatch.setattr(Scan, "look", look)
            scan = Scan(found.services, topic, {0: 0})
            assert len((await scan.step(10, 1 << 20)).records) == 2
            scan = Scan(found.services, topic, {0: 0})
            step = await scan.step(10, 1 << 20, exact=True)
            assert [record.offset for _, record in step.records] == [0, 1, 2]

    asyncio.run(story())


def test_no_partition_waits_for_ever() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 3)
            for partition in range(3):
                for _ in range(6):
                    await append(found, topic, partition, 1, 0, 5000)
            scan = Scan(found.services, topic, {0: 0, 1: 0, 2: 0})
            first = [(await scan.step(1, 1)).records[0][0] for _ in range(6)]
            assert set(first) == {0, 1, 2}

    asyncio.run(story())
