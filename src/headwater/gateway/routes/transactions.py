"""Transactions: transactional ids with their open or last transaction, and aborting an open one."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import PathParameter, QueryParameter

from headwater.gateway.admin import transactions as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, bounded, paged
from headwater.gateway.services import TheCall
from headwater.state.streams.stored.transactions import STATES, Phase, Transaction

TransactionalId = Annotated[str, PathParameter(description="The transactional id.")]
ByState = Annotated[
    Literal["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"] | None,
    QueryParameter(name="state", description="Only ids in this state."),
]
OlderThan = Annotated[
    int | None, QueryParameter(ge=0, description="Only ids whose transaction is open for longer than this.")
]


class TransactionLine(msgspec.Struct, frozen=True):
    """A transactional id."""

    id: str
    """The transactional id."""
    state: str
    """The state by Kafka's name: `Empty`, `Ongoing` (open), `CompleteCommit` or `CompleteAbort`."""
    producer: int
    """The producer id."""
    epoch: int
    """The epoch of the producer."""
    started_ms: int | None
    """When the open or last transaction began, in milliseconds since 1970; null if there was none."""
    timeout_ms: int
    """How long a transaction may be open."""


class PartitionOf(msgspec.Struct, frozen=True):
    """A partition that an open transaction has written to."""

    topic: str
    """The name of the topic."""
    partition: int
    """The number of the partition."""


class TransactionDetails(msgspec.Struct, frozen=True):
    """A transactional id with the partitions of its open transaction."""

    id: str
    """The transactional id."""
    state: str
    """The state by Kafka's name: `Empty`, `Ongoing` (open), `CompleteCommit` or `CompleteAbort`."""
    producer: int
    """The producer id."""
    epoch: int
    """The epoch of the producer."""
    started_ms: int | None
    """When the open or last transaction began, in milliseconds since 1970; null if there was none."""
    timeout_ms: int
    """How long a transaction may be open."""
    partitions: list[PartitionOf]
    """The partitions of an open transaction, of topics that the caller may describe."""


@get("/v1/transactions", operation_id="listTransactions", tags=["transactions"])
async def list_transactions(
    call: TheCall,
    phase: ByState = None,
    older_than_ms: OlderThan = None,
    limit: Limit = DEFAULT_ITEMS,
    cursor: Next = "",
) -> Listing[TransactionLine]:
    """The transactional ids that the caller may describe, by name."""
    found = sorted(await admin.listed(call, phase, older_than_ms), key=_key)
    page, then = paged("transactions", found, _key, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing([_line(one) for one in page], then)


@get("/v1/transactions/{id:str}", operation_id="describeTransaction", tags=["transactions"])
async def describe_transaction(call: TheCall, id: TransactionalId) -> TransactionDetails:
    """A transactional id with the partitions of its open transaction. The caller needs the right to DESCRIBE it."""
    found = await admin.find(call, id)
    line, places = _line(found), admin.partitions_of(call, found)
    partitions = [PartitionOf(topic, partition) for topic, partition in places]
    return TransactionDetails(
        line.id, line.state, line.producer, line.epoch, line.started_ms, line.timeout_ms, partitions
    )


@post("/v1/transactions/{id:str}/abort", operation_id="abortTransaction", tags=["transactions"], status_code=200)
async def abort_transaction(call: TheCall, id: TransactionalId) -> TransactionLine:
    """Abort the open transaction of a transactional id. Its producer is fenced: it has to start again.

    The caller needs the right to WRITE under the transactional id. Without an open transaction the answer is 409.
    """
    return _line(await admin.abort(call, id))


def _key(found: Transaction) -> str:
    return bounded(found.id)


def _line(found: Transaction) -> TransactionLine:
    started = None if found.phase is Phase.EMPTY else found.opened_ms
    return TransactionLine(found.id, STATES[found.phase], found.producer, found.epoch, started, found.timeout_ms)


ROUTES = (list_transactions, describe_transaction, abort_transaction)
