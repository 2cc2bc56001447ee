"""A feed: whose turn it is, and whose answer it is."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.client.model import Broker
from headwater.errors import HeadwaterError
from headwater.link.ahead import Ahead
from headwater.link.breaker import Breaker, State
from headwater.link.copying.feed import Feed, Place
from headwater.link.copying.partition import Copier
from headwater.link.source.pieces import Piece
from headwater.link.source.source import Answer, Found, Group, Want
from headwater.settings.links import Links

SETTINGS = Links()
BROKER = Broker(0, "localhost", 1, None)
FETCH_SECONDS = 0.1
BATCH = 1000


class Source:
    """One broker that takes a few partitions at a time, and has records for the first that it is asked for."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.asked: list[list[int]] = []
        self.may_bring: list[int | None] = []
        self.failure: Exception | None = None
        self.ends: dict[int, int] = {}

    async def by_leader(self, wants: Sequence[Want]) -> tuple[list[Group], dict[Place, HeadwaterError]]:
        parts = [wants[at : at + self.most] for at in range(0, len(wants), self.most)]
        return [Group(BROKER, dict.fromkeys(part, 0)) for part in parts], {}

    async def fetch(self, group: Group) -> Mapping[Place, Answer]:
        wants = list(group.terms)
        self.asked.append([want.partition for want in wants])
        self.may_bring.append(group.max_bytes)
        if self.failure is not None:
            raise self.failure
        answers = {want.place: self._found(want, number) for number, want in enumerate(wants)}
        await asyncio.sleep(FETCH_SECONDS)
        return answers

    def _found(self, want: Want, number: int) -> Found:
        end = self.ends.get(want.partition, want.position)
        pieces = [Piece(want.position, want.position + 1, None, 0)] if end > want.position and not number else []
        return Found(want.position, pieces, end, end, 0)

    def leave(self, place: Place) -> None:
        assert place[0] == "t"


def copier(partition: int) -> Copier:
    made = Copier(
        "t", None, partition, cast(Any, None), SETTINGS, VirtualClock(), SeededChance(), Ahead(SETTINGS)
    )  # nothing is appended
    made.position = 0
    return made


def feed_of(
    source: Source, copiers: Sequence[Copier], breaker: Breaker | None = None, ahead: Ahead | None = None
) -> Feed:
    breaker, ahead = breaker or Breaker(SETTINGS), ahead or Ahead(SETTINGS)
    feed = Feed(source, cast(Any, None), breaker, ahead, SETTINGS, VirtualClock(), SeededChance())
    for one in copiers:
        feed.join(one)
    return feed


def test_partitions_beyond_the_limit_of_a_fetch_have_their_turn() -> None:
    source = Source(most=2)

    async def story() -> None:
        running = asyncio.ensure_future(feed_of(source, [copier(p) for p in range(5)]).run())
        await asyncio.sleep(FETCH_SECONDS * 10)
        running.cancel()

    run(story())
    counts = [sum(partition in asked for asked in source.asked) for partition in range(5)]
    assert min(counts) >= 3 and max(counts) - min(counts) <= 1, source.asked


def test_a_partition_with_records_lets_the_others_go_first() -> None:
    """An answer is full after the first one that has records."""
    source = Source()
    source.ends = dict.fromkeys(range(3), BATCH)
    copiers = [copier(p) for p in range(3)]

    async def story() -> None:
        running = asyncio.ensure_future(feed_of(source, copiers).run())
        await asyncio.sleep(FETCH_SECONDS * 9.5)
        running.cancel()

    run(story())
    assert [one.position for one in copiers] == [3, 3, 3]


def test_an_answer_is_for_the_copier_that_asked() -> None:
    """One that came later must not take it: it would believe an end of before."""
    source = Source()
    old, new = copier(0), copier(0)

    async def story() -> None:
        feed = feed_of(source, [old])
        running = asyncio.ensure_future(feed.run())
        await asyncio.sleep(FETCH_SECONDS / 2)
        source.ends[0] = 7
        feed.leave(old)
        feed.join(new)
        await asyncio.sleep(FETCH_SECONDS)
        assert old.source_end == new.source_end == -1, "the first answer went to nobody"
        await asyncio.sleep(FETCH_SECONDS)
        assert new.source_end == new.log_end == 7
        running.cancel()

    run(story())


def test_a_fetch_may_bring_its_part_of_what_is_left() -> None:
    source, ahead = Source(), Ahead(SETTINGS)
    ahead.fetched(SETTINGS.ahead_total_bytes // 2 + SETTINGS.ahead_total_bytes // 4)

    async def story() -> None:
        running = asyncio.ensure_future(feed_of(source, [copier(0)], ahead=ahead).run())
        await asyncio.sleep(FETCH_SECONDS * 3.5)
        running.cancel()
        await asyncio.wait([running])

    run(story())
    part = SETTINGS.ahead_total_bytes // 16
    assert set(source.may_bring) == {part} and len(source.may_bring) > 1
    assert ahead.begin() == part, "what ended counts no more, nor what was cancelled"


def test_a_failure_that_nobody_foresaw_ends_the_feed_and_leaves_the_breaker_free() -> None:
    """Its link begins anew, after a pause. A breaker that waits for the answer would let nothing through."""
    source, breaker = Source(), Breaker(SETTINGS)
    for _ in range(SETTINGS.breaker_failures):
        breaker.failed(-1000.0)
    source.failure = KeyError("odd")

    async def story() -> None:
        with pytest.raises(KeyError, match="odd"):
            await feed_of(source, [copier(0)], breaker).run()

    run(story())
    assert breaker.state is State.HALF_OPEN and breaker.allows(0.0) and len(source.asked) == 1
