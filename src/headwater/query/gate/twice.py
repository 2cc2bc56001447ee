"""What was written for Spark, read once more, groups as the tree that it was written from.

The library that writes statements may leave brackets out that are needed. DuckDB sees that when it compares what it
reads itself (`engines/duckdb/comparing.py`); for Spark the statement is written with all brackets, too, and both texts
must be one tree.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.dialects import DIALECTS
from headwater.query.gate.parsing import ODD_INPUT, reparse

_GROUPED = (exp.Binary, exp.Not, exp.Neg, exp.BitwiseNot, exp.In, exp.Between)
_NO_OPERATORS = (exp.Dot, exp.PropertyEQ, exp.Kwarg, exp.Slice, exp.Escape, exp.JSONExtract, exp.JSONExtractScalar)
_CHAINS = ((exp.And,), (exp.Or,), (exp.Add, exp.Sub), (exp.Mul, exp.Div, exp.Mod), (exp.DPipe,))
"""Operators of which `a + b - c` always groups to the left. Such chains may be long."""


def check_grouping(tree: exp.Expr, again: exp.Expr, engine: Engine) -> None:
    """Raise `StatementRefused` unless a tree is `again` but for brackets: what was written of it, read once more.

    `x = (s) NOT IN (1, 2)` is written as `x = NOT (s) IN (1, 2)`, of which Spark takes NOT for a function.
    """
    if any(_is_operand(node) for node in tree.find_all(exp.Not)):
        raise StatementRefused("the statement may be read in two ways: put brackets around its operators")
    try:
        bracketed = reparse(_bracketed(tree, engine), engine)
    except (StatementRefused, *ODD_INPUT) as error:
        raise StatementRefused("the statement cannot be written with brackets around its operators") from error
    if _without_brackets(bracketed) != _without_brackets(again):
        raise StatementRefused("the statement may be read in two ways: put brackets around its operators")


def _is_operand(node: exp.Not) -> bool:
    """Whether a NOT without brackets is an operand of something that binds more strongly."""
    parent = node.parent
    return isinstance(parent, exp.Binary) and not isinstance(parent, (exp.Connector, *_NO_OPERATORS))


def _bracketed(tree: exp.Expr, engine: Engine) -> str:
    """A statement with brackets around every operator."""
    found = tree.copy()
    for node in list(found.find_all(*_GROUPED)):
        if not isinstance(node, _NO_OPERATORS) and not _stands_alone(node):
            around = exp.Paren()
            node.replace(around)
            around.set("this", node)
    return found.sql(
        dialect=DIALECTS[engine],
        identify=True,
        comments=False,
        normalize_functions=False,
        unsupported_level=ErrorLevel.RAISE,
    )


def _stands_alone(node: exp.Expr) -> bool:
    """Whether an operator needs no brackets to group as it does."""
    parent = node.parent
    if parent is None or isinstance(parent, (exp.Escape, exp.Paren, exp.Pivot)):
        return True
    return node.arg_key == "this" and any(isinstance(node, kind) and isinstance(parent, kind) for kind in _CHAINS)


def _without_brackets(tree: exp.Expr) -> exp.Expr:
    for node in list(tree.find_all(exp.Paren)):
        node.replace(node.this)
    return tree
