"""Rows on their way from an engine's process to the gateway: frames with Arrow streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.query.engines.frames import GOAL_BYTES, MAX_FRAME

if TYPE_CHECKING:
    import pyarrow as pa


def stream_of(schema: pa.Schema, batch: pa.RecordBatch | None) -> pa.Buffer:
    """A batch as a whole stream of Arrow's, so that columns with dictionaries have them."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if batch is not None:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return sink.getvalue()


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about the size of a frame."""
    count = max(1, min(batch.num_rows, -(-batch.nbytes // GOAL_BYTES)))
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, max(1, rows)):
        piece = batch.slice(start, rows)
        if piece.nbytes > MAX_FRAME // 2 and piece.num_rows > 1:
            half = piece.num_rows // 2
            yield from pieces_of(piece.slice(0, half))
            yield from pieces_of(piece.slice(half))
        else:
            yield piece
