"""Names of columns: what every engine can read, and no two alike.

Fields of schemas have any names; those of JSON are any text. Engines disagree about dots, quotes, spaces and case:
Iceberg and Parquet divide paths by dots, Delta refuses some characters, DuckDB and Spark compare without case. So a
column's name has letters, digits, marks and underscores only, does not begin with a digit, and differs from its
neighbours by more than case. Words that are reserved in SQL stay as they are: every engine takes them in quotes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container


def readable(name: str) -> str:
    """The name that engines can read: other characters become underscores."""
    letters = "".join(one if f"_{one}".isidentifier() else "_" for one in unicodedata.normalize("NFC", name))
    return letters if letters.isidentifier() else f"_{letters}"


def folded(name: str) -> str:
    """The same text for all names that some engine takes for the same."""
    return unicodedata.normalize("NFKC", name).upper().casefold()


def cut_to(name: str, size: int) -> str:
    """The beginning of a text that has at most `size` bytes in UTF-8, without half a character."""
    return name.encode()[:size].decode(errors="ignore")


def unlike(name: str, suffix: str, taken: Container[str], size: int) -> str:
    """The name with its suffix, and with a number behind it if it is taken; at most `size` bytes.

    `taken` has folded names.
    """
    wished = f"{cut_to(name, size - len(suffix.encode()))}{suffix}"
    number = 1
    found = wished
    while folded(found) in taken:
        number += 1
        tail = f"__{number}"
        found = f"{cut_to(wished, size - len(tail))}{tail}"
    return found
