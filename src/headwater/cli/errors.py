"""The exit code of each kind of error.

0 success, 1 the input is wrong, 2 the cluster or another server refused or is not ready, or what is named does not
exist, 3 a table cannot follow its topic, 4 storage failed or it is not known whether a change took effect, 5 the ledger
has lost records or cannot be followed, 6 a health check failed, 7 a background duty of a server failed, 10 anything
else, 130 interrupted.
"""

from __future__ import annotations

import asyncio

from headwater import errors as e
from headwater.errors import HeadwaterError, SchemaReason

OK, INPUT, REFUSED, TABLE, STORAGE, LEDGER, HEALTH, DUTY, OTHER, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 10, 130

CODES = e.table({
    OTHER: (e.HeadwaterError,),
    TABLE: (e.ForeignCommit,),
    REFUSED: (
        e.Retriable, e.Overloaded, e.TooOften, e.QuotaExceeded, e.EpochLost, e.NotReady, e.NoEngine, e.SnapshotGone,
        e.RegistryUnavailable, e.TooLarge, e.OpensTooLarge, e.NotFound, e.NoRecord, e.Conflict, e.Mirrored,
        e.NotAuthenticated, e.NotAllowed, e.ClientError,
    ),
    STORAGE: (e.StoreUnavailable, e.StoreFull, e.OutcomeUnknown, e.Damaged, e.ObjectMissing),
    INPUT: (
        e.BadInput, e.ConfigError, e.MissingExtra, e.InvalidName, e.InvalidPartitions, e.CorruptFrame, e.TooManyItems,
        e.CorruptBatch, e.InvalidRecord, e.InvalidTimestamp, e.UnsupportedBatch, e.OffsetOutOfRange, e.BadSchema,
        e.BadValue, e.Exists, e.LimitReached, e.InternalTopic, e.CompactedTopic, e.SchemaRefused, e.StatementRefused,
        e.QueryFailed, e.QueryLimit, e.QueryCancelled,
    ),
    LEDGER: (e.Truncated, e.Halted, e.LedgerWentBack),
    DUTY: (e.DutyFailed,),
})  # fmt: skip


_ABSENT = (
    SchemaReason.NO_SUBJECT, SchemaReason.NO_VERSION, SchemaReason.NO_SCHEMA, SchemaReason.NO_COMPATIBILITY,
    SchemaReason.NO_MODE,
)  # fmt: skip
"""What the registry says of a thing that does not exist."""
_OF_KAFKA = {
    "topic_already_exists": INPUT,
    "policy_violation": INPUT,
    "offset_out_of_range": INPUT,
    "corrupt_message": INPUT,
    "invalid_record": INPUT,
    "invalid_timestamp": INPUT,
    "invalid_request": INPUT,
    "kafka_storage_error": STORAGE,
}
"""What a broker says, by the name of its code: the same as the kind that the broker has for it. All others: refused."""


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return INTERRUPTED
    if isinstance(error, e.DutyFailed) and isinstance(error.__cause__, e.LedgerWentBack):
        return LEDGER
    if isinstance(error, PermissionError | FileNotFoundError):
        return INPUT  # a file or directory that the user has named
    if isinstance(error, e.SchemaRefused) and error.reason in _ABSENT:
        return REFUSED
    if isinstance(error, e.ClientError) and (code := getattr(error, "code", None)) is not None:
        return _OF_KAFKA.get(code.name, e.row_of(CODES, error))
    return e.row_of(CODES, error) if isinstance(error, HeadwaterError) else OTHER
