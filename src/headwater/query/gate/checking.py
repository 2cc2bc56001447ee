"""`check`: a caller's text becomes a statement that only reads, or is refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from headwater.errors import StatementRefused
from headwater.query.asking import PRESENT, AsOf, Engine
from headwater.query.gate.columns import described
from headwater.query.gate.dialects import DIALECTS
from headwater.query.gate.functions import FUNCTIONS
from headwater.query.gate.nodes import check_nodes, drop_remarks
from headwater.query.gate.parsing import ODD_INPUT, Kind, parse, reparse
from headwater.query.gate.sources import source_of
from headwater.query.gate.statement import Statement, Topics, parameter_name
from headwater.query.gate.tables import Renaming, check_names, listed
from headwater.query.gate.texts import Texts, mend_arrows, mend_units
from headwater.query.gate.twice import check_grouping
from headwater.query.gate.written import check_written
from headwater.state.commands.columns import Column

MAX_LISTED = 10_000
"""Topics that `SHOW TABLES` shows."""


def check(
    sql: str, engine: Engine, topics: Topics, as_of: AsOf = PRESENT, more_functions: Collection[str] = ()
) -> Statement:
    """Check a statement in an engine's SQL, and write it anew for that engine. Raises `StatementRefused`.

    `as_of` is for tables that the statement does not pin. `more_functions` are those that an operator allows, in lower
    case. A long statement takes some milliseconds: call this from a thread.
    """
    try:
        return _checked(sql, engine, topics, as_of, more_functions)
    except RecursionError as error:
        raise StatementRefused("the statement is nested too deeply") from error


def describe(statement: Statement, columns: Sequence[Column]) -> Statement:
    """A `DESCRIBE` that shows these typed columns, too."""
    tree = described(statement.engine, columns)
    return dataclasses.replace(statement, sql=_written(tree, statement.engine, ()))


def _checked(sql: str, engine: Engine, topics: Topics, as_of: AsOf, more: Collection[str]) -> Statement:
    if engine not in DIALECTS:
        raise StatementRefused(f"a statement is checked for one engine, not for {engine}")
    functions = FUNCTIONS[engine] | frozenset(more)
    parsed = parse(sql, engine)
    renaming = Renaming(engine, topics, as_of)
    if parsed.kind is Kind.TABLES:
        tree = listed(itertools.islice(sorted(topics.names()), MAX_LISTED))
        return Statement(engine=engine, sql=_written(tree, engine, functions), tables=(), parameters=0)
    assert parsed.tree is not None
    drop_remarks(parsed.tree)
    mend_arrows(parsed.tree)
    if engine is Engine.SPARK:
        mend_units(parsed.tree)
    rows = parsed.kind is not Kind.COLUMNS
    source = source_of(parsed.text, parsed.places, parsed.tree) if rows and engine is Engine.DUCKDB else ""
    renaming.rename(parsed.tree)
    if parsed.kind is Kind.COLUMNS:
        tree, [table] = described(engine), renaming.tables
        own = _written(tree, engine, functions)
        return Statement(engine=engine, sql=own, tables=(), parameters=0, described=table)
    names = frozenset(parameter_name(position) for position in range(parsed.parameters))
    check_nodes(parsed.tree, functions, names)
    texts = Texts(engine, {table.view: topics.typed(table.topic) for table in renaming.tables})
    texts.change(parsed.tree)
    return Statement(
        engine=engine,
        sql=_written(parsed.tree, engine, functions),
        tables=renaming.tables,
        parameters=parsed.parameters,
        source=source,
        byte_parameters=frozenset(texts.byte_parameters),
        explain=parsed.kind is Kind.PLAN,
    )


def _written(tree: exp.Expr, engine: Engine, functions: Collection[str]) -> str:
    """The text for the engine, read once more."""
    try:
        sql = tree.sql(
            dialect=DIALECTS[engine],
            identify=True,
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,
            copy=True,
        )
    except ODD_INPUT as error:
        raise StatementRefused(f"the statement cannot be written for {engine}: {error}") from error
    check_written(sql, engine, functions)
    again = reparse(sql, engine)
    check_names(again, engine)
    if engine is Engine.SPARK:
        check_grouping(tree, again, engine)
    return sql
