"""What a caller wants of a topic's rows. Clients over HTTP use this too, so it imports nothing but the errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.errors import BadInput

FOREVER = 1 << 63
"""Beyond every offset and every timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows a caller wants. Nothing given: all."""

    partitions: Collection[int] | None = None
    from_offset: int = 0
    """The first offset of partitions that `from_offsets` does not name."""
    from_offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition, the first offset."""
    until_offset: int = FOREVER
    """The offset behind the last one, of partitions that `until_offsets` does not name."""
    until_offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset behind the last one."""
    from_ms: int = -FOREVER
    """The smallest timestamp."""
    until_ms: int = FOREVER
    """Timestamps are below this one."""
    committed: bool = True
    """Whether to stop at the first open transaction and to leave aborted records out. Otherwise the rows of open
    transactions are shown, and those of aborted ones until they are settled."""
    version: int | None = None
    """A version of the table, without what was not settled then. None: everything up to now."""
    kept: Mapping[int, int] = field(default_factory=dict)
    """By partition, an offset from which on no row may be missing: `RowsGone` is raised if retention removed one."""


def check_names(names: Sequence[str]) -> None:
    """Raise `BadInput` unless these can be the columns of a scan."""
    if not names or len(set(names)) < len(names):
        raise BadInput("a scan has at least one column, and each of them once")
