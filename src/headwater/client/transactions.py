"""Transactional ids: calls for operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection
from headwater.client.errors import ProtocolError, check
from headwater.client.model import ProducerIdentity, Transaction
from headwater.client.routing import TRANSACTION_KEY, Router
from headwater.errors import ConfigError

INIT_PRODUCER_ID, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 22, 65, 66
ANY_AGE = -1
IDS_PER_REQUEST = 1_000
LONGEST_MS = 60_000
"""The longest time-out with which an id is taken over, to abort its transaction. Brokers refuse long ones; the next
producer sets its own."""


class TransactionCalls(Router):
    """Calls about transactional ids. A list needs all brokers; the others go to the coordinator of the id."""

    async def list_transactions(
        self, states: Collection[str] = (), *, older_than_ms: int | None = None
    ) -> list[Transaction]:
        """Transactional ids by name. With an age: those whose transaction is open for longer."""

        async def attempt() -> list[Transaction]:
            await self.load_metadata([])
            found: dict[str, Transaction] = {}
            for connection in await self.all_brokers():
                for transaction in await self._listed(connection, states, older_than_ms):
                    found[transaction.id] = transaction
            return sorted(found.values(), key=lambda transaction: transaction.id)

        return await self.retrying(attempt)

    async def _listed(
        self, connection: Connection, states: Collection[str], older_than_ms: int | None
    ) -> list[Transaction]:
        """What one broker coordinates. Brokers of version 0 know no ages, so the client compares them itself."""
        response = await connection.request(
            LIST_TRANSACTIONS,
            within=self.settings.request_s,
            state_filters=list(states),
            producer_id_filters=[],
            duration_filter=ANY_AGE if older_than_ms is None else older_than_ms,
            transactional_id_pattern=None,
        )
        check(response.error_code, "the list of transactions")
        if response.unknown_state_filters:
            raise ConfigError(f"transactions have no state {response.unknown_state_filters[0]!r}")
        found = await self._described(connection, [listed.transactional_id for listed in response.transaction_states])
        found = [transaction for transaction in found if not states or transaction.state in states]
        if older_than_ms is None:
            return found
        began_before = None if connection.version(LIST_TRANSACTIONS) else self.clock.wall_ms() - older_than_ms
        return [t for t in found if t.open and (began_before is None or t.started_ms < began_before)]

    async def _described(self, connection: Connection, ids: Sequence[str]) -> list[Transaction]:
        """The ids that are still there."""
        found = []
        for i in range(0, len(ids), IDS_PER_REQUEST):
            for answer in await self._describe(connection, ids[i : i + IDS_PER_REQUEST]):
                if answer.error_code is not ErrorCode.transactional_id_not_found:
                    found.append(_transaction(answer))
        return found

    async def _describe(self, connection: Connection, ids: Sequence[str]) -> Sequence[Any]:
        response = await connection.request(
            DESCRIBE_TRANSACTIONS, within=self.settings.request_s, transactional_ids=list(ids)
        )
        answers: Sequence[Any] = response.transaction_states
        if len(answers) != len(ids):
            raise ProtocolError(f"{len(answers)} answers to a request for {len(ids)} transactional ids")
        return answers

    async def describe_transaction(self, id: str) -> Transaction:
        """A transactional id with its open or its last transaction."""

        async def attempt() -> Transaction:
            [answer] = await self._describe(await self.coordinator(id, TRANSACTION_KEY), [id])
            return _transaction(answer)

        return await self.retrying(attempt)

    async def abort_transaction(self, transaction: Transaction) -> ProducerIdentity:
        """Abort an open transaction, as a new producer under its id would. The producer that has it open is fenced.

        Producer id and epoch must be as described. So the next transaction of a producer of the second generation, or
        that of another producer, is left alone.
        """

        async def attempt() -> ProducerIdentity:
            connection = await self.coordinator(transaction.id, TRANSACTION_KEY)
            response = await connection.request(
                INIT_PRODUCER_ID,
                within=self.settings.request_s,
                transactional_id=transaction.id,
                transaction_timeout=min(transaction.timeout_ms, LONGEST_MS),
                producer_id=transaction.producer.id,
                producer_epoch=transaction.producer.epoch,
                enable2_pc=False,
                keep_prepared_txn=False,
            )
            check(response.error_code, f"transactional id {transaction.id!r}")
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        return await self.retrying(attempt)


def _transaction(answer: Any) -> Transaction:
    check(answer.error_code, f"transactional id {answer.transactional_id!r}")
    started = answer.transaction_start_time
    return Transaction(
        id=answer.transactional_id,
        state=answer.transaction_state,
        producer=ProducerIdentity(answer.producer_id, answer.producer_epoch),
        timeout_ms=round(answer.transaction_timeout.total_seconds() * 1000),
        started_ms=-1 if started is None else round(started.timestamp() * 1000),
        partitions=tuple((topic.topic, index) for topic in answer.topics for index in topic.partitions),
    )
