"""Errors of requests, and the Kafka error code of each error."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.configs.brokers import NotDynamic
from headwater.configs.client_metrics import InvalidSubscription
from headwater.errors import (
    BadInput,
    BatchTooLarge,
    ConfigError,
    CorruptBatch,
    CorruptObject,
    HeadwaterError,
    Mirrored,
    NotFound,
    Retriable,
    StoreUnavailable,
    UnsupportedBatch,
)
from headwater.log.batch import InvalidRecord, InvalidTimestamp
from headwater.log.reader import OffsetOutOfRange
from headwater.replica.internal_topics import InternalTopic
from headwater.security.quotas import QuotaExceeded
from headwater.state.results import Verdict


class InvalidRequest(BadInput):
    """A request that contradicts itself, or has an invalid field."""


class NotAuthorized(BadInput):
    """The caller is not allowed this operation on the cluster."""


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
    (InternalTopic, ErrorCode.policy_violation),
    (NotDynamic, ErrorCode.invalid_request),
    (Mirrored, ErrorCode.invalid_request),
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
    Verdict.NO_TRANSACTION: ErrorCode.invalid_producer_id_mapping,
    Verdict.NOT_JOINED: ErrorCode.transaction_abortable,
    Verdict.IN_TRANSACTION: ErrorCode.invalid_txn_state,
    Verdict.MIRRORED: ErrorCode.invalid_request,
}


def code_of(error: HeadwaterError) -> ErrorCode:
    """The Kafka error code that makes a client react as the error requires."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.unknown_server_error
