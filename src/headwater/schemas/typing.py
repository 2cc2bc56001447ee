"""How the typed columns of a table's rows are made: plain data, which travels to executors and back."""

from __future__ import annotations

import msgspec

from headwater.schemas.shapes import Shape
from headwater.state.commands.columns import Column

NO_SCHEMA, AUTO, JSON, SUBJECT = "none", "auto", "json", "subject:"
"""Where the schemas of keys or values come from. `SUBJECT` has the name of the subject behind it."""
MAX_UNKNOWN = 1_000
"""At most this many schemas are asked for at once."""


class KnownSchema(msgspec.Struct, frozen=True, array_like=True):
    """A schema, with all that it refers to."""

    names: tuple[str, ...]
    """How records and topics name it: its id or its GUID as text, or `subject:NAME` if it is the newest one there."""
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str], ...]
    """Name and text of every schema that it refers to, also by way of others."""
    compiled: bytes = b""
    """The FileDescriptorSet of a Protobuf schema, for processes that cannot start the compiler."""


class Typing(msgspec.Struct, frozen=True, array_like=True):
    """What is known when rows get their typed columns."""

    key: str
    value: str
    """Where the schemas of keys and values come from."""
    flatten: bool
    separate: bool
    """Whether each record type has a struct of its own."""
    columns: tuple[Column, ...]
    version: int
    """The version of the columns."""
    last_id: int
    schemas: tuple[KnownSchema, ...] = ()
    absent: tuple[str, ...] = ()
    """Names of schemas that the registry does not have."""
    cut_off: bool = False
    """Whether the registry cannot be asked. Rows with schemas that are not known stay without values."""
    refused: str = ""
    """Why no row is decoded, though schemas are known: each is a failure with this text. Empty: rows are decoded."""


class Wants(msgspec.Struct, frozen=True, array_like=True):
    """What is missing before rows can get their typed columns."""

    schemas: tuple[str, ...] = ()
    """Names of schemas that are not known."""
    roots: tuple[Shape, ...] = ()
    """Shapes of typed columns that the table does not have yet."""

    def __bool__(self) -> bool:
        return bool(self.schemas or self.roots)


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """A key or a value that could not be decoded."""

    kind: str
    """`no-schema`, `unknown-schema`, `bad-schema` or `bad-data`; `not-decoded` for rows that make jobs fail;
    `no-answer` only for readers of the WAL."""
    text: str
