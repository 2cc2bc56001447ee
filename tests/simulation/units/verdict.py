"""What must hold of units when everything has come to rest."""

from __future__ import annotations

import io
import random

import pyarrow.parquet as pq

from headwater.app.ledgers.copying import LedgerCopy
from headwater.ledger.memory import MemoryLedger
from headwater.replica.checkpoint import load_state, replay
from headwater.state.commands.streams import EndIs
from headwater.state.results import UnitResult, UnitVerdict
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from tests.simulation.clients import Violation
from tests.simulation.cluster import SimChance, SimClock
from tests.simulation.stores import World
from tests.simulation.units.auditor import KEPT_MS, ONE, Attempt, Auditor


async def check_end(world: World, auditor: Auditor, state: StreamsState, streams: list[int]) -> int:
    """Check what processes told, and the tables. Returns the number of units that were answered."""
    answered = 0
    winners: dict[tuple[int, int], Attempt] = {}
    for attempt in auditor.attempts.values():
        if not attempt.conditions:
            continue
        auditor.check_told(attempt)
        _check_whole(auditor, attempt)
        if isinstance(attempt.told, UnitResult):
            answered += 1
            if attempt.told.verdict is UnitVerdict.ACCEPTED:
                _check_winner(attempt, attempt.told, winners)
    for name in streams:
        stream = state.streams[name]
        if stream.settled != stream.next_offset:
            raise Violation(f"{stream} is settled up to {stream.settled} only")
        _check_table(world, auditor, state, stream)
    return answered


def _check_whole(auditor: Auditor, attempt: Attempt) -> None:
    """A unit is there as a whole or not at all. Streams that were dropped are not known to the state any more."""
    there = [
        value in set(auditor.log.get(stream, {}).values()) for stream, held in attempt.values.items() for value in held
    ]
    judged = auditor.judged.get(attempt.stamp)
    if any(there) != all(there) or any(there) != (judged is not None and judged.verdict is UnitVerdict.ACCEPTED):
        raise Violation(f"of {attempt.values} there is {there}, {judged}")


def _check_winner(attempt: Attempt, told: UnitResult, winners: dict[tuple[int, int], Attempt]) -> None:
    """Of those who expect one end of a stream, one wins, and its records begin there."""
    ends = {c.stream: c.offset for c in attempt.conditions if isinstance(c, EndIs)}
    for placed in told.placed:
        expected = ends.get(placed.stream)
        if expected is None:
            continue
        other = winners.setdefault((placed.stream, expected), attempt)
        if other is not attempt:
            raise Violation(f"{attempt.values} and {other.values} both won at {expected} of {placed.stream}")


def _check_table(world: World, auditor: Auditor, state: StreamsState, stream: Stream) -> None:
    """The rows of a table are the records of the log. What was deleted from the log may still be in the table."""
    table = state.tables.get(stream.topic)
    rows: dict[int, bytes] = {}
    for file in table.live() if table is not None else ():
        assert table is not None
        read = pq.read_table(io.BytesIO(world.store.objects[f"{table.root}/{file.name}"]))
        columns = (read.column(name).to_pylist() for name in ("partition", "offset", "value"))
        for partition, offset, value in zip(*columns, strict=True):
            if partition == stream.partition and rows.setdefault(offset, value) != value:
                raise Violation(f"stream {stream.id} offset {offset} is twice in the table")
    there = auditor.log.get(int(stream.id), {})
    for offset, value in rows.items():
        if there.get(offset) != value:
            raise Violation(f"stream {stream.id} offset {offset}: the table has {value!r}, not {there.get(offset)!r}")
    for offset, value in there.items():
        if offset >= stream.log_start and offset not in rows and value not in auditor.loose:
            raise Violation(f"stream {stream.id} offset {offset}: {value!r} is not in the table")


async def check_copy(world: World, auditor: Auditor, state: StreamsState, rng: random.Random) -> None:
    """A copy of the ledger has the same state, and knows all keys."""
    target = MemoryLedger()
    copy = LedgerCopy(world.verdict_ledger, target, world.store, SimClock(world, 0), SimChance(rng))
    await copy.run(force=True)
    found = StreamsState(ONE)
    await load_state(target, world.store, found)
    await replay(target, found)
    found.position = state.position
    if found.image() != state.image():
        raise Violation("a copy of the ledger differs from it")
    for key, kept in auditor.kept.items():
        known = found.keys.get(key)
        if known is None and kept.ms + KEPT_MS > found.clock_ms:
            raise Violation(f"the key {key!r} is not in the copy of the ledger")
        if known is not None and (known.body, known.placed) != (kept.once.body, kept.placed):
            raise Violation(f"the key {key!r} has another answer in the copy of the ledger")
