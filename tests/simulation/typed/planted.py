"""Defects of merges, rewrites, columns and dead letters, put in on purpose. The scene must find each of them.

Each is a context in which the defect is there. Some are found by `apply`. The last ones take its judgement away: the
auditor must find them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa

from headwater.lake import decoding, letters
from headwater.lake.spark import executor
from headwater.log.segment.write import Piece, read_pieces
from headwater.state.commands.columns import Addition, Column, additions, grown
from headwater.state.commands.streams import CursorIs
from headwater.state.streams import settle, typed
from headwater.state.streams.stored.typed import Columns
from headwater.types import Buffer

Defect = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def _all(*patches: contextlib.AbstractContextManager[Any]) -> Any:
    with contextlib.ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


class _Spoilt:
    """A row group whose first row has another value in a column."""

    def __init__(self, piece: Piece, column: str, change: Callable[[Any], Any]) -> None:
        self._piece = piece
        self._column = column
        self._change = change
        self.partition, self.first_offset = piece.partition, piece.first_offset

    def batches(self, fields: Sequence[pa.Field] = ()) -> Iterator[pa.RecordBatch]:
        for batch in self._piece.batches(fields):
            at = batch.schema.get_field_index(self._column)
            values = batch.column(at).to_pylist()
            values[0] = self._change(values[0])
            yield batch.set_column(at, batch.schema.field(at), pa.array(values, batch.schema.field(at).type))


def _spoilt(column: str, change: Callable[[Any], Any]) -> contextlib.AbstractContextManager[Any]:
    """Files are read wrongly for merges and rewrites; the auditor reads them as they are."""

    def wrong(data: Buffer, checksum: int) -> list[_Spoilt]:
        return [_Spoilt(piece, column, change) for piece in read_pieces(data, checksum)]

    return patch.object(executor, "read_pieces", wrong)


def _loses_bytes() -> contextlib.AbstractContextManager[Any]:
    return _spoilt("value", lambda value: value[:-1])


def _changes_a_column() -> contextlib.AbstractContextManager[Any]:
    return _spoilt("timestamp_ms", lambda ms: ms + 1)


def _reuses_ids() -> contextlib.AbstractContextManager[Any]:
    """New columns get the ids of the first ones."""

    def wrong(before: Sequence[Column], after: Sequence[Column]) -> list[Addition]:
        found = additions(before, after)
        if not before:
            return found
        return [Addition(one.parent, msgspec.structs.replace(one.column, id=before[0].id)) for one in found]

    return patch.object(decoding, "additions", wrong)


def _unjudged_rows() -> contextlib.AbstractContextManager[Any]:
    def check_rows(*_: object) -> None:
        """Everything is fine."""

    return _all(_loses_bytes(), patch.object(settle, "_check_rows", check_rows))


def _unjudged_columns() -> contextlib.AbstractContextManager[Any]:
    def added(before: Columns, command: Any) -> tuple[Column, ...]:
        return grown(before.newest, command.added)

    return _all(_reuses_ids(), patch.object(typed, "_added", added))


def _writes_a_letter_twice() -> contextlib.AbstractContextManager[Any]:
    """The cursor does not move over all letters that were written."""

    def wrong(stream: int, offset: int, to: int) -> CursorIs:
        return CursorIs(stream, offset, offset + 1)

    return patch.object(letters, "CursorIs", wrong)


def _moves_the_cursor_without_a_letter() -> contextlib.AbstractContextManager[Any]:
    """The first bad row of a file is passed over."""
    real = letters.bad_rows

    def wrong(*arguments: Any) -> Any:
        return real(*arguments)[1:]

    return patch.object(letters, "bad_rows", wrong)


def _moves_the_cursor_too_far() -> contextlib.AbstractContextManager[Any]:
    """Letters between the end of a unit and the cursor are never written."""

    def wrong(stream: int, offset: int, to: int) -> CursorIs:
        return CursorIs(stream, offset, to + 2)

    return patch.object(letters, "CursorIs", wrong)


PLANTED: dict[str, Defect] = {
    "a merge loses bytes of a row": _loses_bytes,
    "a rewrite changes a column of the log": _changes_a_column,
    "new columns reuse an id": _reuses_ids,
    "a merge loses bytes, and apply does not judge": _unjudged_rows,
    "new columns reuse an id, and apply does not judge": _unjudged_columns,
    "a letter is written twice": _writes_a_letter_twice,
    "the cursor moves without a letter": _moves_the_cursor_without_a_letter,
    "the cursor moves too far": _moves_the_cursor_too_far,
}
