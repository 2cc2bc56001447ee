"""Consumers: order, ends, gaps, removed records, and what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import headwater
from headwater.errors import BadInput
from headwater.sdk import http as sdk_http
from headwater.sdk import reading
from headwater.sdk.consumer import Consumer, Page
from headwater.sdk.records import Record
from tests.unit.sdk.test_http import Reply, client, fake, told


class Topic:
    """A topic whose odd offsets are gaps. A page has some records of each partition."""

    def __init__(self, ends: Mapping[int, int], size: int = 2) -> None:
        self.stable = dict(ends)
        self.size = size
        self.committed: list[Mapping[int, int]] = []
        self.waits: list[float] = []

    def begin(self) -> Mapping[int, int]:
        return dict.fromkeys(self.stable, 0)

    def ends(self) -> Mapping[int, int]:
        return dict(self.stable)

    def read(self, positions: Mapping[int, int], wait: float) -> Page:
        self.waits.append(wait)
        records, reached = [], dict(positions)
        for partition, at in positions.items():
            offsets = [o for o in range(at, self.stable[partition]) if o % 2 == 0][: self.size]
            records += [Record("t", partition, o, 0, None, b"%d" % o, ()) for o in offsets]
            reached[partition] = offsets[-1] + 1 if offsets else self.stable[partition]
        return Page(records, reached)

    def commit(self, positions: Mapping[int, int]) -> None:
        self.committed.append(positions)


def test_a_consumer_that_does_not_follow_ends_where_the_topic_ended() -> None:
    """Records that come later are not part of it, and a gap at the end does not keep it waiting."""
    topic = Topic({0: 6, 1: 1, 2: 0})
    consumer = Consumer(topic, group="g", follow=False)
    found = [next(consumer)]
    topic.stable = {0: 9, 1: 5, 2: 4}
    found += list(consumer)
    assert [(r.partition, r.offset) for r in found] == [(0, 0), (0, 2), (1, 0), (0, 4)]
    assert set(topic.waits) == {0.0}
    consumer.commit()
    assert topic.committed == [{0: 5, 1: 1, 2: 0}]


def test_records_behind_the_end_are_not_committed() -> None:
    """The last page has only records that came after the consumer had begun."""
    topic = Topic({0: 2}, size=1)
    consumer = Consumer(topic, group="g", follow=False)
    assert next(consumer).offset == 0
    topic.stable = {0: 9}
    assert list(consumer) == []
    consumer.commit()
    assert topic.committed == [{0: 2}]


def test_only_what_was_returned_is_committed() -> None:
    topic = Topic({0: 6, 1: 6})
    with Consumer(topic, group="g", follow=True) as consumer:
        consumer.commit()
        assert topic.committed == [], "nothing was read yet"
        assert [next(consumer).offset for _ in range(3)] == [0, 2, 0]
        consumer.commit()
        assert topic.committed == [{0: 3, 1: 1}]
        assert [record.offset for record in consumer.poll()] == [2]
        assert [record.offset for record in consumer.poll()] == [4, 4]
        assert consumer.poll() == [] and set(topic.waits) == {5.0}
        consumer.commit()
        assert topic.committed[-1] == {0: 6, 1: 6}
    assert list(consumer) == [] and consumer.poll() == []
    with pytest.raises(BadInput, match="has no group"):
        Consumer(topic, group=None, follow=True).commit()


# --- pages of a gateway --------------------------------------------------------------------------------


def topic(*lines: tuple[int, int, int]) -> Reply:
    """A topic's partitions: number, start, stable offset."""
    return told(200, partitions=[{"partition": p, "start": start, "stable": stable} for p, start, stable in lines])


def page(*offsets: int, **more: Any) -> Reply:
    records = [{"partition": 0, "offset": o, "timestamp": 9, "value_base64": "/w==", "key": None} for o in offsets]
    return told(200, records=records, **more)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_http, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(reading, "FIRST_PAUSE", 0.001)


def test_gaps_and_removed_records_are_crossed() -> None:
    """Pages go on by the gateway's own word. Removed records are passed over; a page may be empty."""
    replies = [
        *(topic((0, 0, 20)), topic((0, 5, 20)), page(6, 7, next="A")),
        *(topic((0, 5, 20)), page(next="B")),
        *(topic((0, 5, 20)), page(next="C", caught_up=True)),
        *(topic((0, 5, 20)), topic((0, 5, 21)), page(20, next="D", caught_up=True)),
    ]
    with fake(*replies) as gateway, headwater.connect(gateway.url) as cluster:
        consumer = cluster.consume("t", start={0: 2})
        assert [next(consumer).offset, next(consumer).offset] == [6, 7]
        last = next(consumer)
        assert (last.offset, last.value, last.timestamp) == (20, b"\xff", 9)
        asked = [line.partition("/records?")[2] for line, _, _ in gateway.asked if "/records?" in line]
        rest = "limit=1000&format=base64"
        assert asked == [f"offset=5&{rest}", f"next=A&{rest}", f"next=B&{rest}", f"next=C&{rest}"]


def test_a_group_begins_behind_its_commits() -> None:
    """Partitions without a commit begin where `start` says. A group that does not exist has none."""
    lines = [{"topic": "t", "partition": 0, "offset": 4}, {"topic": "other", "partition": 1, "offset": 9}]
    replies = [topic((0, 0, 9), (1, 3, 8)), told(200, items=lines, next="N"), told(200, items=[])]
    with fake(*replies, told(200)) as gateway, client(gateway.url) as http:
        source = reading.Reading(http, "t", "my group", "latest")
        assert source.begin() == {0: 4, 1: 8}
        assert gateway.asked[2][0] == "GET /v1/groups/my%20group/offsets?limit=1000&next=N"
        source.commit({1: 8, 0: 5})
        line, _, body = gateway.asked[3]
        assert line == "PUT /v1/groups/my%20group/offsets"
        assert body == (b'{"offsets":[{"topic":"t","partition":0,"offset":5},{"topic":"t","partition":1,"offset":8}]}')
    with fake(topic((0, 2, 9)), told(404, type="/problems/not-found")) as gateway, client(gateway.url) as http:
        assert reading.Reading(http, "t", "g", "earliest").begin() == {0: 2}
