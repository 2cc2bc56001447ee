"""Responses that Kafka writes and kio's own types do not read.

The start of a transaction is -1 in Kafka if there is none. kio takes it for a time that is always there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response as describe_transactions
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(describe_transactions.TransactionState):
    """A transactional id, whose last transaction may be unknown."""

    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(describe_transactions.DescribeTransactionsResponse):
    """An answer to DescribeTransactions."""

    transaction_states: tuple[TransactionState, ...]


TYPES: Mapping[tuple[int, int], type] = {(65, 0): DescribeTransactionsResponse}
"""Response types that take the place of kio's, by API and version."""
