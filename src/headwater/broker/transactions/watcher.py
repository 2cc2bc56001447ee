"""Which broker watches a transactional id, what it does about time-outs, and how requests become commands.

Any broker serves any transactional id: `apply` judges every request. A rendezvous hash of the id's shard names the
broker that FindCoordinator answers. That broker also aborts the id's transactions that take too long. It measures on
its own monotonic clock, from when it first saw a transaction, so no wall clock ends one. Another broker that takes
over measures anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.broker import placing
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.clock import Clock
from headwater.errors import BadInput, HeadwaterError, NotReady
from headwater.replica.membership import Membership
from headwater.replica.replica import Replica
from headwater.settings.settings import Transactions as TransactionSettings
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    InitTransaction,
    TransactionsCommand,
)
from headwater.state.results import Judgement, Reason, Refused, Transacted
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import SHARDS, shard_of
from headwater.state.streams.stored.transactions import LAST_EPOCH, Transaction

log = logging.getLogger("headwater.transactions")
TRANSACTIONS = Duty("transactions", OnDeath.RESTART, "aborts transactions that take longer than their time-outs")

ABORTS_AT_ONCE = 200
"""Transactions that are aborted by one record. It holds them even if each character of their ids has four bytes."""
UNUSED = -1
"""The fresh producer id of a command that cannot take one."""


class Watcher:
    """The transactional ids that this broker watches, and the way of all transactional requests to the ledger."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domain: Replica[StreamsState],
        membership: Membership,
        settings: TransactionSettings,
        clock: Clock,
        *,
        node: int,
        background: Background,
    ) -> None:
        self._cluster = cluster
        self.replica = domain
        self._membership = membership
        self.settings = settings
        self.producer_ids = ProducerIds(cluster)
        self._clock = clock
        self._node = node
        self._seen: dict[tuple[str, int], float] = {}
        """By id and number of the transaction: when this broker first saw it open. Bounded by the open transactions."""
        self.timed_out = 0
        """Transactions that this broker aborted because of their time-outs."""
        self._background = background
        self._duty: Supervised | None = None

    def __repr__(self) -> str:
        return f"<Watcher of {len(self._seen)} open transactions>"

    def start(self) -> None:
        """Start to watch the transactions that are placed here."""
        self._duty = self._background.run(TRANSACTIONS, self._watch)

    async def close(self) -> None:
        """Stop watching. Another broker measures anew."""
        if self._duty is not None:
            await self._duty.stop()

    # --- placement -------------------------------------------------------------------------------------

    def place(self, id: str) -> Process | None:
        """The broker that should watch a transactional id."""
        return placing.place(self._cluster.state, placing.TRANSACTIONS + shard_of(id))

    def _own_shards(self) -> frozenset[int]:
        return placing.shards_of(self._cluster.state, placing.TRANSACTIONS, SHARDS, self._node)

    async def listed(self) -> list[Transaction]:
        """The transactional ids that this broker watches."""
        await self.replica.barrier()
        own = self._own_shards()
        return [found for found in self.replica.state.transactions if shard_of(found.id) in own]

    # --- requests --------------------------------------------------------------------------------------

    async def init(self, id: str, timeout_ms: int, expected: tuple[int, int]) -> Transacted:
        """Start a producer. `expected` is the producer id and epoch that the client has, or (-1, -1).

        Whether a fresh producer id is needed is known only when the command is applied. One that was not is used for
        the next producer.
        """
        fresh = await self.producer_ids.take()
        result = await self.submit(InitTransaction(id, timeout_ms, fresh, *expected))
        self._return(fresh, result)
        return result

    async def end(self, id: str, producer: int, epoch: int, *, commit: bool, bump: bool) -> Transacted:
        """End a transaction."""
        fresh = await self._fresh_after(epoch) if bump else UNUSED
        result = await self.submit(EndTransaction(id, producer, epoch, commit, bump, fresh))
        self._return(fresh, result)
        return result

    async def _fresh_after(self, epoch: int) -> int:
        """A producer id for a command that moves on from an epoch. Only the last epoch needs a fresh one."""
        return await self.producer_ids.take() if epoch == LAST_EPOCH else UNUSED

    def _return(self, fresh: int, result: Transacted) -> None:
        if fresh not in (UNUSED, result.producer):
            self.producer_ids.give_back(fresh)

    async def submit(self, command: TransactionsCommand) -> Transacted:
        """Append a command and wait for its judgement."""
        [result] = await self.submit_all([command])
        return result

    async def submit_all(self, commands: Sequence[TransactionsCommand]) -> list[Transacted]:
        """Append commands as one record and wait for their judgements."""
        if not commands:
            return []
        try:
            results = await self.replica.submit(commands)
        except ValueError as error:  # the commands are larger than a record may be
            raise BadInput(str(error)) from error
        return [_judged(result) for result in results]

    # --- time-outs -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_ms / 1000)
            try:
                await self.round()
            except HeadwaterError as error:
                log.info("time-outs of transactions postponed", extra={"reason": str(error)})

    async def round(self) -> None:
        """Look at the open transactions once, and abort those whose time is over."""
        if not self._membership.in_contact:
            return
        due = self._due(self._clock.monotonic())
        for first in range(0, len(due), ABORTS_AT_ONCE):
            await self._abort(due[first : first + ABORTS_AT_ONCE])

    def _due(self, now: float) -> list[Transaction]:
        own, before = self._own_shards(), self._seen
        open_here = [found for found in self.replica.state.transactions.opened() if shard_of(found.id) in own]
        self._seen = {(x.id, x.number): before.get((x.id, x.number), now) for x in open_here}
        return [x for x in open_here if now - self._seen[x.id, x.number] >= x.timeout_ms / 1000]

    async def _abort(self, due: Sequence[Transaction]) -> None:
        # The facts are copied first: the state may move on while producer ids are allocated.
        facts = [(x.id, x.number, x.producer, x.epoch) for x in due]
        commands = [AbortTransaction(*fact, await self._fresh_after(fact[-1])) for fact in facts]
        for command, result in zip(commands, await self.submit_all(commands), strict=True):
            self._return(command.fresh, result)
            if result.judgement is Judgement.DONE:
                self.timed_out += 1
                log.warning(
                    "a transaction took longer than its time-out and was aborted",
                    extra={"transactional_id": command.id, "producer": command.producer, "epoch": command.epoch},
                )


def _judged(result: object) -> Transacted:
    if isinstance(result, Transacted):
        return result
    if isinstance(result, Refused) and result.reason is Reason.INVALID:
        raise BadInput(result.detail)
    raise NotReady(f"the command was not judged: {result}")
