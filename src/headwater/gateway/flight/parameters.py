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
NEAR = 5
"""So many words on each side of a parameter, or of a list of them, say what it is."""
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
    ends = _ends(words)
    return [getattr(pa, _KINDS.get(_type(words, i, ends), "string"))() for i in places]


def _ends(words: list[str]) -> list[int]:
    """For each place, that of the nearest word before it that is neither a parameter nor a comma; -1 for none.

    All places are looked at in one pass: a statement may have a thousand parameters in one list.
    """
    found, end = [], -1
    for place, word in enumerate(words):
        found.append(end)
        if word not in ("?", ","):
            end = place
    return found


def _word(token: Token) -> str:
    if token.token_type is TokenType.STRING:
        return "''"
    return token.text.upper()


def _type(words: list[str], place: int, ends: list[int]) -> str:
    """The type of the parameter at a place; empty if nothing is known. See `_ends`."""
    before, after = words[max(0, place - NEAR) : place][::-1], words[place + 1 : place + 1 + NEAR]
    if after[:1] in (["::"], ["AS"]):
        return after[1] if len(after) > 1 else ""
    if before[:1] in (["LIMIT"], ["OFFSET"]):
        return "BIGINT"
    end = ends[place]
    listed = words[max(0, end - NEAR) : end + 1][::-1]
    return _column(_left_of(before, listed)) or (_column(after[1:]) if after and after[0] in _COMPARISONS else "")


def _left_of(before: list[str], listed: list[str]) -> list[str]:
    """The words before a comparison, nearest first; empty if the parameter is no right side of one.

    `listed` are those before the parameter and all others of its list.
    """
    if before[:1] == ["AND"] and len(before) > 2 and before[2] == "BETWEEN":
        return before[3:]
    if before and before[0] in _COMPARISONS:
        return before[1:]
    return listed[2:] if listed[:2] == ["(", "IN"] else []


def _column(words: list[str]) -> str:
    return _COLUMNS.get(words[0].lower(), "") if words else ""
