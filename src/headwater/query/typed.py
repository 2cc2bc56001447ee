"""Typed columns of rows that are still in the WAL, for scans and for the processes of engines, as settling makes them.

A query has the columns that the table has when it is asked, so rows are decoded with what is known then. Schemas that
are missing are named, so that they can be asked for. A field that has no column yet is left out, and the others are
there.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import BadInput
from headwater.schemas.columns import merged
from headwater.schemas.conform import arrow_fields
from headwater.schemas.typer import Typer
from headwater.schemas.typing import Typing

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headwater.sql")
TRIES = 3
"""How often rows are tried with more columns. Two are enough: the first one tells all columns that are missing."""


class SchemasMissing(BadInput):
    """Rows of the WAL name schemas that their reader does not have. It gets them and reads again."""

    def __init__(self, names: Sequence[str], table: str = "") -> None:
        super().__init__(f"{len(names)} schemas are not known here")
        self.names = tuple(names)
        self.table = table
        """The view of the statement whose rows they are."""


class HotTyper:
    """Adds typed columns to rows of the WAL."""

    def __init__(self, typing: Typing) -> None:
        self._given = self._typing = typing
        self._typer = Typer(typing, tells_cut_off=True)
        self._missing: dict[str, None] = {}
        self.fields: list[pa.Field] = arrow_fields(typing.columns)
        """The fields of the typed columns."""

    @functools.cached_property
    def token(self) -> bytes:
        """Rows that were typed with the same token have the same columns and values."""
        return hashlib.sha256(msgspec.msgpack.encode(self._given)).digest()

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of schemas that rows had so far and that are not known. Typed columns of all rows are null then."""
        return tuple(self._missing)

    def __repr__(self) -> str:
        return f"<HotTyper of {self._typer!r}>"

    def typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with their typed columns behind the others."""
        import pyarrow as pa

        schema = pa.schema([*rows.schema, *self.fields])
        return pa.RecordBatch.from_arrays([*rows.columns, *self._arrays(rows)], schema=schema)

    def _arrays(self, rows: pa.RecordBatch) -> list[pa.Array]:
        import pyarrow as pa

        try:
            found = self._tried(rows)
        except MemoryError:
            raise
        except Exception:  # a mistake in a decoder must not end the process; settling tells of it, too
            log.exception("rows of the WAL could not be decoded")
            found = None
        return found or [pa.nulls(rows.num_rows, field.type) for field in self.fields]

    def _tried(self, rows: pa.RecordBatch) -> list[pa.Array] | None:
        """The typed columns; None if something is missing that this process cannot add."""
        for _ in range(TRIES):
            found = self._typer.typed(rows)
            self._missing.update(dict.fromkeys(self._typer.wants.schemas))
            if found is not None:  # columns that the table lacks come last, at every level
                pairs = zip(self.fields, found.arrays[: len(self.fields)], strict=True)
                return [array if array.type == field.type else array.cast(field.type) for field, array in pairs]
            if not self._widened():
                break
        return None

    def _widened(self) -> bool:
        """Add the columns that rows want, for this process only. Returns whether there are more now."""
        columns, last_id = self._typing.columns, self._typing.last_id
        for root in self._typer.wants.roots:
            columns, last_id = merged(columns, last_id, root)
        if columns is self._typing.columns:
            return False
        self._typing = msgspec.structs.replace(self._typing, columns=columns, last_id=last_id)
        self._typer = Typer(self._typing, tells_cut_off=True)
        return True
