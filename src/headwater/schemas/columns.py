"""Columns of a table, merged from the shapes of its records.

The rules are the same for every format. A column never changes and never goes away, so every reader keeps working and
neither type promotion nor Delta's column mapping is needed:

- A column is wide from the start: int is long, float is double. A uuid and a time of day are strings, because Delta has
  neither type and the files are the same for Iceberg and Delta.
- A field belongs to the column of its name that takes its type. If there is none, it gets a new column; beside a column
  of the same field with another type that is `name__type`. Structs take each other's fields, in lists and maps too.
- A renamed field is a new column. A field that is missing is null.
- What is deeper than the limits is JSON text in its place. What is beyond the number of columns, or has a name that is
  too long, is JSON text in the column `_rest` of the table.

The result depends on the columns and the shape alone. Merging the same shape twice adds nothing the second time.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import msgspec

from headwater.schemas.names import cut_to, folded, readable, unlike
from headwater.schemas.shapes import JSON, NESTED, STRING, Field, Shape, is_void, struct
from headwater.state.commands.columns import FIRST_COLUMN, Column

ERROR = "decode_error"
"""The column that says why a record could not be decoded."""

KEY = "key_data"
VALUE = "value_data"
REST = "_rest"
"""The column with what found no column, as JSON text."""

FLAT = "value."
"""Before the name of a value's field at the root of a flattened table."""

LOG_COLUMNS = (
    *("partition", "offset", "timestamp_ms", "timestamp", "key", "value", "headers", "headers_raw", "attributes"),
    *("producer_id", "producer_epoch", "sequence"),
)
"""The columns of the log, in the order of its files."""

_RESERVED = frozenset(
    {*LOG_COLUMNS, ERROR, KEY, VALUE, REST}
    # Iceberg's and Delta's names for columns of their own.
    | {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number", "_metadata"}
    | {"_change_type", "_commit_version", "_commit_timestamp", "_commit_snapshot_id", "_change_ordinal"}
)
_REST_DOC = "Fields beyond the limits of the table's columns, as JSON text."
_WIDE = {"int": "long", "float": "double", "uuid": "string", "time": "string"}


class Limits(msgspec.Struct, frozen=True):
    """Bounds of a table's typed columns."""

    columns: int = 2_000
    """How many columns, with those inside others and `_rest`."""
    depth: int = 40
    """How many levels. A column of the table is the first one."""
    repeats: int = 12
    """How many lists and maps in each other. With each one DuckDB 1.5 takes twice as long to open a file."""
    name_bytes: int = 255
    """The longest name, of fields and of columns."""
    doc_bytes: int = 1_000
    """The longest comment. Longer ones are cut."""


LIMITS = Limits()


def root_of(key: Shape | None, value: Shape | None, *, flatten: bool = False, record: str = "") -> Shape:
    """The shape of a record's typed columns.

    With a name of a record type the value is a struct of its own by that name, beside those of other types.
    """
    fields = [Field(ERROR, STRING, "Why the key or the value could not be decoded.")]
    if key is not None:
        fields.append(Field(KEY, key, "The decoded key."))
    if value is not None and record:
        value = struct(Field(record, value))
    if value is not None and flatten and value.kind == "struct":
        fields.extend(Field(FLAT + field.name, field.shape, field.doc) for field in value.fields)
    elif value is not None:
        fields.append(Field(VALUE, value, "The decoded value."))
    return struct(*fields)


def merged(
    columns: tuple[Column, ...], last_id: int, root: Shape, limits: Limits = LIMITS
) -> tuple[tuple[Column, ...], int]:
    """The columns with those added that a root shape needs, and the last id. The same object if it needs none."""
    growth = _Growth(columns, last_id, limits)
    grown = growth.children(columns, cut(root, limits).fields, top=True)
    if growth.left and not any(column.name == REST for column in grown):
        growth.last_id += 1
        grown = (*grown, Column(growth.last_id, REST, REST, "json", _REST_DOC, ()))
    return (grown, growth.last_id) if growth.last_id > growth.first_id else (columns, last_id)


def count(columns: Iterable[Column]) -> int:
    """How many columns there are, with those inside others."""
    return sum(1 + count(column.children) for column in columns)


def cut(root: Shape, limits: Limits) -> Shape:
    """The shape whose values are no deeper than the limit. What is deeper is JSON."""
    return struct(
        *(
            msgspec.structs.replace(field, shape=_cut(field.shape, limits.depth, limits.repeats))
            for field in root.fields
        )
    )


def assigned(columns: Sequence[Column], fields: Sequence[Field]) -> list[Column | None]:
    """For each field of a struct the column that takes its values. No column takes those of two fields."""
    by_source: dict[str, list[Column]] = {}
    for column in columns:
        by_source.setdefault(column.source, []).append(column)
    found: list[Column | None] = [None] * len(fields)
    void = [is_void(field.shape) for field in fields]
    # What is not known to have values comes last, so that it takes no column from a field that has some.
    for at in sorted(range(len(fields)), key=void.__getitem__):
        free = by_source.get(fields[at].name, ())
        taking = next((column for column in free if takes(column, fields[at].shape)), None)
        if taking is not None:
            by_source[fields[at].name].remove(taking)
        found[at] = taking
    return found


def takes(column: Column, shape: Shape) -> bool:
    """Whether a column is of the type of a shape. A value that is always null has every type."""
    match shape.kind:
        case "null":
            return True
        case "struct":
            return column.kind == "struct"
        case "list" | "map":
            return column.kind == shape.kind and takes(column.children[-1], shape.fields[-1].shape)
        case kind:
            return column.kind == _WIDE.get(kind, kind)


class _Growth:
    """Adds columns within the limits. `left` tells whether some field found no room."""

    def __init__(self, columns: tuple[Column, ...], last_id: int, limits: Limits) -> None:
        self.limits = limits
        self.last_id = self.first_id = max(last_id, FIRST_COLUMN - 1)
        kept = 0 if any(column.name == REST for column in columns) else 1
        self.room = limits.columns - count(columns) - kept
        self.left = False

    def children(self, columns: tuple[Column, ...], fields: Sequence[Field], top: bool = False) -> tuple[Column, ...]:
        """The columns of one level, grown by fields."""
        grown = {column.id: column for column in columns}
        taken = {folded(column.name) for column in columns}
        sources = {column.source for column in columns}
        for field, column in zip(fields, assigned(columns, fields), strict=True):
            if column is not None:
                grown[column.id] = self.wider(column, field.shape)
            elif not is_void(field.shape):
                suffix = f"__{_type_name(field.shape)}" if field.name in sources else ""
                added = self.added(field, suffix, taken, top)
                if added is not None:
                    grown[added.id] = added
                    taken.add(folded(added.name))
                    sources.add(added.source)
        result = tuple(grown.values())
        return columns if len(result) == len(columns) and all(map(operator.is_, result, columns)) else result

    def wider(self, column: Column, shape: Shape) -> Column:
        """A column of a shape's type, with room for all parts of the shape."""
        children = column.children
        if is_void(shape):
            return column
        if column.kind == "struct":
            children = self.children(children, shape.fields)
        elif column.kind in NESTED:
            last = self.wider(children[-1], shape.fields[-1].shape)
            children = children if last is children[-1] else (*children[:-1], last)
        return column if children is column.children else msgspec.structs.replace(column, children=children)

    def added(self, field: Field, suffix: str, taken: set[str], top: bool) -> Column | None:
        """A new column, or None if it has no room."""
        flat = top and field.name.startswith(FLAT)
        plain = field.name.removeprefix(FLAT) if flat else field.name
        if _fits(plain, self.limits.name_bytes):
            wished = readable(plain)
            if flat and folded(wished) in _FOLDED_RESERVED:
                wished = f"value_{wished}"
            name = unlike(wished, suffix, taken, self.limits.name_bytes)
            column = self.made(name, field, "" if name == plain else f"Field {plain!r}.")
            if column is not None:
                return column
        self.left = True
        return None

    def made(self, name: str, field: Field, note: str = "") -> Column | None:
        """A column with a new id and its children, or None and no id used."""
        if self.room < 1:
            return None
        before = self.last_id, self.room
        self.last_id, self.room = self.last_id + 1, self.room - 1
        number, shape = self.last_id, field.shape
        kind = _WIDE.get(shape.kind, shape.kind)
        children: tuple[Column, ...] = ()
        if kind == "struct":
            children = self.children((), shape.fields)
        elif kind in NESTED:
            parts = [self.made(part.name, part) for part in shape.fields]
            children = tuple(child for child in parts if child is not None)
            children = children if len(children) == len(parts) else ()
        if kind in NESTED and not children:
            self.last_id, self.room = before
            return None
        doc = cut_to(f"{_text(field.doc)} {note}".strip(), self.limits.doc_bytes)
        return Column(number, name, field.name, kind, doc, children)


def _fits(name: str, size: int) -> bool:
    """Whether a field may have a column by its name. Half of a surrogate pair is no text."""
    try:
        return len(name.encode()) <= size
    except UnicodeEncodeError:
        return False


def _cut(shape: Shape, levels: int, repeats: int) -> Shape:
    """The shape with at most so many levels, and lists and maps in each other."""
    if shape.kind not in NESTED:
        return shape
    repeats -= shape.kind != "struct"
    if levels <= 1 or repeats < 0:
        return JSON
    parts = [(field, _cut(field.shape, levels - 1, repeats)) for field in shape.fields]
    return Shape(shape.kind, tuple(msgspec.structs.replace(field, shape=part) for field, part in parts))


def _type_name(shape: Shape) -> str:
    """A type as a part of a name: `long`, `decimal_10_2`, `list_string`, `struct`."""
    if shape.kind in ("list", "map"):
        return f"{shape.kind}_{_type_name(shape.fields[-1].shape)}"
    kind = _WIDE.get(shape.kind, shape.kind)
    return kind.replace("(", "_").replace(",", "_").rstrip(")")


def _text(doc: str) -> str:
    """A comment without characters that are no text."""
    return " ".join(doc.encode(errors="replace").decode().split())


_FOLDED_RESERVED = frozenset(folded(name) for name in _RESERVED)
