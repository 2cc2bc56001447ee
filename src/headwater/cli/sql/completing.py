"""What can be typed next: topics behind FROM and JOIN, else columns, topics, keywords and functions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN_SECONDS = 30.0
"""How long a list of topics, and of the columns of a topic, is good."""
MAX_TOPICS = 4
"""Topics of a statement whose columns are looked up."""
KEPT_TOPICS = 200
"""Topics whose columns are kept."""
COMMANDS = ("\\d", "\\timing", "\\engine", "\\format", "\\asof", "\\x", "\\?", "\\q")
KEYWORDS = (
    "ALL", "AND", "ANY", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "CROSS", "DESC", "DISTINCT", "ELSE",
    "END", "EXCEPT", "EXISTS", "FALSE", "FILTER", "FIRST", "FROM", "FULL", "GROUP", "HAVING", "IN", "INNER",
    "INTERSECT", "INTERVAL", "IS", "JOIN", "LAST", "LATERAL", "LEFT", "LIKE", "LIMIT", "NOT", "NULL", "NULLS",
    "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER", "PARTITION", "QUALIFY", "RIGHT", "SELECT", "THEN",
    "TIMESTAMP", "TRUE", "UNION", "USING", "VALUES", "VERSION", "WHEN", "WHERE", "WINDOW", "WITH", "avg",
    "coalesce", "count", "date_trunc", "greatest", "least", "length", "lower", "max", "min", "round",
    "row_number", "substring", "sum", "upper",
)  # fmt: skip
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r'(\\\w*|"[^"]*|[\w.-]*)$')
_NAMES_TABLE = re.compile(r"(?:\b(?:from|join)\s+|\\d\s+)$", re.IGNORECASE)


def quoted(topic: str) -> str:
    """The name of a topic as a statement has it."""
    return topic if PLAIN.fullmatch(topic) and topic.upper() not in KEYWORDS else f'"{topic}"'


def candidates(before: str, topics: Sequence[str], columns: Sequence[str]) -> tuple[str, list[str]]:
    """The word that is being typed, and what it may become. `before` is the text before the cursor."""
    match = _WORD.search(before)
    word = match[0] if match is not None else ""
    rest = before[: len(before) - len(word)]
    if word.startswith("\\"):
        return word, [name for name in COMMANDS if name.startswith(word) and not rest.strip()]
    tables = [quoted(topic) for topic in topics]
    if _NAMES_TABLE.search(rest):
        return word, _beginning(word, tables)
    return word, _beginning(word, [*columns, *tables, *KEYWORDS]) if word else []


def _beginning(word: str, names: Iterable[str]) -> list[str]:
    wanted = word.strip('"').lower()
    return [name for name in dict.fromkeys(names) if name.strip('"').lower().startswith(wanted)]


class KnownTopics:
    """The topics of the cluster, for a moment."""

    def __init__(self, look: Callable[[], list[str]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._names: list[str] = []
        self._until = float("-inf")

    def __repr__(self) -> str:
        return f"<KnownTopics, {len(self._names)}>"

    def names(self) -> list[str]:
        """The names. If the gateway does not answer, those that it told before."""
        if self._clock.monotonic() >= self._until:
            try:
                self._names = self._look()
            except HeadwaterError:
                pass  # completion is no reason to complain; the next statement says what is wrong
            self._until = self._clock.monotonic() + KNOWN_SECONDS
        return self._names


class KnownColumns:
    """The columns of the topics that a statement names, for a moment."""

    def __init__(self, look: Callable[[str], list[str]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: dict[str, tuple[float, list[str]]] = {}

    def __repr__(self) -> str:
        return f"<KnownColumns of {len(self._known)} topics>"

    def names(self, statement: str, topics: Iterable[str]) -> list[str]:
        """The columns of those topics that a statement names."""
        words = set(re.split(r"[^\w.-]+", statement))
        named = itertools.islice((topic for topic in topics if topic in words), MAX_TOPICS)
        return [column for topic in named for column in self._of(topic)]

    def _of(self, topic: str) -> list[str]:
        until, names = self._known.get(topic, (float("-inf"), []))
        if self._clock.monotonic() >= until:
            try:
                names = self._look(topic)
            except HeadwaterError:
                pass  # as above
            if len(self._known) >= KEPT_TOPICS:
                self._known.clear()
            self._known[topic] = (self._clock.monotonic() + KNOWN_SECONDS, names)
        return names


def with_fields(schema: pa.Schema) -> list[str]:
    """The names of columns, and of the fields of those that are structs."""
    import pyarrow as pa

    found: list[str] = []
    for field in schema:
        found.append(_column(field.name))
        if pa.types.is_struct(field.type):
            found += [
                f"{_column(field.name)}.{_column(field.type.field(i).name)}" for i in range(field.type.num_fields)
            ]
    return found


def _column(name: str) -> str:
    return name if PLAIN.fullmatch(name) else f'"{name}"'
