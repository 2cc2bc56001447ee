"""What the table commands share: arguments, and a look at the cluster's own metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headwater.cli.common import run
from headwater.types import Domain

if TYPE_CHECKING:
    from headwater.app.visitor import Visit
    from headwater.metadata.replica import Replica
    from headwater.metadata.streams import Stream, StreamsState
    from headwater.metadata.tables import TopicTable

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Where ledger and objects lie.")]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, TOML.")]
WaitOption = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")]
POLL_SECONDS = 0.1

T = TypeVar("T")


def ask(data: str | None, config: str | None, question: Callable[[Visit], Awaitable[T]], *, member: bool = False) -> T:
    """Visit a cluster and bring back an answer. Errors become a line and an exit code."""
    from headwater.app.visitor import visit
    from headwater.config import load

    async def main() -> T:
        async with visit(load(config, flags={"data": data}), member=member) as found:
            return await question(found)

    return run(main())


def replica_of(found: Visit, name: str) -> Replica[StreamsState]:
    """The metadata of the domain that a topic is in."""
    return found.domains[Domain(found.topic(name).domain)]


def table_of(found: Visit, name: str) -> tuple[TopicTable | None, list[Stream]]:
    """A topic's table, if it has one yet, and its streams."""
    topic, state = found.topic(name), replica_of(found, name).state
    return state.tables.get(topic.id), [state.streams[s] for s in topic.streams if s in state.streams]


def time_text(ms: int) -> str:
    """A moment, for people and programs."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
