"""An observer that folds the ledger from its beginning, and judges every unit a second time by rules of its own.

The rules know the ends of the streams before a command, and nothing of the product's judges. No checkpoint is used, so
what processes answer after a restart is compared with what an uninterrupted process would answer. Every batch has a
timestamp of its own, by which the observer recognises it in the ledger. So it also knows what each offset holds.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError, OutcomeUnknown
from headwater.replica.checkpoint import READ_CHUNK, record_of
from headwater.state.commands.streams import (
    AnyCondition,
    AppendUnits,
    AppendWal,
    Chunk,
    EndIs,
    Once,
    StartAt,
    Unit,
    UnitChunk,
    VersionIs,
)
from headwater.state.results import Appended, ChunkResult, Placed, Result, UnitResult, UnitVerdict, Verdict
from headwater.state.streams import append
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.simulation.clients import Violation
from tests.simulation.cluster import EPOCH_MS
from tests.simulation.stores import World

ONE = Domain(1)
KEPT_MS = 6_000
"""How long a key is kept in this scene, instead of a day."""
MAX_OWNED = 5
"""The limit of keys of one owner in this scene."""
MAX_GAP = 1_024 * ((1 << 32) - 1)


@dataclass(eq=False)
class Attempt:
    """One batch, or one unit, that a process gave to its writer."""

    stamp: int
    """The timestamp of its records. No other attempt has it."""
    values: dict[int, list[bytes]]
    """By stream."""
    conditions: list[AnyCondition] = field(default_factory=list)
    transactional: bool = False
    told: UnitResult | HeadwaterError | None = None
    """What the process would have answered."""
    withdrawn: bool = False


@dataclass(frozen=True)
class _Kept:
    ms: int
    once: Once
    placed: list[Placed]

    def lives(self, now_ms: int) -> bool:
        return now_ms < self.ms + KEPT_MS


class Auditor:
    """Folds the ledger of the streams."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = asyncio.Lock()
        self.attempts: dict[int, Attempt] = {}
        self.judged: dict[int, UnitResult] = {}
        """The right result of each unit, by its attempt's stamp."""
        self.log: dict[int, dict[int, bytes]] = {}
        """What each offset of a stream holds. Markers, reservations and gaps hold nothing."""
        self.gaps: dict[int, list[tuple[int, int]]] = {}
        self.loose: set[bytes] = set()
        """Values of transactions that are not known to be committed. Settling may drop them."""
        self.kept: dict[bytes, _Kept] = {}
        """The last use of each key."""
        self.verdicts: Counter[str] = Counter()
        self.state = self._audited()(ONE)

    def attempt(
        self,
        values: dict[int, list[bytes]],
        conditions: list[AnyCondition] | None = None,
        *,
        transactional: bool = False,
    ) -> Attempt:
        """A new attempt."""
        stamp = EPOCH_MS + len(self.attempts)
        made = self.attempts[stamp] = Attempt(stamp, values, conditions or [], transactional)
        if transactional:
            self.loose.update(value for held in values.values() for value in held)
        return made

    def _audited(self) -> type[StreamsState]:
        """The product's state, with a look at every append."""
        part = next(part for part in StreamsState.PARTS if part.name == append.PART.name)

        def look(state: StreamsState, epoch: int, command: AppendWal | AppendUnits) -> Result:
            ends = {name: stream.next_offset for name, stream in state.streams.items()}
            result: Result = part.commands[type(command)](state, epoch, command)
            self._audit(state, command, result, ends)
            return result

        watched = dataclasses.replace(part, commands={**part.commands, AppendWal: look, AppendUnits: look})
        parts = tuple(watched if other is part else other for other in StreamsState.PARTS)
        return type("Audited", (StreamsState,), {"PARTS": parts})

    async def fold(self) -> None:
        """Fold all that is in the ledger."""
        async with self._lock:
            ledger = self._world.verdict_ledger
            while entries := await ledger.read(ONE, self.state.position, READ_CHUNK):
                for entry in entries:
                    self.state.apply(entry.position, record_of(ONE, entry))

    # --- the second judgement ----------------------------------------------------------------------------

    def _audit(
        self, state: StreamsState, command: AppendWal | AppendUnits, result: Result, ends: dict[int, int]
    ) -> None:
        if not isinstance(result, Appended):
            raise Violation(f"an append was refused: {result}")
        units = command.units if isinstance(command, AppendUnits) else [Unit([], [])]
        chunks = iter(result.chunks)
        if isinstance(command, AppendWal):
            for chunk in command.chunks:
                self._take_plain(chunk, next(chunks), ends)
        for place, unit in enumerate(units):
            if not unit.conditions:
                for part in unit.chunks:
                    self._take_plain(part, next(chunks), ends)
                continue
            stamp = unit.chunks[0].batches[0][2]
            found, right = result.units[place], self._judge(state, unit, ends)
            self.judged[stamp] = right
            self.verdicts[right.verdict.name] += 1
            if found != right:
                raise Violation(f"{unit.conditions} with the ends {ends}: {found} instead of {right}")
            for _ in unit.chunks:
                next(chunks)
            if right.verdict is UnitVerdict.ACCEPTED:
                self._take_unit(state, unit, right, ends)
        now = {name: stream.next_offset for name, stream in state.streams.items()}
        if now != ends:
            raise Violation(f"streams end at {now}, not at {ends}")

    def _take_plain(self, chunk: Chunk | UnitChunk, result: ChunkResult, ends: dict[int, int]) -> None:
        """Batches without conditions, as the product judged them."""
        for i, (_, offsets, stamp) in enumerate(chunk.batches):
            verdict = result.verdicts[i][0] if result.verdicts is not None else Verdict.ACCEPTED
            if verdict is Verdict.ACCEPTED:
                self._put(chunk.stream, ends[chunk.stream], offsets, stamp)
                ends[chunk.stream] += offsets

    def _put(self, stream: int, first: int, offsets: int, stamp: int) -> None:
        values = self.attempts[stamp].values[stream]
        if len(values) != offsets:
            raise Violation(f"{offsets} offsets for {values}")
        self.log.setdefault(stream, {}).update(enumerate(values, first))

    def _take_unit(self, state: StreamsState, unit: Unit, result: UnitResult, ends: dict[int, int]) -> None:
        for placed in result.placed:
            if ends[placed.stream] < placed.first_offset:
                self.gaps.setdefault(placed.stream, []).append((ends[placed.stream], placed.first_offset))
            stamp = unit.chunks[0].batches[0][2]
            self._put(placed.stream, placed.first_offset, placed.offsets, stamp)
            ends[placed.stream] = placed.first_offset + placed.offsets
        for condition in unit.conditions:
            if isinstance(condition, Once):
                self.kept[condition.key] = _Kept(state.clock_ms, condition, result.placed)

    def _judge(self, state: StreamsState, unit: Unit, ends: dict[int, int]) -> UnitResult:
        """What the result of a unit must be."""
        now, conditions = state.clock_ms, unit.conditions
        keys = [condition for condition in conditions if isinstance(condition, Once)]
        for key in keys:
            known = self.kept.get(key.key)
            if known is not None and known.lives(now):
                if known.once.body != key.body:
                    return UnitResult(UnitVerdict.MISMATCH, [], [], [])
                return UnitResult(UnitVerdict.REPEATED, [], [], known.placed, known.once.note)
        if any(chunk.stream not in ends for chunk in unit.chunks):
            return UnitResult(UnitVerdict.NO_STREAM, [], [], [])
        present = []
        failed = []
        for place, condition in enumerate(conditions):
            found, holds = -1, True
            if isinstance(condition, EndIs):
                found = ends.get(condition.stream, -1)
                holds = found == condition.offset
            elif isinstance(condition, StartAt):
                found = ends[condition.stream]
                holds = found <= condition.offset <= found + MAX_GAP
            elif isinstance(condition, VersionIs):
                table = state.tables.get(condition.topic)
                found = table.last_sequence if table is not None else 0
                holds = found == condition.version
            present.append(found)
            if not holds:
                failed.append(place)
        if failed:
            return UnitResult(UnitVerdict.CONFLICT, failed, present, [])
        for key in keys:
            owned = [kept for kept in self.kept.values() if kept.once.owner == key.owner and kept.lives(now)]
            if len(owned) >= MAX_OWNED:
                return UnitResult(UnitVerdict.FULL, [], present, [])
        starts = {c.stream: c.offset for c in conditions if isinstance(c, StartAt)}
        placed = [
            Placed(chunk.stream, starts.get(chunk.stream, ends[chunk.stream]), chunk.batches[0][1], -1)
            for chunk in unit.chunks
        ]
        return UnitResult(UnitVerdict.ACCEPTED, [], [], placed)

    # --- what processes and readers were told ------------------------------------------------------------

    def check_told(self, attempt: Attempt) -> None:
        """Check what a process would have answered to a unit."""
        judged, told = self.judged.get(attempt.stamp), attempt.told
        if isinstance(told, UnitResult) and told != judged:
            raise Violation(f"{attempt.values} with {attempt.conditions}: {told} was told, {judged} is right")
        refused = attempt.withdrawn or (isinstance(told, HeadwaterError) and not isinstance(told, OutcomeUnknown))
        if refused and judged is not None and judged.verdict is UnitVerdict.ACCEPTED:
            raise Violation(f"{attempt.values} was refused by {told!r}, and is there")

    def check_read(self, stream: int, first: int, last: int, got: dict[int, bytes]) -> None:
        """Check what a reader of all records got for a range of offsets."""
        there = self.log.get(stream, {})
        for at, value in got.items():
            if there.get(at) != value:
                raise Violation(f"stream {stream} offset {at}: a reader got {value!r}, {there.get(at)!r} is there")
        for at, value in there.items():
            if first <= at < last and at not in got and value not in self.loose:
                raise Violation(f"stream {stream} offset {at}: a reader passed over {value!r}")
