"""Appending what was fetched of one partition: units at the end of a mirrored stream, and gaps.

Every step names the end of the log that it expects and the generation of the mirror, and `apply` judges both. So a step
that is repeated, late or of another process changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headwater.errors import HeadwaterError, NotReady, Retriable
from headwater.link.copying.runs import Run
from headwater.link.copying.tails import Tail, Tails
from headwater.link.source.errors import SourceUnreadable
from headwater.log.write.part import Together
from headwater.log.write.writer import Writer
from headwater.replica.replica import Replica
from headwater.state.commands.links import SkipStreams
from headwater.state.commands.streams import AnyCondition, EndIs, MirrorIs, StartAt
from headwater.state.results import Skipped, SkipVerdict, UnitResult, UnitVerdict
from headwater.state.streams.state import StreamsState
from headwater.types import StreamId

MIRROR, END = 0, 1
"""The places of these conditions in every unit."""


class AnotherEnd(Retriable):
    """The log ends elsewhere: another process copies the partition, or an append had succeeded. Look, then go on."""


class MirrorOver(HeadwaterError):
    """The stream is no mirror of this generation any more: the topic was paused, promoted, or linked anew."""


class Appender:
    """Appends to one mirrored stream under one generation."""

    def __init__(
        self, replica: Replica[StreamsState], writer: Writer, stream: StreamId, generation: int, tails: Tails
    ) -> None:
        self._replica = replica
        self._tails = tails
        self._writer = writer
        self.stream = stream
        self.generation = generation

    def __repr__(self) -> str:
        return f"<Appender to stream {self.stream}, generation {self.generation}>"

    async def end(self) -> int:
        """The end of the log, as the ledger has it now."""
        await self._replica.barrier()
        stream = self._replica.state.streams.get(self.stream)
        if stream is None:
            raise MirrorOver(f"stream {self.stream} is gone")
        return stream.next_offset

    async def tail(self) -> Tail | None:
        """The last batch of the log and its leader epoch at the source; None if that is not known any more."""
        return await self._tails.of(self._replica, self.stream)

    async def append(self, runs: Sequence[Run]) -> None:
        """Append runs in order, each as one unit. Returns when all of them are in the log.

        All units are decided before this raises. After an error the log may have some of the runs, from the first on.
        """
        for run, outcome in zip(runs, await self._decided(runs), strict=True):
            if isinstance(outcome, HeadwaterError):
                raise outcome
            self._check(run, outcome)

    async def skip(self, end: int, to: int) -> None:
        """Leave a gap at the end of the log."""
        [result] = await self._replica.submit([SkipStreams([(self.stream, self.generation, end, to)])])
        if not isinstance(result, Skipped):
            raise NotReady(f"a gap was not left: {result}")
        [(verdict, present)] = result.gaps
        if verdict is SkipVerdict.NO_STREAM:
            raise MirrorOver(f"stream {self.stream} is gone")
        if verdict is SkipVerdict.NOT_MIRRORED:
            raise MirrorOver(f"stream {self.stream} is no mirror of generation {self.generation} any more")
        if verdict is SkipVerdict.CONFLICT:
            raise AnotherEnd(f"stream {self.stream} ends at {present}, not at {end}")
        if verdict is not SkipVerdict.SKIPPED:
            raise SourceUnreadable(f"a gap from {end} to {to} is too long")

    def _unit(self, run: Run, decided: asyncio.Future[UnitResult | HeadwaterError]) -> Together:
        conditions: list[AnyCondition] = [
            MirrorIs(self.stream, self.generation),
            EndIs(self.stream, run.end),
            StartAt(self.stream, run.start),
        ]

        def settle(outcome: UnitResult | HeadwaterError) -> None:
            if not decided.done():
                decided.set_result(outcome)

        return Together([(self.stream, batch) for batch in run.batches], conditions, settle)

    async def _decided(self, runs: Sequence[Run]) -> list[UnitResult | HeadwaterError]:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[UnitResult | HeadwaterError]] = [loop.create_future() for _ in runs]
        units = [self._unit(run, decided) for run, decided in zip(runs, waiting, strict=True)]
        for unit in units:
            self._writer.append_unit(unit)
        try:
            return list(await asyncio.gather(*waiting))
        finally:
            for unit in units:
                self._writer.withdraw_unit(unit)  # only if this task was cancelled is one of them left

    def _check(self, run: Run, outcome: UnitResult) -> None:
        if outcome.verdict is UnitVerdict.ACCEPTED:
            return
        if outcome.verdict is UnitVerdict.NO_STREAM:
            raise MirrorOver(f"stream {self.stream} is gone")
        if outcome.verdict is UnitVerdict.CONFLICT and MIRROR not in outcome.failed:
            raise AnotherEnd(f"stream {self.stream} ends at {outcome.present[END]}, not at {run.end}")
        raise MirrorOver(f"stream {self.stream} is no mirror of generation {self.generation} any more")
