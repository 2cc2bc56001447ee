"""A batch on its way through the write path, and what became of it."""

from __future__ import annotations

from collections.abc import Callable

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


class Part:
    """One batch on its way, and whom to tell."""

    __slots__ = ("batch", "done", "stream")

    def __init__(self, stream: int, batch: Batch, done: Callable[[Outcome | HeadwaterError], None]) -> None:
        self.stream = stream
        self.batch = batch
        self.done = done
