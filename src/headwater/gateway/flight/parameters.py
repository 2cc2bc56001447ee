"""The parameters of a statement and their likely types.

Drivers of JDBC put values into columns of the types that they are told, so a type must be told. Engines find the types
of parameters themselves; here the words around each `?` decide: a column that it is compared with, a cast, a LIMIT.
What nothing is known of is text, which engines convert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import Token, TokenType

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.dialects import DIALECTS
from headwater.query.gate.parsing import MAX_PARAMETERS, MAX_TEXT, ODD_INPUT

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp_ms": "BIGINT",
    "attributes": "INT",
    "producer_id": "BIGINT",
    "producer_epoch": "INT",
    "sequence": "INT",
    "key": "BLOB",
    "value": "BLOB",
}
"""Types of a topic's columns. A column that is named like one of them and is not one has the wrong type told."""
_COMPARISONS = frozenset(("=", "==", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "%", "BETWEEN"))
_KINDS = {
    "INT": "int32",
    "INTEGER": "int32",
    "SMALLINT": "int32",
    "TINYINT": "int32",
    "BIGINT": "int64",
    "LONG": "int64",
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "REAL": "float32",
    "BOOLEAN": "bool_",
    "BLOB": "binary",
}


def parameters_of(sql: str) -> list[pa.DataType]:
    """The types of the parameters of a statement, in their order. Raises `StatementRefused` for text that is no SQL."""
    import pyarrow as pa

    if len(sql) > MAX_TEXT:
        raise StatementRefused(f"the statement has {len(sql):,} characters: at most {MAX_TEXT:,} are read")
    try:
        tokens = list(DIALECTS[Engine.DUCKDB].tokenize(sql))
    except ODD_INPUT:
        raise StatementRefused("the statement cannot be read: a quote or a comment is not closed") from None
    places = [i for i, token in enumerate(tokens) if token.token_type is TokenType.PLACEHOLDER]
    if len(places) > MAX_PARAMETERS:
        raise StatementRefused(f"the statement has {len(places):,} parameters: at most {MAX_PARAMETERS:,} are taken")
    words = [_word(token) for token in tokens]
    return [getattr(pa, _KINDS.get(_type(words, i), "string"))() for i in places]


def _word(token: Token) -> str:
    if token.token_type is TokenType.STRING:
        return "''"
    return token.text.upper()


def _type(words: list[str], place: int) -> str:
    """The type of the parameter at a place; empty if nothing is known."""
    before, after = words[:place][::-1], words[place + 1 :]
    if after[:1] in (["::"], ["AS"]):
        return after[1] if len(after) > 1 else ""
    if before[:1] in (["LIMIT"], ["OFFSET"]):
        return "BIGINT"
    return _column(_left_of(before)) or (_column(after[1:]) if after and after[0] in _COMPARISONS else "")


def _left_of(before: list[str]) -> list[str]:
    """The words before a comparison, nearest first; empty if the parameter is no right side of one."""
    if before[:1] == ["AND"] and len(before) > 2 and before[2] == "BETWEEN":
        return before[3:]
    if before and before[0] in _COMPARISONS:
        return before[1:]
    while before and before[0] in ("?", ","):
        before = before[1:]
    return before[2:] if before[:2] == ["(", "IN"] else []


def _column(words: list[str]) -> str:
    return _COLUMNS.get(words[0].lower(), "") if words else ""
