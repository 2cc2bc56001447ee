"""Tables of a statement: topics that the caller may read, and queries with a name.

Every table gets a name of ours: `topic_0`, `topic_1`, … for topics, `named_0`, … for queries of a WITH. The names that
the caller chose stay as aliases only. So an engine never looks one of them up.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.asking import AsOf, Engine
from headwater.query.gate.moments import moment_of
from headwater.query.gate.parsing import place_of
from headwater.query.gate.statement import Table, Topics

MAX_TABLES = 32
"""Different tables of a statement."""
MAX_USES = 200
"""How often tables may be named in a statement."""
MAX_CONSIDERED = 10_000
"""Topics that are compared with a name that does not exist."""
NAMESPACES = ("topics.", "headwater.topics.")
"""What may stand before the name of a topic: the namespace of its tables, and the catalog."""
TABLE_FUNCTIONS = {
    Engine.DUCKDB: frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"}),
    Engine.SPARK: frozenset({"range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "stack"}),
}
_OURS = re.compile(r"(?:topic|named)_\d+")
_PARTS = ("this", "alias", "db", "catalog", "joins", "laterals", "pivots", "sample", "version", "when")
_FUNCTION_PARTS = ("this", "alias", "joins", "laterals", "pivots", "sample", "ordinality")


class Renaming:
    """Gives the tables of one statement their names."""

    def __init__(self, engine: Engine, topics: Topics, as_of: AsOf) -> None:
        self._engine = engine
        self._topics = topics
        self._as_of = as_of
        self._found: list[Table] = []
        self._queries = itertools.count()
        self._uses = 0
        self._dotted: set[str] = set()
        """Names of several parts that tables have in this statement."""

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(self._found)

    def rename(self, tree: exp.Expr) -> None:
        """Change a tree so that it has names of ours only. Raises `StatementRefused` for tables that do not exist."""
        self._visit(tree, {})
        for column in list(tree.find_all(exp.Column)):
            self._rename_column(column)

    def _visit(self, node: exp.Expr, named: Mapping[str, str]) -> None:
        """Visit a part of the tree; `named` has the queries of WITH that can be seen there, in lower case."""
        with_ = node.args.get("with_")
        if with_ is not None:
            named = self._visit_with(with_, named)
        if isinstance(node, exp.Table):
            self._rename_table(node, named)
        for child in list(node.iter_expressions()):
            if child is not with_:
                self._visit(child, named)

    def _visit_with(self, with_: exp.With, named: Mapping[str, str]) -> Mapping[str, str]:
        """A query of a WITH is seen by those behind it; by itself only if the WITH is recursive."""
        here: set[str] = set()
        for query in with_.expressions:
            alias = query.args.get("alias")
            if not isinstance(query, exp.CTE) or alias is None or not isinstance(alias.this, exp.Identifier):
                raise StatementRefused(f"a query of a WITH needs a name{place_of(query)}")
            written = alias.this.this.lower()
            if written in here:
                raise StatementRefused(f'"{alias.this.this}" is defined twice{place_of(query)}')
            here.add(written)
            ours = f"named_{next(self._queries)}"
            after = {**named, written: ours}
            self._visit(query.this, after if with_.args.get("recursive") else named)
            alias.set("this", _quoted(ours))
            named = after
        return named

    def _rename_table(self, table: exp.Table, named: Mapping[str, str]) -> None:
        self._uses += 1
        if self._uses > MAX_USES:
            raise StatementRefused(f"a statement names tables at most {MAX_USES} times")
        if isinstance(table.this, exp.Func):
            self._check_function(table)
            return
        _only(table, _PARTS)
        parts = table.parts
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            raise StatementRefused(f"a table is the name of a topic{place_of(table)}")
        words = [str(part.this) for part in parts]
        moment = moment_of(table)
        if len(words) == 1 and words[0].lower() in named:
            if moment is not None:
                raise StatementRefused(f'"{words[0]}" is a query of this statement, not a topic: it has no versions')
            self._become(table, named[words[0].lower()], words[0])
            return
        written = ".".join(words)
        topic = self._topic(written, len(words) > 1, table)
        view = self._view(topic, moment if moment is not None else self._as_of)
        if len(words) > 1:
            self._dotted.add(written)
        self._become(table, view, written)

    def _topic(self, written: str, dotted: bool, table: exp.Table) -> str:
        """The topic that a name means."""
        bare = [written.removeprefix(space) for space in NAMESPACES if dotted and written.startswith(space)]
        found = [name for name in (written, *bare) if name and self._topics.has(name)]
        if len(found) > 1:
            names = " and ".join(f'"{name}"' for name in found)
            raise StatementRefused(f"{written} may be the topics {names}: write the name in quotes{place_of(table)}")
        if not found:
            raise StatementRefused(f'table "{written}" does not exist{self._similar(written)}{place_of(table)}')
        return found[0]

    def _similar(self, written: str) -> str:
        """A hint, from topics that the caller may read only."""
        names = list(itertools.islice(self._topics.names(), MAX_CONSIDERED))
        same = [name for name in names if name.lower() == written.lower()]
        close = same or difflib.get_close_matches(written, names, n=1, cutoff=0.75)
        return f': did you mean "{close[0]}"?' if close else ""

    def _view(self, topic: str, as_of: AsOf) -> str:
        for table in self._found:
            if table.topic == topic and table.as_of == as_of:
                return table.view
        if len(self._found) == MAX_TABLES:
            raise StatementRefused(f"a statement reads at most {MAX_TABLES} tables")
        self._found.append(Table(f"topic_{len(self._found)}", topic, as_of))
        return self._found[-1].view

    def _become(self, table: exp.Table, ours: str, written: str) -> None:
        """Give a table its name of ours, and its written name as the alias unless it has one."""
        alias = table.args.get("alias")
        if alias is None:
            table.set("alias", exp.TableAlias(this=_quoted(written)))
        elif alias.args.get("this") is None:
            alias.set("this", _quoted(written))
        table.set("this", _quoted(ours))
        for part in ("db", "catalog", "version", "when"):
            table.set(part, None)

    def _check_function(self, table: exp.Table) -> None:
        """A function as a table: none that opens a file, runs a text or tells of the engine."""
        _only(table, _FUNCTION_PARTS)
        name = function_name(table.this)
        if name not in TABLE_FUNCTIONS[self._engine]:
            raise StatementRefused(f"the function {name} is not allowed as a table{place_of(table)}")

    def _rename_column(self, column: exp.Column) -> None:
        """`my.topic.value` belongs to the table with the alias `my.topic`. What is behind the column is a field."""
        parts = column.parts
        words = [part.this for part in parts[:-1] if isinstance(part, exp.Identifier)]
        for count in range(len(words), 1, -1):
            table = ".".join(words[:count])
            if table not in self._dotted:
                continue
            found: exp.Expr = exp.Column(this=parts[count].copy(), table=_quoted(table))
            for field in parts[count + 1 :]:
                found = exp.Dot(this=found, expression=field.copy())
            column.replace(found)
            return


def function_name(node: exp.Func) -> str:
    """The name of a function in lower case, as well as it is known before it is written for an engine."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.sql_name().lower()


def check_names(tree: exp.Expr, engine: Engine) -> None:
    """Raise `StatementRefused` if a text that was written for an engine has a table whose name is not one of ours."""
    for table in tree.find_all(exp.Table):
        function = isinstance(table.this, exp.Func) and function_name(table.this) in TABLE_FUNCTIONS[engine]
        ours = [part.name for part in table.parts if isinstance(part, exp.Identifier) and part.quoted]
        if not function and not (len(table.parts) == 1 and len(ours) == 1 and _OURS.fullmatch(ours[0])):
            raise StatementRefused("the statement has a table that was not checked")


def listed(names: Iterable[str]) -> exp.Expr:
    """A query that gives names as rows."""
    rows = [exp.Tuple(expressions=[exp.Literal.string(name)]) for name in names]
    if not rows:
        nothing = exp.alias_(exp.cast(exp.null(), exp.DataType.Type.VARCHAR), "name", quoted=True)
        return exp.select(nothing).where(exp.false())
    alias = exp.TableAlias(this=_quoted("tables"), columns=[_quoted("name")])
    return exp.select(exp.Star()).from_(exp.Values(expressions=rows, alias=alias))


def _only(table: exp.Table, parts: tuple[str, ...]) -> None:
    for key, value in table.args.items():
        if value and key not in parts:
            raise StatementRefused(f"{key.strip('_').upper()} of a table is not allowed{place_of(table)}")


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
