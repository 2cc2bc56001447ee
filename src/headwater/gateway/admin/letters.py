"""Records that could not be decoded, for a caller of the HTTP API: which topics have some, the rows, decoding again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass

from headwater.configs.topics import DLQ_TOPIC
from headwater.errors import NotReady, ObjectMissing
from headwater.gateway.admin.changing import took
from headwater.gateway.admin.tables import Found, find, found_of
from headwater.gateway.services import Call
from headwater.lake.letters import BadRow, Place, due, failed_rows, undecodable
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.columns import WantDecoded
from headwater.state.results import Done
from headwater.types import Domain

TRIES = 10
"""How often rows are looked for anew because a file was replaced meanwhile."""
MAX_BYTES = 8 << 20
"""Bytes of the keys, values and headers of one page. A single row may be larger."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A topic that names a dead-letter topic, or has rows that could not be decoded."""

    topic: str
    dead_letter_topic: str
    rows: int
    waiting: bool
    """Whether there are letters to be written."""


def summaries(call: Call) -> Iterator[Summary]:
    """The topics that the caller may describe, by name, as far as this process has read the ledger."""
    own = call.services
    for name in sorted(own.state.names):
        topic = own.state.names[name]
        if not topic.ready or not call.may(Operation.DESCRIBE, AclResource.TOPIC, name):
            continue
        found = found_of(own, topic)
        target, rows = topic.configs.get(DLQ_TOPIC, ""), failed_rows(found.state, found.table)
        if target or rows:
            waiting = bool(target) and any(due(found.state, stream) is not None for stream in found.streams)
            yield Summary(name, target, rows, waiting)


async def rows(call: Call, name: str, limit: int, after: Place) -> tuple[list[tuple[int, BadRow]], Place | None]:
    """Rows of a topic that could not be decoded, with their partitions, and the place to go on at; None if that is all.

    The caller needs the right to READ the topic.
    """
    found = await find(call, name, Operation.READ)
    call.usage.reads()
    call.places.append(call.services.undecoded.enter(call.caller.account))
    left = TRIES
    while True:
        try:
            return await _page(call, found, limit, after)
        except ObjectMissing:
            left -= 1
            if not left:
                raise NotReady("the files of the table are replaced all the time: try again") from None
        found = await find(call, name, Operation.READ)


async def _page(call: Call, found: Found, limit: int, after: Place) -> tuple[list[tuple[int, BadRow]], Place | None]:
    page: list[tuple[int, BadRow]] = []
    size, last = 0, after
    if found.table is None:
        return page, None
    own = call.services
    every = undecodable(own.domains.store, found.state, found.table, after, own.offload)
    async with aclosing(every) as all_rows:
        async for place, partition, row in all_rows:
            if len(page) == limit or (page and size > MAX_BYTES):
                return page, last
            page.append((partition, row))
            size += len(row.key or b"") + len(row.value or b"") + sum(len(value or b"") for _, value in row.headers)
            last = place
    return page, None


async def replay(call: Call, name: str, everything: bool) -> int:
    """Have the records of a topic decoded again that could not be decoded, or all. Returns how many files that are.

    The caller needs the right to ALTER the topic.
    """
    found = await find(call, name, Operation.ALTER)
    own = call.services
    own.check_contact()
    replica = own.domains[Domain(found.topic.domain)]
    if found.table is None:
        return 0
    [result] = await replica.submit([WantDecoded(found.topic.id, everything)])
    took(result)
    assert isinstance(result, Done)
    return result.value
