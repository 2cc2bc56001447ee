"""Holds: what processes that read for others keep from deletion.

A process has at most one hold, under its epoch. The hold has a time: what was removed at that time or later stays in
the store. Times are those of the domain, in which the removals are judged too, and they tie. So "at that time" counts.
A hold also names versions of tables whose files stay, however long ago they were removed.

A hold ends with its epoch, by a fence, and never by a clock. Its time only moves forward. So what no hold keeps is kept
by none later, and a deleter needs no newer state than the one in which it saw the removal: a hold that keeps a file is
older than the removal of that file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_HOLDS = 1_000
MAX_VERSIONS = 1_000
"""The limit of versions that one hold names."""

PackedHold = tuple[int, int, list[tuple[bytes, int]]]
"""Epoch, time, and (topic, version) of each version."""


@dataclass(slots=True)
class Hold:
    """What one epoch keeps."""

    since_ms: int
    """What was removed at this time or later stays."""
    versions: dict[tuple[uuid.UUID, int], None] = field(default_factory=dict)
    """(topic, version) of the versions whose files stay."""


class Holds:
    """All holds of a domain."""

    __slots__ = ("_by_epoch",)

    def __init__(self) -> None:
        self._by_epoch: dict[int, Hold] = {}

    def __len__(self) -> int:
        return len(self._by_epoch)

    def __iter__(self) -> Iterator[tuple[int, Hold]]:
        """Every hold with its epoch, in the order in which they were taken."""
        return iter(self._by_epoch.items())

    def __repr__(self) -> str:
        return f"<Holds: {self._by_epoch}>"

    def get(self, epoch: int) -> Hold | None:
        """The hold of an epoch."""
        return self._by_epoch.get(epoch)

    def take(self, epoch: int, now_ms: int) -> Hold:
        """The hold of an epoch; a new one keeps what is removed from now on."""
        return self._by_epoch.setdefault(epoch, Hold(now_ms))

    def drop(self, epoch: int) -> None:
        """End the hold of an epoch."""
        self._by_epoch.pop(epoch, None)

    @property
    def oldest_ms(self) -> int | None:
        """The time of the oldest hold; None if there are no holds."""
        return min((hold.since_ms for hold in self._by_epoch.values()), default=None)

    def keeps(self, removed_ms: int) -> bool:
        """Whether a hold keeps what was removed at a time."""
        oldest = self.oldest_ms
        return oldest is not None and removed_ms >= oldest

    def versions(self, topic: uuid.UUID) -> list[int]:
        """The versions of a table that holds name, ascending."""
        return sorted({v for hold in self._by_epoch.values() for t, v in hold.versions if t == topic})

    def pack(self) -> list[PackedHold]:
        """All holds as plain data, for a checkpoint."""
        return [
            (epoch, hold.since_ms, [(topic.bytes, version) for topic, version in hold.versions])
            for epoch, hold in self._by_epoch.items()
        ]

    @classmethod
    def unpack(cls, packed: list[PackedHold]) -> Holds:
        """The inverse of `pack`."""
        self = cls()
        for epoch, since_ms, versions in packed:
            named = {(uuid.UUID(bytes=topic), version): None for topic, version in versions}
            self._by_epoch[epoch] = Hold(since_ms, named)
        return self
