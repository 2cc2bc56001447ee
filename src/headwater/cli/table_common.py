"""What the table commands share: arguments, and reading the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headwater.cli.common import run
from headwater.types import Domain

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.replica.replica import Replica
    from headwater.state.streams.state import StreamsState
    from headwater.state.streams.stream import Stream
    from headwater.state.streams.tables import TopicTable

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Directory of ledger and objects.")]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="File with settings, TOML.")]
WaitOption = Annotated[float, typer.Option("--timeout", min=0, help="Longest time to wait, in seconds.")]
POLL_SECONDS = 0.1

T = TypeVar("T")


def ask(
    data: str | None, config: str | None, question: Callable[[LedgerSession], Awaitable[T]], *, member: bool = False
) -> T:
    """Open the ledger of a cluster and run `work` on it. Errors become a line and an exit code."""
    from headwater.app.session import ledger_session
    from headwater.settings.settings import load

    async def main() -> T:
        async with ledger_session(load(config, flags={"data": data}), member=member) as found:
            return await question(found)

    return run(main())


def replica_of(found: LedgerSession, name: str) -> Replica[StreamsState]:
    """The replica of the domain that a topic is in."""
    return found.domains[Domain(found.topic(name).domain)]


def table_of(found: LedgerSession, name: str) -> tuple[TopicTable | None, list[Stream]]:
    """A topic's table, if it has one yet, and its streams."""
    topic, state = found.topic(name), replica_of(found, name).state
    return state.tables.get(topic.id), [state.streams[s] for s in topic.streams if s in state.streams]


def time_text(ms: int) -> str:
    """A time as text, for people and programs."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
