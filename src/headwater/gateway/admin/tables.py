"""Tables for a caller of the HTTP API: a topic's table, its streams, and settling it on request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headwater.configs.topics import TopicConfig
from headwater.gateway.admin.changing import took
from headwater.gateway.services import Call, Services
from headwater.lake.described import behind
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.commands.tables import WantSettled
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import TopicTable
from headwater.types import Domain

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as a table."""

    topic: Topic
    state: StreamsState
    table: TopicTable | None
    """None if nothing of the topic is settled yet."""
    streams: list[Stream]


def found_of(own: Services, topic: Topic) -> Found:
    """A topic as a table, as far as this process has read the ledger."""
    state = own.domains[Domain(topic.domain)].state
    streams = [state.streams[stream] for stream in topic.streams[: topic.ready] if stream in state.streams]
    return Found(topic, state, state.tables.get(topic.id), streams)


async def find(call: Call, name: str, operation: Operation = Operation.DESCRIBE) -> Found:
    """The table of a topic on which the caller is allowed an operation."""
    topic = await call.topic(name, operation)
    await call.services.catch_up(Domain(topic.domain))
    return found_of(call.services, topic)


def followers_of(own: Services, topic: Topic) -> tuple[str, ...]:
    """The followers that should show a topic."""
    shown = TopicConfig.of(topic.configs, own.state.resources.common).table
    return (*own.settings.lake.followers, *own.settings.lake.catalogs) if shown else ()


async def settle(call: Call, name: str, wait_seconds: float) -> tuple[Found, bool]:
    """Ask for a topic to be settled, and wait until all that was stable then is in its tables. Says whether it is."""
    own = call.services
    found = await find(call, name, Operation.ALTER)
    ends = {int(stream.id): stream.stable for stream in found.streams}
    own.check_contact()
    replica = own.domains[Domain(found.topic.domain)]
    if _reached(own, found, ends):
        return found, True
    [result] = await replica.submit([WantSettled(found.topic.id)])
    took(result)
    deadline = own.clock.monotonic() + wait_seconds
    if wait_seconds > 0:
        call.as_stream()
    while not (done := _reached(own, found_of(own, found.topic), ends)):
        left = deadline - own.clock.monotonic()
        if left <= 0 or own.stopping.is_set():
            break
        await asyncio.sleep(min(POLL_SECONDS, left))
    return found_of(own, found.topic), done


def _reached(own: Services, found: Found, ends: dict[int, int]) -> bool:
    """Whether log and followers have reached these offsets."""
    if any(stream.settled < ends.get(int(stream.id), 0) for stream in found.streams):
        return False
    return found.table is None or not behind(found.table, followers_of(own, found.topic))
