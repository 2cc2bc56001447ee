"""What an unknown column may have meant: a field of the keys or of the values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from headwater.schemas.columns import KEY, VALUE
from headwater.state.commands.columns import Column

_DUCKDB = ('Referenced column "', '" not found')
_SPARK = (" with name `", "` ")
"""What an engine writes before the name of a column that it does not know, and behind it."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def hint_of(error: str, columns: Sequence[Column]) -> str:
    """The end of a sentence that offers fields in place of a column that an engine does not know; empty if none fit."""
    name = _unknown(error).lower()
    if not name:
        return ""
    fields = [(part.name, f"{one.name}.{_written(part.name)}") for one in columns if one.name in (VALUE, KEY)
              for part in one.children]  # fmt: skip
    same = [path for field, path in fields if field.lower() == name]
    if not same:
        close = difflib.get_close_matches(name, [field.lower() for field, _ in fields], n=1, cutoff=0.75)
        same = [path for field, path in fields if field.lower() in close]
    return f"did you mean {' or '.join(dict.fromkeys(same))}?" if same else ""


def _unknown(error: str) -> str:
    """The name of the column that an engine does not know; empty if the error is another one."""
    if "UNRESOLVED_COLUMN" in error:
        return _between(error, _SPARK).rpartition("`.`")[2].replace("``", "`")
    return _between(error, _DUCKDB).replace('""', '"')


def _between(text: str, marks: tuple[str, str]) -> str:
    _, found, rest = text.partition(marks[0])
    name, ended, _ = rest.partition(marks[1])
    return name if found and ended else ""


def _written(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'
