"""A batch in the write path, and its outcome."""

from __future__ import annotations

from typing import Protocol

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.batch import Batch
from headwater.state.commands.streams import Mode
from headwater.state.results import Verdict

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
