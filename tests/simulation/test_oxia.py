"""The Oxia ledger over a model of Oxia, in virtual time: lost replies, late writes, deposed leaders."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from harness import virtual
from headwater.errors import OutcomeUnknown, Retriable, StoreUnavailable, Truncated
from headwater.ledger.conformance import checks
from headwater.ledger.contract import Entry, Ledger, Pointer
from headwater.ledger.oxia.ledger import OxiaLedger
from headwater.ledger.oxia.store import Write
from headwater.types import Domain, Position
from tests.simulation.oxia_model import OxiaFaults, OxiaModel
from tests.support.promise import promise

PROMISES = ("M1", "M6")

ONE = Domain(1)
START = Position(0)
SEEDS = 40
WRITERS = 3
RECORDS = 25

_T = TypeVar("_T")


@promise("M1")
@pytest.mark.parametrize("name", checks())
@pytest.mark.parametrize("shards", [1, 3])
def test_conformance(name: str, shards: int) -> None:
    model = OxiaModel(shards)

    async def open_one() -> Ledger:
        return OxiaLedger(model.open())

    virtual.run(_awaited(checks()[name](open_one)))


async def _awaited(check: Awaitable[None]) -> None:
    await check


class Careless(OxiaLedger):
    """Reads from whoever takes itself for the leader, as if that were enough."""

    async def _fresh(self, route: str, mark: str, read: Callable[[str], Awaitable[_T]]) -> _T:
        return await read(f"0/{self._store._leader(0)}")  # type: ignore[attr-defined]


class Forgetful(OxiaLedger):
    """Truncates without leaving a mark."""

    async def truncate(self, domain: Domain, through: Position) -> None:
        await super().truncate(domain, through)
        place = self._place(domain)
        await self._store.write(place.route, Write(delete_ranges=[(place.key(0), place.key(through + 1))]))


@dataclass
class History:
    """What was asked and answered."""

    stands: dict[int, bytes] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    followed: list[Entry] = field(default_factory=list)
    jumps: int = 0
    looks: int = 0

    def check(self, found: list[Entry], truncated: int) -> None:
        """What is left in the end fits what everybody was told."""
        positions = [entry.position for entry in found]
        assert positions == list(range(truncated + 1, truncated + 1 + len(found))), "positions have holes"
        data = [entry.data for entry in found]
        assert len(set(data)) == len(data), "a record stands twice"
        assert not self.refused & set(data), "a refused record stands"
        for position, wanted in self.stands.items():
            assert position <= truncated or found[position - truncated - 1].data == wanted, (
                "an acknowledged record is lost"
            )
        assert set(data) <= self.unknown | set(self.stands.values()), "a record that nobody wrote"


async def _write(ledger: Ledger, name: str, rng: random.Random, history: History) -> None:
    for i in range(RECORDS):
        record = f"{name} {i}".encode()
        try:
            position = await ledger.append(ONE, record)
        except OutcomeUnknown:
            history.unknown.add(record)
        except StoreUnavailable:
            history.refused.add(record)
        else:
            assert position not in history.stands, f"position {position} was given out twice"
            history.stands[position] = record
        await asyncio.sleep(rng.random())


async def _follow(ledger: Ledger, history: History) -> None:
    """Read what comes, without holes and at once; after a truncation go on behind it."""
    after = START
    while True:
        try:
            await ledger.watch(ONE, after)
            for entry in await ledger.read(ONE, after, 5):
                assert entry.position == after + 1, f"{entry.position} follows {after}"
                history.followed.append(entry)
                after = entry.position
        except Truncated:
            history.jumps += 1
            after = Position(after + 1)
        except Retriable:
            await asyncio.sleep(0.1)


async def _look(ledger: Ledger, rng: random.Random, history: History) -> None:
    """`last` answers at least what anybody was told before it began, and a read then reaches it."""
    while True:
        await asyncio.sleep(rng.random())
        told = max(history.stands, default=0)
        with contextlib.suppress(Retriable, Truncated):
            last = await ledger.last(ONE)
            assert last >= told, f"last answers {last} after {told} was acknowledged"
            history.looks += 1
            if last > 0:
                assert await ledger.read(ONE, Position(last - 1), 1), f"nothing at {last}, which is the last"


async def _trouble(model: OxiaModel, ledger: Ledger, rng: random.Random) -> int:
    """Leaders change, learn of it late, and the ledger is truncated now and then. Answers how far."""
    truncated = 0
    for _ in range(8):
        await asyncio.sleep(rng.random() * 4)
        model.depose()
        await asyncio.sleep(rng.random() * 4)
        if rng.random() < 0.7:
            model.enlighten()
        if rng.random() < 0.5:
            with contextlib.suppress(Retriable):
                through = Position(max(0, await ledger.last(ONE) - rng.randrange(6)))
                truncated = max(truncated, through)
                await ledger.truncate(ONE, through)
    return truncated


async def _story(seed: int, kind: type[OxiaLedger]) -> History:
    rng, model, history = random.Random(seed), OxiaModel(), History()
    faults = OxiaFaults(
        refused=0.02, lost=0.03, reply_lost=0.03, late=0.03, read_refused=0.05, notice_lost=0.1, delay=0.02
    )
    ledgers = [kind(model.open(rng, lambda: faults)) for _ in range(WRITERS + 3)]
    follower, looker, troubled, *writers = ledgers
    beside = [asyncio.create_task(_follow(follower, history)), asyncio.create_task(_look(looker, rng, history))]
    writing = asyncio.gather(*(_write(ledger, f"writer {i}", rng, history) for i, ledger in enumerate(writers)))
    try:
        await _trouble(model, troubled, rng)
        await writing
        model.enlighten()
        await asyncio.sleep(20)
        for task in beside:
            assert not task.done() or task.result() is None
        await _settle(kind(model.open()), history)
    finally:
        for task in beside:
            task.cancel()
        for ledger in ledgers:
            await ledger.close()
    return history


async def _settle(ledger: Ledger, history: History) -> None:
    truncated = START
    found: list[Entry] = []
    while True:
        try:
            page = await ledger.read(ONE, Position(truncated + len(found)), 100)
        except Truncated:
            truncated, found = Position(truncated + 1), []
            continue
        if not page:
            break
        found += page
    history.check(found, truncated)
    await ledger.close()
    if found:
        assert history.followed[-1] == found[-1], "the follower did not reach the end"


@promise("M1", "M6")
def test_seeds() -> None:
    """Whatever is lost, late or old, nothing acknowledged is lost and nobody is told less than there is."""
    histories = [virtual.run(_story(seed, OxiaLedger)) for seed in range(SEEDS)]
    assert all(history.stands and history.looks for history in histories)
    assert any(history.jumps for history in histories)
    assert any(history.refused for history in histories)
    assert any(history.unknown for history in histories)


@promise("M1")
@pytest.mark.parametrize("kind", [Careless, Forgetful])
def test_defects_are_found(kind: type[OxiaLedger]) -> None:
    """Without a quorum behind `last`, or without the mark that keeps positions, a seed fails."""
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            virtual.run(_story(seed, kind))


@promise("M6")
def test_a_deposed_leader_is_not_believed() -> None:
    """A handle that reads from a deposed leader still finds what it knows of, the newest end, pointer and beats."""

    async def run() -> None:
        model = OxiaModel()
        old, new = OxiaLedger(model.open()), OxiaLedger(model.open())
        first = await old.append(ONE, b"before")
        model.depose()
        second = await new.append(ONE, b"after")
        assert await new.set_pointer(ONE, START, Pointer(first, "somewhere"))
        await new.beat("a")
        assert await old.read(ONE, first, 10) == []  # it knows of nothing more
        assert await old.last(ONE) == second
        assert await old.read(ONE, first, 10) == [Entry(second, b"after")]
        model.depose()
        newest = OxiaLedger(model.open())
        await newest.beat("a")
        assert (await old.pointer(ONE)) == Pointer(first, "somewhere")
        assert [beat.count for beat in await old.beats()] == [2]
        for ledger in (old, new, newest):
            await ledger.close()

    virtual.run(run())


@promise("M1")
def test_looks_are_shared() -> None:
    """Calls of `last` that wait together cost one write, and one that comes later is not given an older answer."""

    async def run() -> None:
        model = OxiaModel()
        ledger, writer = OxiaLedger(model.open(faults=lambda: OxiaFaults(delay=0.5))), OxiaLedger(model.open())
        early = [asyncio.create_task(ledger.last(ONE)) for _ in range(50)]
        await asyncio.sleep(0.01)
        position = await writer.append(ONE, b"x")
        late = [asyncio.create_task(ledger.last(ONE)) for _ in range(50)]
        assert await asyncio.gather(*late) == [position] * 50
        assert len(set(await asyncio.gather(*early))) == 1
        marks = [write for write in model._shards[0].log if not write.puts[0].sequence]
        assert len(marks) == 2
        await ledger.close()
        await writer.close()

    virtual.run(run())
