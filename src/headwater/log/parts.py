"""A batch on its way through the write path, and what became of it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.batch import Batch
from headwater.metadata.results import Verdict


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a batch."""

    verdict: Verdict
    offset: int = -1
    log_start: int = -1
    append_ms: int = -1


class Caller(Protocol):
    """Whoever sent batches and wants to know what became of each. It gave each a number."""

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        """The batch is in the log."""

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        """Anything else became of it."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One batch on its way, and whom to tell."""

    stream: int
    batch: Batch
    caller: Caller
    number: int
