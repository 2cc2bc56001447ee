"""Which Kafka error code says which of our errors."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker_configs import NotDynamic
from headwater.broker.quotas import QuotaExceeded
from headwater.errors import (
    BadInput,
    BatchTooLarge,
    ConfigError,
    CorruptBatch,
    CorruptObject,
    HeadwaterError,
    NotFound,
    Retriable,
    StoreUnavailable,
    UnsupportedBatch,
)
from headwater.log.batch import InvalidRecord, InvalidTimestamp
from headwater.log.reader import OffsetOutOfRange
from headwater.metadata.client_metrics import InvalidSubscription
from headwater.metadata.results import Verdict


class InvalidRequest(BadInput):
    """A request that contradicts itself, or names what cannot be named."""


class NotAuthorized(BadInput):
    """Whoever asks may not do that to the cluster."""


_CODES: list[tuple[type[HeadwaterError], ErrorCode]] = [
    (NotAuthorized, ErrorCode.cluster_authorization_failed),
    (StoreUnavailable, ErrorCode.kafka_storage_error),
    (QuotaExceeded, ErrorCode.throttling_quota_exceeded),
    (CorruptObject, ErrorCode.kafka_storage_error),
    (Retriable, ErrorCode.not_leader_or_follower),
    (InvalidRecord, ErrorCode.invalid_record),
    (InvalidTimestamp, ErrorCode.invalid_timestamp),
    (CorruptBatch, ErrorCode.corrupt_message),
    (UnsupportedBatch, ErrorCode.invalid_record),
    (BatchTooLarge, ErrorCode.message_too_large),
    (ConfigError, ErrorCode.invalid_config),
    (InvalidRequest, ErrorCode.invalid_request),
    (InvalidSubscription, ErrorCode.invalid_request),
    (NotDynamic, ErrorCode.invalid_request),
    (NotFound, ErrorCode.unknown_topic_or_partition),
    (OffsetOutOfRange, ErrorCode.offset_out_of_range),
]

OF_VERDICT = {
    Verdict.ACCEPTED: ErrorCode.none,
    Verdict.DUPLICATE: ErrorCode.none,
    Verdict.OUT_OF_ORDER: ErrorCode.out_of_order_sequence_number,
    Verdict.STALE_PRODUCER: ErrorCode.invalid_producer_epoch,
    Verdict.NO_STREAM: ErrorCode.unknown_topic_or_partition,
    Verdict.MOVED: ErrorCode.not_leader_or_follower,
}


def code_of(error: HeadwaterError) -> ErrorCode:
    """The error code that makes a client do what the error asks for."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.unknown_server_error
