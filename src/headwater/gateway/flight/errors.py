"""The gRPC status of each kind of error. No other module of Flight SQL chooses a status by the class of an error."""

from __future__ import annotations

from headwater import errors as e
from headwater.errors import BadInput, HeadwaterError
from headwater.gateway.problems import Refusal, refusal_of


class Unsupported(BadInput):
    """A part of Flight SQL that is not served."""


STATUSES = e.table({
    "INTERNAL": (
        e.HeadwaterError, e.ClientError, e.ObjectMissing, e.ForeignCommit, e.Truncated, e.Halted,
        e.LedgerWentBack, e.DutyFailed,
    ),
    "UNAVAILABLE": (
        e.Retriable, e.StoreUnavailable, e.StoreFull, e.OutcomeUnknown, e.EpochLost, e.NotReady, e.NoEngine,
        e.SnapshotGone, e.RegistryUnavailable,
    ),
    "RESOURCE_EXHAUSTED": (e.Overloaded, e.TooOften, e.QuotaExceeded, e.TooLarge, e.OpensTooLarge),
    "INVALID_ARGUMENT": (
        e.BadInput, e.ConfigError, e.MissingExtra, e.InvalidName, e.InvalidPartitions, e.CorruptFrame, e.TooManyItems,
        e.CorruptBatch, e.InvalidRecord, e.InvalidTimestamp, e.UnsupportedBatch, e.BadSchema, e.BadValue,
        e.SchemaRefused, e.StatementRefused, e.QueryFailed, e.QueryLimit,
    ),
    "OUT_OF_RANGE": (e.OffsetOutOfRange,),
    "NOT_FOUND": (e.NotFound, e.NoRecord),
    "ALREADY_EXISTS": (e.Exists,),
    "FAILED_PRECONDITION": (e.LimitReached, e.InternalTopic, e.CompactedTopic),
    "ABORTED": (e.Conflict, e.Mirrored),
    "CANCELLED": (e.QueryCancelled,),
    "UNIMPLEMENTED": (Unsupported,),
    "UNAUTHENTICATED": (e.NotAuthenticated,),
    "PERMISSION_DENIED": (e.NotAllowed,),
    "DATA_LOSS": (e.Damaged,),
})  # fmt: skip
_OF_REFUSALS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
    507: "UNAVAILABLE",
}
"""By the status over HTTP, for what the gateway refuses in the same way everywhere."""


def told(error: Exception) -> tuple[str, str]:
    """The name of the status and the words of an error. What nobody foresaw may be secret, so its words stay inside."""
    refusal = refusal_of(error)
    words = refusal.detail or refusal.kind.title
    if isinstance(error, Refusal) or not isinstance(error, HeadwaterError):
        return _OF_REFUSALS.get(refusal.kind.status, "INTERNAL"), words
    return e.row_of(STATUSES, error), words
