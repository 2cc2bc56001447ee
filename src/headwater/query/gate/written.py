"""The last look at a statement: the text that the engine gets, read as the engine reads it.

This reader shares nothing with the library that wrote the text. Outside of quotes there are only words, numbers and
operators; no comment, no second statement; and every word before a bracket is a function that is allowed, or a word of
SQL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from headwater.errors import StatementRefused
from headwater.query.asking import Engine

_SPACE = r"[ \n]+"
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_OPERATOR = r"[-+*/%<>=!~|&^(),.\[\]{}:]"
_PIECES = {
    Engine.DUCKDB: re.compile(
        rf"(?P<space>{_SPACE})|(?P<string>[xX]?'(?:[^']|'')*')|(?P<name>\"(?:[^\"]|\"\")+\")|(?P<parameter>\$p[0-9]+)"
        rf"|(?P<word>{_WORD})|(?P<number>{_NUMBER})|(?P<operator>{_OPERATOR})"
    ),
    Engine.SPARK: re.compile(
        rf"(?P<space>{_SPACE})|(?P<string>[xX]?'(?:[^'\\]|\\.)*')|(?P<name>`(?:[^`]|``)+`)|(?P<parameter>:p[0-9]+)"
        rf"|(?P<word>{_WORD})|(?P<number>{_NUMBER})|(?P<operator>{_OPERATOR})",
        re.DOTALL,
    ),
}
_COMMENT = re.compile(r"--|/\*|\*/")
_SYNTAX = """
    all and any as between by case cast columns cube distinct else except exclude exists extract filter for from group
    having ignore ilike in intersect interval is join lateral like limit materialized not nulls offset on or order over
    pivot qualify rename replace respect rollup sample select sets some tablesample then try_cast union unnest unpivot
    using values when where with bernoulli reservoir system
    array bigint binary bit blob bool boolean char date decimal double float hugeint int integer json list map numeric
    real smallint string struct text time timestamp timestamptz tinyint uuid varchar variant
"""
_SQL_WORDS = frozenset(_SYNTAX.split())
"""Words that stand before a bracket without being a function, types among them."""


def check_written(sql: str, engine: Engine, functions: Collection[str]) -> None:
    """Raise `StatementRefused` if a text has a function that is not in `functions`, or is not one plain statement."""
    before = before_that = ("", "")
    for kind, text in _pieces(sql, engine):
        if text == "(":
            if before[0] == "word" and before[1].lower() not in _SQL_WORDS and before[1].lower() not in functions:
                raise StatementRefused(f"the function {before[1].lower()} is not allowed")
            if before[0] == "name" and before_that[1].upper() != "AS" and not _is_ours(before[1]):
                raise StatementRefused(f"the function {before[1]} is not allowed")
        before_that, before = before, (kind, text)


def _pieces(sql: str, engine: Engine) -> Iterator[tuple[str, str]]:
    at = 0
    pattern = _PIECES[engine]
    while at < len(sql):
        found = pattern.match(sql, at)
        if found is None or _COMMENT.match(sql, at):
            raise StatementRefused(f"the statement has {sql[at]!r} where it cannot be")
        at = found.end()
        if found.lastgroup == "space":
            continue
        yield str(found.lastgroup), found[0]


def _is_ours(name: str) -> bool:
    """Whether a quoted name is one of a WITH, which may have columns in brackets behind it."""
    return re.fullmatch(r"[\"`]named_[0-9]+[\"`]", name) is not None
