"""Plans: which part of a natural value goes into which column of a table.

A plan is made once for a shape and the columns of a table, and used for every batch (`schemas/conform.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.schemas.columns import LIMITS, REST, Limits, assigned, cut
from headwater.schemas.shapes import NESTED, Field, Shape, is_void
from headwater.state.commands.columns import Column

_TEXTS = frozenset({"string", "uuid", "json"})


@dataclass(frozen=True, slots=True)
class Fill:
    """A column and the part of a value that it takes."""

    at: int
    """The place of the part among the fields of its struct, list or map."""
    column: Column
    shape: Shape
    children: tuple[Fill | None, ...]
    """One for each child of the column; None for a child that is null."""
    same: bool
    """Whether the natural Arrow type of the shape is the type of the column, so that nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Left:
    """A part of a value that has no column, or has such parts."""

    at: int
    name: str
    shape: Shape
    parts: tuple[Left, ...]
    """The parts without a column; none if that is the whole value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How values of a root shape become columns."""

    root: Shape
    columns: tuple[Column, ...]
    fills: tuple[Fill | None, ...]
    """One for each column; None for a column that is null."""
    left: tuple[Left, ...]
    """What goes as JSON text into `_rest`."""

    @property
    def left_out(self) -> list[str]:
        """The paths of the fields that have no column, for a message."""
        return [".".join(path) for left in self.left for path in _paths(left)]

    @property
    def is_whole(self) -> bool:
        """Whether every value finds a place: in its column, or in `_rest`."""
        return not self.left or any(column.name == REST for column in self.columns)


def plan(columns: tuple[Column, ...], root: Shape, limits: Limits = LIMITS) -> Plan:
    """The plan for values of a root shape. It is whole if the shape was merged into the columns."""
    fills, left = _struct(columns, root.fields, cut(root, limits).fields)
    return Plan(root, columns, fills, left)


def _struct(
    columns: Sequence[Column], fields: Sequence[Field], cut_fields: Sequence[Field]
) -> tuple[tuple[Fill | None, ...], tuple[Left, ...]]:
    """What fills the columns of one level, and what is left of the fields.

    `cut_fields` are the fields as the columns know them: what is too deep is JSON.
    """
    fills: dict[int, Fill] = {}
    left = []
    for at, column in enumerate(assigned(columns, cut_fields)):
        if column is not None and cut_fields[at].shape.kind != "null":
            fills[column.id], parts = _fill(at, column, fields[at].shape, cut_fields[at].shape)
            if parts:
                left.append(Left(at, fields[at].name, fields[at].shape, parts))
        elif not is_void(fields[at].shape):
            left.append(Left(at, fields[at].name, fields[at].shape, ()))
    return tuple(fills.get(column.id) for column in columns), tuple(left)


def _fill(at: int, column: Column, shape: Shape, known: Shape) -> tuple[Fill, tuple[Left, ...]]:
    """What fills a column that takes a shape, and what is left of the shape."""
    if known.kind not in NESTED:
        same = column.kind == shape.kind or (column.kind in _TEXTS and shape.kind in _TEXTS)
        return Fill(at, column, shape, (), same), ()
    if known.kind == "struct":
        children, left = _struct(column.children, shape.fields, known.fields)
        names = [field.name for field in shape.fields]
        same = [child.name for child in column.children] == names and all(
            child is not None and child.at == place and child.same for place, child in enumerate(children)
        )
        return Fill(at, column, shape, children, same), left
    inner = shape.fields[-1]
    last: Fill | None = None
    left = ()
    if known.fields[-1].shape.kind != "null":
        place = len(shape.fields) - 1
        last, parts = _fill(place, column.children[-1], inner.shape, known.fields[-1].shape)
        left = (Left(place, inner.name, inner.shape, parts),) if parts else ()
    keys = [Fill(0, column.children[0], shape.fields[0].shape, (), True)] if shape.kind == "map" else []
    return Fill(at, column, shape, (*keys, last), last is not None and last.same), left


def _paths(left: Left) -> Iterator[tuple[str, ...]]:
    if not left.parts:
        yield (left.name,)
    for part in left.parts:
        for path in _paths(part):
            yield (left.name, *path)
