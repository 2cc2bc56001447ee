"""A segment that is being written: its bytes, and its facts for the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.clock import Chance
from headwater.log.segment.read import FOOTER_END, footer_bytes, footer_checksum
from headwater.log.segment.write import SegmentWriter
from headwater.state.commands.tables import Bounds, NewFile
from headwater.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".parquet"


class _Pieces:
    """The sink of a segment's writer. It has no reference to the segment: a cycle would keep the bytes in memory."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: Buffer) -> int:
        self.written.append(bytes(data))
        return len(data)


class NewSegment:
    """Collects what a segment's writer writes."""

    def __init__(self, typed: Sequence[pa.Field] = (), index: Iterable[int] = ()) -> None:
        """`typed` are the typed columns of its rows, `index` the ids of those that get bounds and bloom filters."""
        sink = _Pieces()
        self.pieces = sink.written
        self.writer = SegmentWriter(sink, typed, index)
        self.digest = 0
        """The digest of the rows, once the segment is closed."""
        self.bounds: tuple[Bounds, ...] = ()
        """The bounds of its columns, once the segment is closed."""

    def __repr__(self) -> str:
        return f"<NewSegment, {sum(map(len, self.pieces))} bytes of {self.writer!r}>"

    def close(self, prefix: str, chance: Chance) -> NewFile | None:
        """End the segment and give it a unique name; None if there are no rows."""
        facts = self.writer.close()
        self.digest, self.bounds = facts.digest, facts.bounds
        if not facts.rows:
            return None
        return NewFile(
            name=f"{prefix}{chance.uuid().hex}{SUFFIX}",
            size=facts.size,
            rows=facts.rows,
            groups=facts.groups,
            first_partition=facts.first_partition,
            last_partition=facts.last_partition,
            first_offset=facts.first_offset,
            last_offset=facts.last_offset,
            min_timestamp=facts.min_timestamp,
            max_timestamp=facts.max_timestamp,
            timestamp_nulls=facts.timestamp_nulls,
            footer_checksum=footer_checksum(self._tail()),
        )

    def _tail(self) -> bytes:
        """The end of the file, at least as long as its footer."""
        tail = b""
        for piece in reversed(self.pieces):
            tail = piece + tail
            if len(tail) >= FOOTER_END and len(tail) >= footer_bytes(tail):
                break
        return tail
