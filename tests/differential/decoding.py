"""Answers as values of kio's classes, or of our own where kio's cannot hold what Apache Kafka says.

kio looks at the types of fields, so this module has no postponed annotations.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TopicData
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

from headwater.wire.messages import decode_response


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A row of DescribeTransactions. The class of kio has no times before 1970, but there are transactions without."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar = 0
    __flexible__: ClassVar = True
    __api_key__: ClassVar = 65
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    transactional_id: str = field(metadata={"kafka_type": "string"})
    transaction_state: str = field(metadata={"kafka_type": "string"})
    transaction_timeout: i32 = field(metadata={"kafka_type": "int32"})
    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})
    producer_id: i64 = field(metadata={"kafka_type": "int64"})
    producer_epoch: i16 = field(metadata={"kafka_type": "int16"})
    topics: tuple[TopicData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransactions:
    """The answer to DescribeTransactions."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar = 0
    __flexible__: ClassVar = True
    __api_key__: ClassVar = 65
    __header_schema__: ClassVar = DescribeTransactionsResponse.__header_schema__
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    transaction_states: tuple[TransactionState, ...]


_READERS = [entity_reader(kind) for kind in (DescribedTransactions.__header_schema__, DescribedTransactions)]


def decoded(key: int, version: int, frame: memoryview) -> Any:
    """The body of an answer."""
    if key == DescribedTransactions.__api_key__:
        _, at = _READERS[0](frame, 0)
        return _READERS[1](frame, at)[0]
    return decode_response(key, version, frame)[1]
