"""The Kafka error code of each kind of error. No other module of the broker chooses a code by the class of an error."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater import errors as e
from headwater.errors import BadInput, HeadwaterError
from headwater.state.results import Verdict


class Coded(BadInput):
    """What only Kafka's protocol knows to be wrong: the code of the answer, and its words."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


CODES = e.table({
    ErrorCode.unknown_server_error: (
        e.HeadwaterError, e.ClientError, e.ObjectMissing, e.ForeignCommit, e.Truncated, e.Halted,
        e.LedgerWentBack, e.DutyFailed,
    ),
    ErrorCode.not_leader_or_follower: (
        e.Retriable, e.OutcomeUnknown, e.Overloaded, e.EpochLost, e.NotReady, e.NoEngine, e.SnapshotGone,
        e.RegistryUnavailable,
    ),
    ErrorCode.kafka_storage_error: (e.StoreUnavailable, e.StoreFull, e.Damaged),
    ErrorCode.throttling_quota_exceeded: (e.TooOften, e.QuotaExceeded),
    ErrorCode.invalid_request: (
        e.BadInput, e.CorruptFrame, e.TooManyItems, e.Conflict, e.Mirrored, e.SchemaRefused, e.StatementRefused,
        e.QueryFailed, e.QueryLimit, e.QueryCancelled,
    ),
    ErrorCode.invalid_config: (e.ConfigError, e.MissingExtra),
    ErrorCode.invalid_topic_exception: (e.InvalidName,),
    ErrorCode.invalid_partitions: (e.InvalidPartitions,),
    ErrorCode.corrupt_message: (e.CorruptBatch,),
    ErrorCode.invalid_record: (e.InvalidRecord, e.UnsupportedBatch, e.BadSchema, e.BadValue),
    ErrorCode.invalid_timestamp: (e.InvalidTimestamp,),
    ErrorCode.message_too_large: (e.TooLarge, e.OpensTooLarge),
    ErrorCode.offset_out_of_range: (e.OffsetOutOfRange,),
    ErrorCode.unknown_topic_or_partition: (e.NotFound, e.NoRecord),
    ErrorCode.topic_already_exists: (e.Exists,),
    ErrorCode.policy_violation: (e.LimitReached, e.InternalTopic, e.CompactedTopic),
    ErrorCode.sasl_authentication_failed: (e.NotAuthenticated,),
    ErrorCode.cluster_authorization_failed: (e.NotAllowed,),
})  # fmt: skip

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
    return error.code if isinstance(error, Coded) else e.row_of(CODES, error)


def coordinator_code_of(error: HeadwaterError) -> ErrorCode:
    """The same, from a coordinator: clients look for it again and repeat the request, unless it is to be mended."""
    return code_of(error) if isinstance(error, BadInput) else ErrorCode.coordinator_not_available
