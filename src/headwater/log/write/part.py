"""A batch or a unit in the write path, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.batch import Batch
from headwater.state.commands.streams import AnyCondition, Mode, Once
from headwater.state.results import UnitResult, Verdict

KEY_WEIGHT = 10
_PLAIN, _JOINED, _JOINS = Mode  # an attribute of an enum takes longer to find


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a batch that was judged when its record was applied."""

    verdict: Verdict
    offset: int = -1
    log_start: int = -1
    append_ms: int = -1


class Caller(Protocol):
    """The sender of batches. It numbers its batches, and is called with the outcome of each."""

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        """The batch is in the log."""

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        """The batch has any other outcome."""


class Part(msgspec.Struct, gc=False, eq=False):
    """One batch in the write path, and its caller. Two parts are never equal."""

    stream: int
    batch: Batch
    caller: Caller
    number: int
    joins: bool = False
    """Whether a transactional batch makes its stream a part of the transaction. If not, the stream must be one."""

    @property
    def mode(self) -> Mode:
        """What the batch has to do with a transaction."""
        if not self.batch.transactional:
            return _PLAIN
        return _JOINS if self.joins else _JOINED


class Together(msgspec.Struct, gc=False, eq=False):
    """Batches that are appended together, under conditions, or not at all. Two of them are never equal."""

    batches: Sequence[tuple[int, Batch]]
    """Each with its stream. The batches of a stream follow each other."""
    conditions: list[AnyCondition]
    decided: Callable[[UnitResult | HeadwaterError], None]
    """Called with the outcome, once."""

    @property
    def size(self) -> int:
        """The bytes of the batches."""
        return sum([len(batch.data) for _, batch in self.batches])

    @property
    def weight(self) -> int:
        """How many batches take as much of a ledger record as this unit. A key has hashes, and takes much."""
        return len(self.batches) + sum([KEY_WEIGHT if isinstance(c, Once) else 1 for c in self.conditions])
