"""From the text of a statement to one that an engine may run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.query.asking import AsOf, Engine, Refused


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a statement reads."""

    view: str
    topic: str
    as_of: AsOf


@dataclass(frozen=True, slots=True)
class Statement:
    """A checked statement."""

    sql: str
    tables: tuple[Table, ...]
    parameters: int = 0
    explain: bool = False


def check(sql: str, engine: Engine, topics: Collection[str], as_of: AsOf) -> Statement:
    """The statement with views in place of topics. `topics` are those that the caller may read."""
    import sqlglot
    from sqlglot import exp

    try:
        [tree] = sqlglot.parse(sql, dialect=engine.value)
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise Refused(f"the statement cannot be parsed: {error}") from error
    if not isinstance(tree, exp.Query):
        raise Refused("a statement must be one SELECT")
    found: dict[str, Table] = {}
    own = {str(cte.alias) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        name = table.name
        if name in own and not table.db:
            continue
        if name not in topics or table.db or not isinstance(table.this, exp.Identifier):
            raise Refused(f"there is no topic {name!r}")
        known = found.setdefault(name, Table(f"headwater_{len(found)}", name, as_of))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        table.set("this", exp.to_identifier(known.view, quoted=True))
    return Statement(tree.sql(dialect=engine.value, comments=False), tuple(found.values()))
