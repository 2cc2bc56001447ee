"""Sequences of raw requests, answered by Apache Kafka and by Headwater field by field alike."""

from __future__ import annotations

import asyncio
import random
import re
import struct
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode

from headwater.wire.build import build
from headwater.wire.encode import item_type
from headwater.wire.messages import response_type
from tests.differential.allowed import APART
from tests.differential.compare import Symbols, normal, wavering
from tests.differential.stories import STORIES
from tests.differential.story import Said, Steps, Teller, Told, Transcript, call
from tests.differential.telling import Verdict
from tests.support import open as open_list
from tests.support.batches import Rec, batch
from tests.support.soak import WHOLE

PROMISES = ("K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K11", "K12")

pytestmark = pytest.mark.long
OPEN = open_list.stories()
WALK = re.compile(r"walk_\D+(\d+)")
EVERY = 1 if WHOLE else 3
"""Of the walks by chance this share is told; all of them in the soak."""


def told_here(name: str) -> bool:
    walk = WALK.match(name)
    return walk is None or int(walk[1]) % EVERY == 0


def test_what_is_open_is_a_story() -> None:
    """A story that is gone leaves the lists."""
    assert not {*OPEN, *APART} - STORIES.keys()
    assert not OPEN.keys() & APART.keys()


def test_answers_of_ours_that_waver_are_seen() -> None:
    """A story is told again for the sake of Apache Kafka only; names and ids that are made up anew do not count."""

    def told(prefix: str, code: ErrorCode, member: str) -> Transcript:
        answer = build(response_type(12, 4), error_code=code)
        group = build(response_type(11, 9), member_id=member, protocol_name=f"{prefix}-p")
        return Transcript(prefix, [Said("heartbeat {}", answer), Said("join_group {}", group)])

    calm = [told(f"story-{i}", ErrorCode.none, f"member-{uuid.uuid4()}") for i in range(3)]
    assert wavering(calm) == [] and wavering(calm[:1]) == []
    [line] = wavering([told("story-9", ErrorCode.illegal_generation, f"member-{uuid.uuid4()}"), *calm])
    assert "error_code" in line and "illegal_generation" in line
    [line] = wavering([Transcript("story-0", calm[0].said[:1], "it broke"), calm[0]])
    assert "it broke" in line


class Busy:
    """A server that asks to come back twice, then answers. It stands for the connection of a teller."""

    def __init__(self, address: str) -> None:
        self.asked = 0

    async def __aenter__(self) -> Busy:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, api: str, version: int, fields: Mapping[str, object], *, answered: bool = True) -> object:
        self.asked += 1
        code = ErrorCode.concurrent_transactions if self.asked < 3 else ErrorCode.none
        return build(response_type(26, 4), error_code=code)


@pytest.mark.parametrize(("comes_back", "seen"), [(True, "none"), (False, "concurrent_transactions")])
def test_only_apache_kafka_is_asked_again(comes_back: bool, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headwater ends a transaction in one step: an answer to come back later would show."""
    monkeypatch.setattr("tests.differential.story.Peer", Busy)

    def steps(told: Told) -> Steps:
        yield call("end_txn", 4, transactional_id="t", producer_id=1, producer_epoch=0, committed=True)

    async def told() -> Transcript:
        knows = Told("story", random.Random(1), {})
        async with AsyncExitStack() as connections:
            return await Teller("nowhere", knows, connections, comes_back=comes_back).tell(steps)

    [said] = asyncio.run(told()).said
    assert said.answer.error_code.name == seen


def test_markers_are_compared_but_for_times_and_coordinators() -> None:
    """So are producers' ids, by which of them are the same. A wrong checksum, outcome or epoch shows."""

    def marker(*, time: int = 5, coordinator: int = 0, kind: int = 1, epoch: int = 3, **more: int) -> bytes:
        key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator)
        record = [Rec(value, key, time)]
        return batch(record, producer=(more.pop("producer", 7), epoch, -1), attributes=0x30, **more)

    def seen(records: bytes) -> object:
        partition = item_type(item_type(response_type(1, 11), "responses"), "partitions")
        return normal(build(partition, records=records), "story", Symbols())

    assert seen(marker()) == seen(marker(time=9, coordinator=4, producer=8))
    for other in (marker(kind=0), marker(epoch=4), marker(crc=1)):
        assert seen(marker()) != seen(other)


def test_aborted_transactions_behind_the_records_do_not_count() -> None:
    def seen(*first: int) -> object:
        partition = item_type(item_type(response_type(1, 11), "responses"), "partitions")
        aborted = [{"producer_id": 7, "first_offset": at} for at in first]
        return normal(build(partition, records=batch([b"x"] * 3), aborted_transactions=aborted), "story", Symbols())

    assert seen(0, 2) == seen(0, 2, 3, 9)
    assert seen(0, 2) != seen(0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(filter(told_here, STORIES)))
def test_story(name: str, verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert verdict.outcome.kafka.broken is None, "the story does not hold for Apache Kafka"
    assert verdict.outcome.kafka.said, "a story without an answer checks nothing"
    assert not verdict.wavering, "\n".join(["our own answers waver:", *verdict.wavering])
    if name in APART:
        assert verdict.differences, "this story no longer goes another way: take it off the list"
        return
    if name in OPEN and verdict.differences:
        pytest.xfail(reason=OPEN[name])
    assert name not in OPEN, "this story no longer differs: take it off open.txt"
    assert not verdict.differences, "\n".join(verdict.differences)
