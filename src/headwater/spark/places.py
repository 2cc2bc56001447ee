"""Where a stream of Spark is: offsets by partition, and the topic that they belong to. Plain data, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import BadInput


@dataclass(frozen=True, slots=True)
class Places:
    """The offsets behind the last rows of a batch."""

    topic: str
    """The id of the topic. One that is deleted and created again has another."""
    offsets: Mapping[int, int]

    def document(self) -> dict[str, Any]:
        """What Spark keeps, as JSON."""
        return {"topic": self.topic, "offsets": {str(number): self.offsets[number] for number in sorted(self.offsets)}}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Places:
        """What Spark has kept."""
        try:
            offsets = {int(number): int(offset) for number, offset in document["offsets"].items()}
            return cls(str(document["topic"]), offsets)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"the checkpoint has a place that is not one of a Headwater stream: {document!r}") from error


def limited(start: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Where a batch ends that begins at `start`. With a limit each partition gets its share of it, by what is waiting.

    A partition that `start` does not name is new, and begins at 0. No end goes back. Offsets without a row count too,
    so a batch may have fewer rows.
    """
    waiting = {number: max(0, end - start.get(number, 0)) for number, end in ends.items()}
    total = sum(waiting.values())
    if most is None or total <= most:
        return {number: start.get(number, 0) + count for number, count in waiting.items()}
    taken = {number: count * most // total for number, count in waiting.items()}
    rest = most - sum(taken.values())
    for number in sorted(waiting, key=lambda number: (taken[number] - waiting[number], number)):
        if rest and taken[number] < waiting[number]:
            taken[number] += 1
            rest -= 1
    return {number: start.get(number, 0) + count for number, count in taken.items()}
