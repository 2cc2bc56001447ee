"""What a registry has answered, kept for a while, up to limits.

A registry that does not answer is left alone for some seconds, so that nobody waits for its time-outs one by one.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from headwater.clock import Clock
from headwater.errors import RegistryUnavailable
from headwater.lake.registries import Registered
from headwater.schemas.typing import KnownSchema

log = logging.getLogger("headwater.schemas")
KEPT_ANSWERS = 10_000
KEPT_CHARACTERS = 64 << 20
"""Answers that are kept, and the length of the texts of their schemas. Others are asked for again."""
RETRY_SECONDS = 5.0
"""How long a registry that did not answer is not asked again."""


class Kept(NamedTuple):
    """An answer."""

    answer: object
    until: float
    """When it counts no more as the registry's present answer."""


class Answers:
    """The answers of one registry."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._characters = 0
        self._again = float("-inf")
        self.unreachable = ""
        """Why the registry does not answer; empty if it does, or was not asked."""

    def __repr__(self) -> str:
        return f"<Answers, {len(self._kept)} kept, {self.unreachable or 'registry reachable'}>"

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def resting(self) -> bool:
        """Whether the registry did not answer a moment ago, and is not asked now."""
        return bool(self.unreachable) and self._clock.monotonic() < self._again

    def get(self, question: Hashable) -> Kept | None:
        """The last answer to a question, however old it is."""
        return self._kept.get(question)

    def fresh(self, question: Hashable) -> Kept | None:
        """The answer to a question, if it still counts."""
        found = self._kept.get(question)
        return found if found is not None and self._clock.monotonic() < found.until else None

    def keep(self, question: Hashable, answer: object, seconds: float) -> None:
        """Keep an answer, which counts for so many seconds."""
        gone = self._kept.get(question)
        self._characters += _size(answer) - (_size(gone.answer) if gone is not None else 0)
        self._kept[question] = Kept(answer, self._clock.monotonic() + seconds)
        self._kept.move_to_end(question)
        while len(self._kept) > KEPT_ANSWERS or self._characters > KEPT_CHARACTERS:
            _, gone = self._kept.popitem(last=False)
            self._characters -= _size(gone.answer)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Around questions to the registry. Raises `RegistryUnavailable` at once if it did not answer a moment ago."""
        if self.resting:
            raise RegistryUnavailable(self.unreachable)
        try:
            yield
        except RegistryUnavailable as error:
            if not self.unreachable:
                log.warning("a schema registry cannot be asked", extra={"reason": str(error)})
            self.unreachable = str(error) or type(error).__name__
            self._again = self._clock.monotonic() + RETRY_SECONDS
            raise
        self.unreachable = ""


def _size(answer: object) -> int:
    """The length of the texts of a schema; 0 for other answers."""
    schema = answer.schema if isinstance(answer, Registered) else answer
    if not isinstance(schema, KnownSchema):
        return 0
    return len(schema.text) + sum(len(text) for _, text in schema.references)
