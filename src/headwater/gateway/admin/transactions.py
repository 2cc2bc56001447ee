"""Transactional ids for a caller of the HTTP API: what is open, and aborting it."""

from __future__ import annotations

from headwater.errors import NotReady
from headwater.gateway.admin.changing import took
from headwater.gateway.problems import CONFLICT, Refusal
from headwater.gateway.services import Call, Services, missing
from headwater.replica.replica import Replica
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.cluster import AllocateProducers
from headwater.state.commands.transactions import AbortTransaction
from headwater.state.results import Done, Judgement, Transacted
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.transactions import LAST_EPOCH, NOBODY, STATES, Transaction


def replica_of(own: Services) -> Replica[StreamsState]:
    """The replica of the domain that holds transactional ids."""
    return own.domains[min(own.domains)]


async def listed(call: Call, state: str | None, older_than_ms: int | None) -> list[Transaction]:
    """The transactional ids that the caller may describe. With an age: those whose transaction is open for longer."""
    replica = replica_of(call.services)
    await call.services.catch_up(replica.domain)
    return [
        found
        for found in replica.state.transactions
        if (state is None or STATES[found.phase] == state)
        and (older_than_ms is None or (found.open and replica.state.clock_ms - found.opened_ms > older_than_ms))
        and call.may(Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, found.id)
    ]


async def find(call: Call, id: str, operation: Operation = Operation.DESCRIBE) -> Transaction:
    """A transactional id on which the caller is allowed an operation."""
    call.check(operation, AclResource.TRANSACTIONAL_ID, id)
    replica = replica_of(call.services)
    await call.services.catch_up(replica.domain)
    found = replica.state.transactions.get(id)
    if found is None:
        raise missing("transactional id", id)
    return found


def partitions_of(call: Call, found: Transaction) -> list[tuple[str, int]]:
    """The partitions of an open transaction, of topics that the caller may describe."""
    streams, topics = replica_of(call.services).state.streams, call.services.state.topics
    shown = []
    for number in found.streams:
        stream = streams.get(number)
        topic = topics.get(stream.topic) if stream is not None else None
        if stream is not None and topic is not None and call.may(Operation.DESCRIBE, AclResource.TOPIC, topic.name):
            shown.append((topic.name, stream.partition))
    return sorted(shown)


async def abort(call: Call, id: str) -> Transaction:
    """Abort the open transaction of a transactional id. Its producer is fenced."""
    own = call.services
    found = await find(call, id, Operation.WRITE)
    if not found.open:
        raise _nothing_open(found)
    own.check_contact()
    number, producer, epoch = found.number, found.producer, found.epoch
    fresh = await _fresh(own) if epoch == LAST_EPOCH else NOBODY
    [result] = await replica_of(own).submit([AbortTransaction(id, number, producer, epoch, fresh)])
    if not isinstance(result, Transacted):
        took(result)
    elif result.judgement is not Judgement.DONE:
        raise _nothing_open(found)
    return found


def _nothing_open(found: Transaction) -> Refusal:
    return Refusal(CONFLICT, f"the transaction of {found.id!r} is not open; its state is {STATES[found.phase]}")


async def _fresh(own: Services) -> int:
    """A producer id that was never used: the epochs of the present one are used up."""
    [result] = await own.cluster.submit([AllocateProducers(1)])
    if not isinstance(result, Done):
        raise NotReady(f"no producer id could be allocated: {result}")
    return result.value
