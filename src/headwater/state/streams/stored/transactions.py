"""Transactional ids as the state keeps them, and the rules that appends, groups and transactions share."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Iterator

import msgspec

from headwater.state.commands.streams import Mode
from headwater.state.results import Verdict

MAX_IDS = 100_000
"""The limit of transactional ids of a domain."""
MAX_ID = 1_000
"""The limit of characters of a transactional id."""
MAX_STREAMS = 20_000
"""The limit of streams of one transaction."""
MAX_STAGED_GROUPS = 1_000
"""The limit of groups of one transaction."""
MAX_JOINED = 1_000_000
"""The limit of streams and groups of all open transactions of a domain."""
LAST_EPOCH = 32_766
"""A producer id whose epoch is this one is replaced by a fresh one at the next bump, as in Kafka."""
NOBODY = -1


class Phase(enum.IntEnum):
    """Where a transactional id stands."""

    EMPTY = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


STATES = {
    Phase.EMPTY: "Empty",
    Phase.OPEN: "Ongoing",
    Phase.COMMITTED: "CompleteCommit",
    Phase.ABORTED: "CompleteAbort",
}
"""Kafka's name of each phase."""


class Ended(enum.IntEnum):
    """Who ended the last transaction of an id."""

    NOT = 0
    BY_CLIENT = 1
    BY_CLIENT_WITH_BUMP = 2
    BY_BROKER = 3
    """After a time-out, or for the producer that started next. The epoch moved on."""


class Ending(enum.StrEnum):
    """How a transaction ended, for those who count."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its own producer."""
    TIMED_OUT = "timed_out"
    FENCED = "fenced"
    """By the producer that started next under the same id."""


class StagedOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An offset that is committed with its transaction."""

    offset: int
    leader_epoch: int
    metadata: str


Staged = dict[tuple[uuid.UUID, int], StagedOffset]
"""By (topic, partition)."""


class Transaction(msgspec.Struct):
    """A transactional id, with its open or its last transaction."""

    id: str
    number: int
    """How many transactions the id has begun."""
    producer: int
    epoch: int
    previous_producer: int
    """The producer id before the current one, which a repeated request may still name."""
    last_epoch: int
    """The epoch before the last bump. -1 if another producer took over since."""
    timeout_ms: int
    phase: Phase
    ended: Ended
    changed_ms: int
    """The ledger's time of the last change."""
    opened_ms: int
    """The ledger's time at which the last transaction was opened."""
    streams: dict[int, None]
    """The streams of the open transaction, in the order in which they joined."""
    groups: dict[str, Staged]
    """The groups of the open transaction with their staged offsets, in the order in which they joined."""

    @property
    def open(self) -> bool:
        return self.phase is Phase.OPEN

    def bump(self, fresh: int) -> None:
        """Move on to the next epoch, or to a fresh producer id if the epochs are used up."""
        if self.epoch < LAST_EPOCH:
            self.epoch += 1
        else:
            self.previous_producer, self.producer, self.epoch = self.producer, fresh, 0


class Transactions:
    """The transactional ids of a domain."""

    __slots__ = ("_by_group", "_by_id", "_by_producer", "_open", "joined")

    def __init__(self, found: Iterable[Transaction] = (), opened: Iterable[Transaction] = ()) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._by_producer: dict[int, Transaction] = {}
        """By the current and by the previous producer id."""
        self._open = {transaction.id: transaction for transaction in opened}
        self._by_group: dict[str, dict[str, Transaction]] = {}
        for transaction in found:
            self.put(transaction)
        self.joined = 0
        """How many streams and groups the open transactions have."""
        for transaction in self._open.values():
            self.joined += len(transaction.streams) + len(transaction.groups)
            for group in transaction.groups:
                self._by_group.setdefault(group, {})[transaction.id] = transaction

    def __repr__(self) -> str:
        return f"<Transactions: {len(self)} ids, {len(self._open)} open>"

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id.values())

    def get(self, id: str) -> Transaction | None:
        return self._by_id.get(id)

    def of_producer(self, producer: int) -> Transaction | None:
        """The transactional id that has a producer id now."""
        found = self._by_producer.get(producer)
        return found if found is not None and found.producer == producer else None

    def opened(self) -> list[Transaction]:
        """The open transactions, in the order in which they were opened."""
        return list(self._open.values())

    @property
    def open_count(self) -> int:
        return len(self._open)

    def oldest_open(self) -> Transaction | None:
        """The open transaction that was opened first."""
        return next(iter(self._open.values()), None)

    def put(self, transaction: Transaction) -> None:
        """Add an id."""
        self._by_id[transaction.id] = transaction
        self._by_producer[transaction.producer] = transaction
        if transaction.previous_producer != NOBODY:
            self._by_producer[transaction.previous_producer] = transaction

    def forget(self, transaction: Transaction) -> None:
        """Remove an id without an open transaction."""
        del self._by_id[transaction.id]
        self._by_producer.pop(transaction.producer, None)
        self._by_producer.pop(transaction.previous_producer, None)

    def bump(self, transaction: Transaction, fresh: int) -> None:
        """Move an id on to the next epoch or producer id."""
        before = transaction.previous_producer
        transaction.bump(fresh)
        if transaction.previous_producer != before:
            self._by_producer.pop(before, None)
            self._by_producer[transaction.producer] = transaction

    # --- joining -----------------------------------------------------------------------------------

    def open(self, transaction: Transaction, clock_ms: int) -> None:
        """Open the next transaction of an id, unless one is open."""
        transaction.changed_ms = clock_ms
        if transaction.open:
            return
        transaction.number += 1
        transaction.phase, transaction.ended, transaction.opened_ms = Phase.OPEN, Ended.NOT, clock_ms
        self._open[transaction.id] = transaction

    def close(self, transaction: Transaction, phase: Phase, ended: Ended, clock_ms: int) -> None:
        """End the open transaction of an id, if there is one."""
        self.joined -= len(transaction.streams) + len(transaction.groups)
        for group in transaction.groups:
            self._unstage(group, transaction)
        transaction.phase, transaction.ended, transaction.changed_ms = phase, ended, clock_ms
        transaction.streams, transaction.groups = {}, {}
        self._open.pop(transaction.id, None)

    def admit(self, producer: int, epoch: int, stream: int, mode: int) -> Verdict | None:
        """Judge a transactional batch before its sequence: `None`, or why it is refused.

        The epoch is that of the transaction, not what the stream has seen. So a producer that was fenced is refused
        in every stream, and also if its object was stored before the fence. One whose producer id was replaced at its
        last epoch is fenced like any other: clients can go on after that, but not after an unknown producer id.
        """
        transaction = self._by_producer.get(producer)
        if transaction is None:
            return Verdict.NO_TRANSACTION
        if epoch != transaction.epoch or producer != transaction.producer:
            return Verdict.STALE_PRODUCER
        if stream in transaction.streams:  # only an open transaction has any
            return None
        has_room = len(transaction.streams) < MAX_STREAMS and self.joined < MAX_JOINED
        return None if mode == Mode.JOINS and has_room else Verdict.NOT_JOINED

    def enter(self, producer: int, stream: int, clock_ms: int) -> None:
        """Note an accepted batch: its stream is part of the transaction."""
        transaction = self._by_producer[producer]
        if stream in transaction.streams:  # so it is open
            transaction.changed_ms = clock_ms
            return
        self.open(transaction, clock_ms)
        self.join_streams(transaction, (stream,))

    def join_streams(self, transaction: Transaction, streams: Iterable[int]) -> None:
        """Make streams part of an open transaction."""
        before = len(transaction.streams)
        transaction.streams.update(dict.fromkeys(streams))
        self.joined += len(transaction.streams) - before

    def leave(self, streams: Iterable[int]) -> None:
        """Take streams out of all open transactions."""
        gone = set(streams)
        for transaction in self._open.values():
            for stream in transaction.streams.keys() & gone:
                del transaction.streams[stream]
                self.joined -= 1

    # --- staged offsets ----------------------------------------------------------------------------

    def join_group(self, transaction: Transaction, group: str) -> Staged:
        """Make a group part of an open transaction. Returns its staged offsets."""
        self.joined += group not in transaction.groups
        self._by_group.setdefault(group, {})[transaction.id] = transaction
        return transaction.groups.setdefault(group, {})

    def staging(self, group: str) -> list[Transaction]:
        """The open transactions that a group is part of."""
        return list(self._by_group.get(group, {}).values())

    def is_staged(self, group: str, topic: uuid.UUID, partition: int) -> bool:
        """Whether an open transaction may still change a committed offset."""
        return any((topic, partition) in found.groups[group] for found in self._by_group.get(group, {}).values())

    def staged_count(self, group: str) -> int:
        """How many offsets of a group are staged."""
        return sum(len(found.groups[group]) for found in self._by_group.get(group, {}).values())

    def withdraw(self, group: str, partitions: Iterable[tuple[uuid.UUID, int]]) -> None:
        """Drop staged offsets: they were committed without a transaction or deleted after they had been staged."""
        found = self._by_group.get(group)
        if found:
            for place in partitions:
                for transaction in found.values():
                    transaction.groups[group].pop(place, None)

    def drop_group(self, group: str) -> None:
        """A group is deleted, with what is staged for it."""
        for transaction in self._by_group.pop(group, {}).values():
            del transaction.groups[group]
            self.joined -= 1

    def _unstage(self, group: str, transaction: Transaction) -> None:
        found = self._by_group.get(group)
        if found is not None:
            found.pop(transaction.id, None)
            if not found:
                del self._by_group[group]
