"""Which columns of a statement are the plain bytes of a topic: `key`, `value` and `headers_raw`, under any name.

Names are followed through subqueries, WITH, joins and functions that keep the type, such as `max`. Where this is not
sure, a column counts as something else; then the engine gets it as it is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.query.gate.columns import COLUMNS

Columns = list[tuple[str, bool]]
"""The columns of a table in their order: the name in lower case, and whether it is plain bytes."""

OF_TOPICS: Columns = [(name, kind == "bytes") for name, kind in COLUMNS.items()]
_KEEPING_WORDS = """
    any_value arbitrary arg_max arg_min argmax argmin coalesce first first_value greatest ifnull lag last last_value
    lead least max max_by min min_by mode nth_value nullif nvl
"""
_KEEPING = frozenset(_KEEPING_WORDS.split())
"""Functions whose result has the type of their first argument."""


@dataclass(slots=True)
class Scope:
    """What names mean in one SELECT."""

    tables: dict[str, Columns] = field(default_factory=dict)
    """By alias in lower case."""

    def find(self, table: str, name: str) -> bool | None:
        """Whether a column is plain bytes; None if there is no such column here."""
        found = [
            raw
            for alias, columns in self.tables.items()
            if not table or alias == table
            for column, raw in columns
            if column == name
        ]
        return all(found) if found else None


def is_bytes(node: exp.Expr | None, scopes: Sequence[Scope]) -> bool:
    """Whether an expression is plain bytes. The last scope is the innermost."""
    match node:
        case exp.Column() if isinstance(node.this, exp.Identifier) and not node.args.get("db"):
            return _column_is_bytes(node, scopes)
        case exp.Paren() | exp.Filter() | exp.IgnoreNulls() | exp.RespectNulls() | exp.Window() | exp.Distinct():
            inner = node.expressions[0] if isinstance(node, exp.Distinct) and node.expressions else node.this
            return is_bytes(inner, scopes)
        case exp.Order() | exp.Alias() | exp.HavingMax():
            return is_bytes(node.this, scopes)
        case exp.Anonymous() if node.name.lower() in _KEEPING and node.expressions:
            return is_bytes(node.expressions[0], scopes)
        case exp.Max() | exp.Min() | exp.ArgMax() | exp.ArgMin():
            return is_bytes(node.this, scopes)
        case exp.Dot():
            return _is_header(node)
        case _:
            return False


def _column_is_bytes(column: exp.Column, scopes: Sequence[Scope]) -> bool:
    name, table = column.name.lower(), column.table.lower()
    if not table and _is_local(column, name):
        return False
    for scope in reversed(scopes):
        found = scope.find(table, name)
        if found is not None:
            return found
    return False


def _is_local(column: exp.Column, name: str) -> bool:
    """Whether a name is one of a lambda around it."""
    around = column.find_ancestor(exp.Lambda, exp.Select)
    while isinstance(around, exp.Lambda):
        if any(isinstance(word, exp.Identifier) and word.name.lower() == name for word in around.expressions):
            return True
        around = around.find_ancestor(exp.Lambda, exp.Select)
    return False


def _is_header(node: exp.Dot) -> bool:
    """`headers[1].value`."""
    array = node.this
    return (
        isinstance(array, exp.Bracket)
        and isinstance(array.this, exp.Column)
        and array.this.name.lower() == "headers"
        and node.expression.name.lower() == "value"
    )


def columns_of(select: exp.Select, scopes: Sequence[Scope]) -> Columns:
    """The columns that a SELECT gives."""
    return list(itertools.chain.from_iterable(_given(item, scopes) for item in select.expressions))


def _given(item: exp.Expr, scopes: Sequence[Scope]) -> Iterator[tuple[str, bool]]:
    star = item.this if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else item
    if not isinstance(star, exp.Star):
        yield item.alias_or_name.lower(), is_bytes(item, scopes)
        return
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    left_out = {word.name.lower() for word in star.args.get("except_") or ()}
    replaced = {word.alias.lower() for word in star.args.get("replace") or ()}
    renamed = {word.this.name.lower(): word.alias.lower() for word in star.args.get("rename") or ()}
    for alias, columns in scopes[-1].tables.items():
        for name, raw in columns if not table or alias == table else ():
            if name not in left_out:
                yield renamed.get(name, name), raw and name not in replaced


def renamed(columns: Columns, alias: exp.Expr | None) -> Columns:
    """The columns of a table whose alias may give them other names: `t(a, b)`."""
    names = [word.name.lower() for word in alias.args.get("columns") or ()] if alias is not None else []
    return [(names[i] if i < len(names) else name, raw) for i, (name, raw) in enumerate(columns)]
