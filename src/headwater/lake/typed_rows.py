"""The typed columns of a file that is being written: rows in, rows with typed columns out, failures counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lake.tasks import TypedFacts
from headwater.schemas.typer import Typed, Typer
from headwater.schemas.typing import Typing

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TEXT = 1_000
"""Characters of a decoder's error."""


class TypedRows:
    """Adds typed columns to the rows of one file."""

    def __init__(self, typing: Typing) -> None:
        self._version = typing.version
        self._typer = Typer(typing)
        self._failures = 0
        self._complete = True
        self._flaw = ""
        self.fields: list[pa.Field] = self._typer.fields()
        """The fields of the typed columns."""

    def __repr__(self) -> str:
        return f"<TypedRows, {self._failures} failures, {self._typer!r}>"

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Rows with their typed columns. None if something is missing; later rows are looked at all the same."""
        import pyarrow as pa

        try:
            found = self._typer.typed(batch)
        except Exception as error:  # noqa: BLE001 - a mistake in a decoder must not stop settling
            self._flaw = f"{type(error).__name__}: {error}"[:MAX_TEXT]
            found = Typed([pa.nulls(batch.num_rows, field.type) for field in self.fields], {}, complete=False)
        if found is None:
            return None
        self._complete = self._complete and found.complete
        self._failures += len(found.failures)
        columns = [*batch.columns, *found.arrays]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *self.fields]))

    @property
    def facts(self) -> TypedFacts:
        """What the facts of the file say."""
        wants = self._typer.wants
        if wants:
            return TypedFacts(wants=wants)
        version = self._version if self._complete else 0
        return TypedFacts(version, self._failures, flaw=self._flaw)
