"""Commands about transactions.

Each of them is judged by the transaction's own state, so that any broker may send it again and get the same answer.
"""

from __future__ import annotations

from typing import TypeAlias

from headwater.state.commands.base import Command


class InitTransaction(Command, frozen=True, tag="txn+"):
    """A producer starts under a transactional id. It fences earlier producers and ends what they left open.

    `fresh` is a new producer id, or -1. It is taken if the id is new or its epochs are used up. The expected producer
    id and epoch are -1 if the client does not name any.
    """

    id: str
    timeout_ms: int
    fresh: int
    expected_producer: int
    expected_epoch: int


class JoinTransaction(Command, frozen=True, tag="txn<"):
    """Streams and groups become part of a transaction. The first of them opens it."""

    id: str
    producer: int
    epoch: int
    streams: tuple[int, ...]
    groups: tuple[str, ...]


class StageOffsets(Command, frozen=True, tag="txn-offsets"):
    """Offsets of a group that are committed if the transaction is: (topic, partition, offset, leader epoch, metadata).

    With `joins` the group becomes part of the transaction by this command. Otherwise it must be part of it already.
    """

    claim: int
    group: str
    id: str
    producer: int
    epoch: int
    joins: bool
    offsets: list[tuple[bytes, int, int, int, str]]


class EndTransaction(Command, frozen=True, tag="txn-end"):
    """A producer commits or aborts its transaction. With `bump` its next transaction has the next epoch."""

    id: str
    producer: int
    epoch: int
    commit: bool
    bump: bool
    fresh: int


class AbortTransaction(Command, frozen=True, tag="txn-abort"):
    """A broker aborts a transaction that took too long. `number` makes sure that it does not end the next one."""

    id: str
    number: int
    producer: int
    epoch: int
    fresh: int


class ForgetTransactions(Command, frozen=True, tag="txn-"):
    """Forget transactional ids that have not been used since a time. Open transactions stay."""

    before_ms: int


TransactionsCommand: TypeAlias = (
    InitTransaction | JoinTransaction | StageOffsets | EndTransaction | AbortTransaction | ForgetTransactions
)
