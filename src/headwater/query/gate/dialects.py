"""The SQL of each engine, as the library reads and writes it, so that what is written means what was read.

The parser of DuckDB's SQL also notes where some parts of a text begin and end (`extent_of`), for `sources.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from headwater.query.asking import Engine

_Part = TypeVar("_Part", bound=exp.Expr)
_EXTENT, _ARROW = "extent", "arrow"
"""What is noted at parts of a tree."""
_NOT_GIVEN: Any = object()
_DUCKDB = "1.5"
"""DuckDB's version. The library reads `~` of 2.0 otherwise."""


def extent_of(node: exp.Expr) -> tuple[int, int] | None:
    """Where an arrow of JSON with its operands, or what pins a table to a moment, is in the caller's text."""
    found: tuple[int, int] | None = node.meta.get(_EXTENT)
    return found


def forget_extent(node: exp.Expr) -> None:
    """For an arrow that has other operands than the parser found."""
    node.meta.pop(_EXTENT, None)


def _noted(build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """The builder of an arrow, whose operands are what has been read since `_parse_bitwise` began."""

    def built(parser: Any, this: exp.Expr, path: exp.Expr) -> exp.Expr:
        found = build(parser, this, path)
        found.meta[_EXTENT] = (parser._begun[-1], parser._prev.end + 1)
        return found

    return built


class _HeadwaterDuckDB(DuckDB):
    """DuckDB's SQL.

    Functions keep their names: the library would write some of them as others. Paths of JSON stay as they are: `'a.b'`
    is a key, and `'$.a.b'` a path. Intervals stay as they are, too.
    """

    class Parser(DuckDBParser):
        """No function has a builder of its own."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        JSON_OPERATORS: ClassVar[dict[TokenType, Callable[..., exp.Expr]]] = {
            kind: _noted(build) for kind, build in DuckDBParser.JSON_OPERATORS.items()
        }

        def reset(self) -> None:
            super().reset()
            self._begun: list[int] = []
            """Where the operands of operators begin that are parsed now, the innermost last."""

        def _parse_bitwise(self) -> exp.Expr | None:
            self._begun.append(self._curr.start if self._curr else 0)
            try:
                return super()._parse_bitwise()
            finally:
                self._begun.pop()

        def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
            """Note a lambda with an arrow, which DuckDB may take for one of JSON: that depends on the function."""
            keyword = self._curr is not None and self._curr.text.upper() == "LAMBDA"
            found = super()._parse_lambda(alias=alias)
            if isinstance(found, exp.Lambda) and not keyword:
                found.meta[_ARROW] = True
            return found

        def _parse_version(self) -> exp.Version | None:
            return self._with_extent(super()._parse_version)

        def _parse_historical_data(self) -> exp.HistoricalData | None:
            return self._with_extent(super()._parse_historical_data)

        def _with_extent(self, parse: Callable[[], _Part | None]) -> _Part | None:
            start = self._curr.start if self._curr else 0
            found = parse()
            if found is not None:
                found.meta[_EXTENT] = (start, self._prev.end + 1)
            return found

        def _parse_interval_span(self, this: exp.Expr, parse_function_unit: bool = True) -> exp.Interval:
            """`INTERVAL '30 days'` is not `INTERVAL '30' DAYS`, which would drop a fraction."""
            written = this.copy() if isinstance(this, exp.Literal) else None
            found = super()._parse_interval_span(this, parse_function_unit)
            if written is not None and (not written.is_string or found.name != written.name):
                if written.is_string:
                    found.set("unit", None)
                found.set("this", written)
                found.set("fraction_in_string", None)
            return found

    class Generator(DuckDBGenerator):
        """Writes what was read."""

        def lambda_sql(self, expression: exp.Lambda, arrow_sep: str = "->", wrap: bool = True) -> str:
            if expression.meta.get(_ARROW):
                return Generator.lambda_sql(self, expression, arrow_sep, wrap)
            return super().lambda_sql(expression, arrow_sep, wrap)

        def withingroup_sql(self, expression: exp.WithinGroup) -> str:
            return f"{self.sql(expression, 'this')} WITHIN GROUP ({self.sql(expression, 'expression').strip()})"

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path


class _HeadwaterSpark(Spark):
    """Spark's SQL, likewise."""

    class Parser(SparkParser):
        """No function has a builder of its own."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}

        def _build_predicate(
            self,
            klass: type[exp.Binary],
            this: exp.Expr | None,
            expression: exp.Expr | None,
            comments: list[str] | None = _NOT_GIVEN,
            negate: bool = False,
        ) -> exp.Expr:
            """`<=>` is read like `=`, without brackets of the library's own. Only operators such as that have comments.

            `x <=> y RLIKE z` is `(x <=> y) RLIKE z` in Spark, and must be written as it was.
            """
            if klass is exp.NullSafeEQ and comments is not _NOT_GIVEN:
                return self.expression(exp.NullSafeEQ(this=this, expression=expression), comments=comments)
            return super()._build_predicate(
                klass, this, expression, comments=None if comments is _NOT_GIVEN else comments, negate=negate
            )

    class Generator(SparkGenerator):
        """Writes what was read."""

        def nullsafeeq_sql(self, expression: exp.NullSafeEQ) -> str:
            return self.binary(expression, "<=>")

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path


DIALECTS: dict[Engine, Dialect] = {Engine.DUCKDB: _HeadwaterDuckDB(version=_DUCKDB), Engine.SPARK: _HeadwaterSpark()}
