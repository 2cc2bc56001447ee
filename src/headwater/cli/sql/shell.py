r"""The shell: statements up to `;`, and commands that begin with a backslash.

`Shell` knows no terminal: it is given lines and prints through functions. `headwater.cli.sql.terminal` gives it a
prompt with history and completion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.cli.sql.asking import Asker
from headwater.cli.sql.completing import quoted
from headwater.cli.sql.statements import statements
from headwater.cli.sql.wishes import BINARY, SqlOutput, Wish, parse_as_of
from headwater.errors import BadInput, ConfigError, NotFound, StatementRefused
from headwater.ops.visible import visible, width_of
from headwater.query.asking import Engine

if TYPE_CHECKING:
    from headwater.sdk.remote import RemoteConnection

HELP = r"""Statements end with a semicolon. Ctrl-C cancels a query, Ctrl-D leaves.
\d             topics, with the rows and the version of their tables
\d TOPIC       the columns and versions of a topic
\timing        whether the time of each query is shown
\engine NAME   the engine: auto, duckdb or spark
\format NAME   the form of results: table, json, ndjson or csv
\asof STATE    the state of the tables: a version, a tag, a time or offsets; without one the present
\x             whether each column of a row has a line of its own
\?             this text, as help does
\q             leave, as exit and quit do"""
PAGE_ITEMS = 1_000
WORDS = {"exit": r"\q", "quit": r"\q", "help": r"\?"}
"""What is typed without a backslash by habit. No statement is one of these words."""


def word_of(text: str) -> str:
    """A line without what may be around a word."""
    return text.strip().rstrip(";").rstrip().lower()


_PLACE = re.compile(r"\(line (\d+), column (\d+)\)")


def pointed(statement: str, error: str) -> list[str]:
    """The line of a statement that an error names, with a caret below the place; nothing if it names none."""
    found = _PLACE.search(error)
    lines = statement.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return []
    line, column = lines[int(found[1]) - 1], int(found[2])
    margin = "".join("\t" if char == "\t" else " " * width_of(visible(char)) for char in line[: column - 1])
    return [visible(line).replace("\\t", "\t"), f"{margin}^"]


class Leave(Exception):
    """The user wants to leave the shell."""


class Shell:
    """Runs what was typed. Errors are raised; the caller prints them."""

    def __init__(
        self,
        asker: Asker,
        wish: Wish,
        tell: Callable[[str], None],
        point: Callable[[list[str]], None] = lambda lines: None,
    ) -> None:
        """`point` gets lines that show where a statement is wrong, before the error is raised."""
        self._point = point
        self._asker = asker
        self._cluster: RemoteConnection = asker.cluster
        self.wish = wish
        self._tell = tell
        self._commands: dict[str, Callable[[str], None]] = {
            "\\d": self._describe,
            "\\timing": self._timing,
            "\\engine": self._engine,
            "\\format": self._format,
            "\\asof": self._as_of,
            "\\x": self._expanded,
            "\\?": lambda _: self._tell(HELP),
            "\\q": self._leave,
        }

    def __repr__(self) -> str:
        return f"<Shell of {self._cluster!r}>"

    def run(self, text: str) -> None:
        """Run a command, or statements."""
        text = WORDS.get(word_of(text), text)
        if text.lstrip().startswith("\\"):
            name, _, rest = text.strip().partition(" ")
            command = self._commands.get(name.rstrip(";"))
            if command is None:
                raise ConfigError(f"there is no {name}: \\? lists the commands")
            command(rest.strip().rstrip(";").strip())
            return
        for statement in statements(text):
            try:
                self._asker.ask(statement, self.wish)
            except StatementRefused as error:
                self._point(pointed(statement, str(error)))
                raise

    def _leave(self, _: str) -> None:
        raise Leave

    def _timing(self, _: str) -> None:
        self.wish.timing = not self.wish.timing
        self._tell(f"Timing is {_on(self.wish.timing)}.")

    def _expanded(self, _: str) -> None:
        self.wish.expanded = not self.wish.expanded
        self._tell(f"Expanded display is {_on(self.wish.expanded)}.")

    def _engine(self, name: str) -> None:
        if name:
            self.wish.engine = _one_of("engine", name, [str(one) for one in Engine])
        self._tell(f"The engine is {self.wish.engine}.")

    def _format(self, name: str) -> None:
        if name:
            known = [str(one) for one in SqlOutput if one not in BINARY]
            self.wish.output = SqlOutput(_one_of("format", name, known))
        self._tell(f"The format is {self.wish.output}.")

    def _as_of(self, state: str) -> None:
        self.wish.as_of = parse_as_of(state) if state else None
        self._tell(f"Tables are shown as of {state}." if state else "Tables are shown as they are now.")

    def _describe(self, topic: str) -> None:
        if topic:
            self._one(topic.strip('"'))
        else:
            self._all()

    def _all(self) -> None:
        rows: list[list[object]] = []
        query: dict[str, object] = {"limit": PAGE_ITEMS}
        while True:
            page = self._cluster.look("/v1/tables", query)
            rows += [[one["topic"], one["version"], one["rows"], _pending(one)] for one in page["items"]]
            if not page.get("next"):
                break
            query["next"] = page["next"]
        self._show(["topic", "version", "rows", "not settled"], rows)

    def _one(self, topic: str) -> None:
        try:
            table = self._cluster.table(topic)
        except NotFound as error:
            raise BadInput(f"there is no topic {topic!r}") from error
        with self._cluster.sql(f"SELECT * FROM {quoted(topic)} LIMIT 0") as result:
            fields = [[field.name, str(field.type)] for field in result.schema]
        self._show(["column", "type"], fields)
        self._tell(
            f"Version {table['version']} (the oldest is {table['oldest_version']}) has {table['rows']} rows in "
            f"{table['files']} files. {_pending(table)} records are not settled yet."
        )

    def _show(self, names: list[str], rows: list[list[object]]) -> None:
        """Lines of what is known, in columns."""
        shown = [names, *([visible(str(cell)) for cell in row] for row in rows)]
        widths = [max(len(row[i]) for row in shown) for i in range(len(names))]
        made = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
        ]
        made.insert(1, "-+-".join("-" * width for width in widths))
        self._asker.put_lines(iter(made))


def _pending(table: dict[str, Any]) -> int:
    return int(table["pending_records"]) + int(table["held_records"])


def _one_of(what: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise ConfigError(f"there is no {what} {name!r}: the choice is {', '.join(known)}")
    return name


def _on(value: bool) -> str:
    return "on" if value else "off"
