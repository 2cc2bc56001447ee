"""Single records: where a look-up looks, and how its answer is shown."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from headwater.errors import NoRecord, Retriable
from headwater.gateway.records.decoding import view_of
from headwater.gateway.records.forms import RecordLine, line_of
from headwater.gateway.records.values import Format
from headwater.gateway.services import Services, missing
from headwater.query.lookups.lookups import Answer, Place
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import inline
from headwater.types import Domain


class ReadLine(msgspec.Struct, frozen=True):
    """What a call has read from the object store. What is in the gateway's memory costs nothing."""

    requests: int
    """The number of requests."""
    bytes: int
    """The bytes of all answers."""


class FoundRecord(msgspec.Struct, frozen=True):
    """A record that was looked up."""

    record: RecordLine
    """The record."""
    tombstone: bool
    """Whether the value is null: the key was deleted."""
    read: ReadLine
    """What it cost to find the record."""


def place_of(services: Services, topic: Topic) -> Place:
    """Where a look-up in a topic looks."""
    domain = Domain(topic.domain)
    replica: Replica[StreamsState] = services.domains[domain]

    def streams() -> list[Stream]:
        known = replica.state.streams
        found = [known[stream] for stream in topic.streams[: topic.ready] if stream in known]
        if not found:
            raise missing("topic", topic.name)
        return found

    return Place(topic.id, lambda: replica.state, streams, lambda: services.catch_up(domain))


@contextlib.asynccontextmanager
async def held(services: Services) -> AsyncIterator[None]:
    """Keep what a look-up reads. A look-up that cannot be held looks again if an object is deleted under it."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(Retriable):  # the gateway has no epoch at the moment, or no room
            stack.callback((await services.holding.begin()).release)
        yield


async def found_record(services: Services, topic: Topic, answer: Answer, form: Format, what: str) -> FoundRecord:
    """A record as it is shown. Raises `NoRecord` if there is none."""
    if answer.record is None:
        raise NoRecord(f"{what}: there is no such record")
    read = ReadLine(answer.read.requests, answer.read.bytes)
    view = await view_of(services, topic, form, [answer.record])
    run = inline if isinstance(view, Format) else services.offload
    line = await run(line_of, answer.partition, answer.record, view)
    return FoundRecord(line, answer.record.value is None, read)
