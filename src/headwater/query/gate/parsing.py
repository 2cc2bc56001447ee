"""From text to the tree of one query. Everything else is refused here, with the place where it goes wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.dialects import DIALECTS
from headwater.query.gate.statement import parameter_name

MAX_TEXT = 65_536
"""Characters of a statement."""
MAX_BRACKETS = 30
"""How deep brackets may be nested."""
MAX_DEPTH = 300
"""How deep the tree of a statement may be: longer chains of AND or of + count as well."""
MAX_NODES = 20_000
MAX_PARAMETERS = 1_000


ODD_INPUT = (SqlglotError, LookupError, TypeError, ValueError, AttributeError)
"""What the library raises for text that it cannot make sense of."""

_SPACES = re.compile(r"\s*")
_WORD = re.compile(r"\w*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufeff]")
_FIRST = {"SELECT", "WITH", "FROM", "VALUES", "(", "TABLE"}
_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_STRANGE = {TokenType.PARAMETER, TokenType.SESSION_PARAMETER, TokenType.BLOCK_START, TokenType.BLOCK_END}


class Kind(Enum):
    """What a statement asks for."""

    ROWS = auto()
    PLAN = auto()
    """`EXPLAIN` of a query."""
    TABLES = auto()
    """`SHOW TABLES`."""
    COLUMNS = auto()
    """`DESCRIBE` of a table."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement that could be read."""

    kind: Kind
    tree: exp.Expr | None
    """The query, or the table that is described; None for `SHOW TABLES`."""
    parameters: int = 0
    text: str = ""
    """The caller's text, with blanks for `EXPLAIN`."""
    places: Sequence[int] = ()
    """Where its parameters are."""


def reparse(sql: str, engine: Engine) -> exp.Expr:
    """Read a text that was written for an engine, in which parameters have their names."""
    dialect = DIALECTS[engine]
    try:
        return _tree(list(dialect.tokenize(sql)), sql, dialect)
    except ODD_INPUT as error:
        raise StatementRefused("the statement cannot be read") from error


def parse(sql: str, engine: Engine) -> Parsed:
    """Read one statement. Raises `StatementRefused` for more than one, for none, and for what is no query."""
    _check_text(sql)
    if _asks_for_tables(sql):
        return Parsed(Kind.TABLES, None)
    word, end = _word(sql, 0)
    explain = word == "EXPLAIN"
    if explain:
        sql = " " * end + sql[end:]
    dialect = DIALECTS[engine]
    tokens = _tokens(sql, dialect)
    first = tokens[0].text.upper()
    if first in ("DESCRIBE", "DESC") and not explain:
        return Parsed(Kind.COLUMNS, _described(tokens[1:], dialect))
    if explain and first == "ANALYZE":
        raise StatementRefused(f"EXPLAIN ANALYZE would run the statement: ask EXPLAIN alone{_at(tokens[0])}")
    if first not in _FIRST:
        raise StatementRefused(
            f"only queries may be asked (SELECT, WITH, FROM, VALUES), not {_shown(tokens[0])}{_at(tokens[0])}"
        )
    named, parameters = _named(tokens, engine)
    tree = _tree(named, sql, dialect)
    places = [token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER]
    return Parsed(Kind.PLAN if explain else Kind.ROWS, tree, parameters, sql, places)


def place_of(node: exp.Expr) -> str:
    """Where a part of a statement is in its text, for messages; empty if that is not known."""
    for part in node.walk():
        place = [part.meta[name] for name in ("line", "col", "start", "end") if part.meta.get(name) is not None]
        if len(place) == 4:
            line, last, start, end = place
            return _place(line, last, end - start)
    return ""


def _check_text(sql: str) -> None:
    if len(sql) > MAX_TEXT:
        raise StatementRefused(f"the statement has {len(sql):,} characters: at most {MAX_TEXT:,} are read")
    found = _CONTROL.search(sql)
    if found:
        raise StatementRefused(f"the statement has the control character U+{ord(found[0]):04X}: remove it")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise StatementRefused("the statement is not valid Unicode") from error


def _asks_for_tables(sql: str) -> bool:
    """Whether a text is `SHOW TABLES`, with spaces and comments anywhere between the words."""
    show, after = _word(sql, 0)
    tables, end = _word(sql, after)
    if show != "SHOW" or tables != "TABLES":
        return False
    end = _past_gap(sql, end)
    return _past_gap(sql, end + 1 if sql[end : end + 1] == ";" else end) == len(sql)


def _word(sql: str, at: int) -> tuple[str, int]:
    """The word behind a gap, in capital letters, and the place behind it. The word is empty if there is none."""
    found = _WORD.match(sql, _past_gap(sql, at))
    assert found is not None  # the pattern takes nothing, too
    return found[0].upper(), found.end()


def _past_gap(sql: str, at: int) -> int:
    """The place behind spaces and comments. Each character is looked at once."""
    while True:
        spaces = _SPACES.match(sql, at)
        at = spaces.end() if spaces is not None else at
        if sql.startswith("--", at):
            line = sql.find("\n", at)
            at = len(sql) if line < 0 else line + 1
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            if end < 0 or sql.find("/*", at + 2, end) >= 0:
                return at  # not closed, or comments in each other, which engines read differently
            at = end + 2
        else:
            return at


def _tokens(sql: str, dialect: Dialect) -> list[Token]:
    """The tokens of one statement, without the semicolon behind it."""
    try:
        tokens = [part for token in dialect.tokenize(sql) for part in _split(token)]
    except ODD_INPUT as error:
        raise StatementRefused("the statement cannot be read: a quote or a comment is not closed") from error
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise StatementRefused("there is no statement: write a SELECT")
    depth = 0
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.SEMICOLON:
            raise StatementRefused(f"one statement at a time: there is another one behind the semicolon{_at(token)}")
        if kind in _STRANGE:
            raise StatementRefused(f"{_shown(token)} is not allowed; parameters are written as ?{_at(token)}")
        depth += (kind in _OPEN) - (kind in _CLOSE)
        if depth > MAX_BRACKETS:
            raise StatementRefused(f"brackets are nested more than {MAX_BRACKETS} deep{_at(token)}")
    return tokens


def _split(token: Token) -> list[Token]:
    """`?::` is one token, an operator that neither engine has. Here it is a parameter and the operator of a cast."""
    if token.token_type is not TokenType.QDCOLON:
        return [token]
    return [_like(token, "?", TokenType.PLACEHOLDER), _like(token, "::", TokenType.DCOLON)]


def _named(tokens: list[Token], engine: Engine) -> tuple[list[Token], int]:
    """The tokens with a name for each `?`, in the order of the text; and how many there are.

    What is written later may have them in another order, or twice. `FOR SYSTEM_VERSION` becomes `FOR VERSION`.
    """
    found: list[Token] = []
    count = 0
    mark = (TokenType.PARAMETER, "$") if engine is Engine.DUCKDB else (TokenType.COLON, ":")
    for token in tokens:
        if token.token_type is not TokenType.PLACEHOLDER:
            after_for = bool(found) and found[-1].token_type is TokenType.FOR
            found.append(_like(token, "VERSION") if after_for and token.text.upper() == "SYSTEM_VERSION" else token)
            continue
        for kind, text in (mark, (TokenType.VAR, parameter_name(count))):
            found.append(_like(token, text, kind))
        count += 1
    if count > MAX_PARAMETERS:
        raise StatementRefused(f"the statement has {count:,} parameters: at most {MAX_PARAMETERS:,} are read")
    return found, count


def _like(token: Token, text: str, kind: TokenType | None = None) -> Token:
    return Token(kind or token.token_type, text, token.line, token.col, token.start, token.end)


def _tree(tokens: list[Token], sql: str, dialect: Dialect) -> exp.Expr:
    try:
        trees = [tree for tree in dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, sql) if tree]
    except ParseError as error:
        raise StatementRefused(_told(error)) from error
    except ODD_INPUT as error:
        raise StatementRefused("the statement cannot be read") from error
    if len(trees) != 1:
        raise StatementRefused("one statement at a time")
    [tree] = trees
    if not isinstance(tree, _QUERIES) or not isinstance(tree, exp.Expr):
        raise StatementRefused(f"only queries may be asked (SELECT, WITH, FROM, VALUES){place_of(tree)}")
    _check_size(tree)
    return tree


def _described(tokens: list[Token], dialect: Dialect) -> exp.Expr:
    """The table of a DESCRIBE, read as that of a query."""
    while tokens and tokens[0].text.upper() in ("TABLE", "EXTENDED", "FORMATTED"):
        tokens = tokens[1:]
    if not tokens or tokens[0].text.upper() in ("SELECT", "FROM", "WITH", "VALUES", "("):
        raise StatementRefused("DESCRIBE takes the name of a topic")
    made = [Token(TokenType.SELECT, "SELECT"), Token(TokenType.STAR, "*"), Token(TokenType.FROM, "FROM"), *tokens]
    tree = _tree(made, "", dialect)
    source = tree.args.get("from_")
    alone = isinstance(tree, exp.Select) and all(
        key in ("expressions", "from_") for key, value in tree.args.items() if value
    )
    if not alone or source is None or not isinstance(source.this, exp.Table) or source.this.alias:
        raise StatementRefused("DESCRIBE takes the name of a topic, and nothing else")
    return source.this


def _check_size(tree: exp.Expr) -> None:
    """Count without recursion, before anything walks the tree with it."""
    waiting = [(tree, 1)]
    count = 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise StatementRefused(f"the statement is nested more than {MAX_DEPTH} deep: write long lists of OR as IN")
        if count > MAX_NODES:
            raise StatementRefused(f"the statement has more than {MAX_NODES:,} parts")
        waiting.extend((child, depth + 1) for child in node.iter_expressions())


def _told(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    what = first.get("description") or "syntax error"
    what = "something is missing" if "<" in what else what.removeprefix("Invalid expression / ").rstrip(".")
    near = first.get("highlight") or ""
    near = f" at {near[:40]!r}" if near else ""
    return f"syntax error: {what}{near} (line {first.get('line')}, column {first.get('col')})"


def _shown(token: Token) -> str:
    return repr(token.text.split()[0][:40]) if token.text.strip() else "this"


def _at(token: Token) -> str:
    return _place(token.line, token.col, token.end - token.start)


def _place(line: int, last: int, more: int) -> str:
    """Where a word begins. The library tells where it ends, and how many characters it has after the first one."""
    return f" (line {line}, column {max(1, last - more)})"
