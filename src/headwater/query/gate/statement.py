"""What the gate gives: a statement that only reads, and the tables that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.errors import StatementRefused
from headwater.query.asking import AsOf, Engine, Value


def no_columns(topic: str) -> Sequence[str]:
    """The typed columns of topics that have none."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that exist for a caller: those that it may READ. All others do not exist for it."""

    has: Callable[[str], bool]
    """Whether a topic exists and the caller may read it."""
    names: Callable[[], Iterable[str]]
    """All of them, for `SHOW TABLES` and for messages. It is called only where it is needed."""
    typed: Callable[[str], Sequence[str]] = no_columns
    """The names of a topic's typed columns."""


@dataclass(frozen=True, slots=True)
class Table:
    """A topic at one moment. A topic at two moments is two tables."""

    view: str
    """The name of the view that the engine must have before it runs the statement."""
    topic: str
    as_of: AsOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A checked statement."""

    engine: Engine
    """Whose SQL it is."""
    sql: str
    """What the engine runs: one SELECT."""
    tables: tuple[Table, ...]
    """Each once. A statement without tables has none."""
    parameters: int
    """How many values it needs, in the order of the caller's `?`. `parameter_name` has their names in `sql`."""
    source: str = ""
    """For DuckDB, what the caller wrote, as DuckDB can read it. It is compared with `sql`, and never run."""
    byte_parameters: frozenset[str] = frozenset()
    """Names of parameters that are compared with plain bytes, such as those of a key."""
    explain: bool = False
    """Whether the plan of `sql` is asked for instead of its rows."""
    described: Table | None = None
    """The table of a `DESCRIBE`. `sql` shows the log's columns; `checking.describe` adds the typed ones."""

    def bound(self, values: Sequence[Value]) -> dict[str, Value]:
        """The values of parameters by their names in `sql`. Raises `StatementRefused` if their number is wrong."""
        if len(values) != self.parameters:
            raise StatementRefused(
                f"the statement has {self.parameters} parameters, and {len(values)} values were given"
            )
        found: dict[str, Value] = {}
        for i, value in enumerate(values):
            name = parameter_name(i)
            found[name] = value.encode() if name in self.byte_parameters and isinstance(value, str) else value
        return found


def parameter_name(position: int) -> str:
    """The name of a parameter by its position, the first is 0. DuckDB writes it as `$p1`, Spark as `:p1`."""
    return f"p{position + 1}"
