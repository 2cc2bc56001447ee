"""The exit code of each kind of error.

0 success, 1 the input is wrong, 2 the cluster or another server refused or is not ready, 4 storage failed or it is not
known whether a change took effect, 5 the ledger has lost records or cannot be followed, 6 a health check failed, 7 a
background duty of a server failed, 10 anything else, 130 interrupted. 3 is free.
"""

from __future__ import annotations

import asyncio

from headwater import errors as e
from headwater.errors import HeadwaterError

OK, INPUT, REFUSED, STORAGE, LEDGER, HEALTH, DUTY, OTHER, INTERRUPTED = 0, 1, 2, 4, 5, 6, 7, 10, 130

CODES = e.table({
    OTHER: (e.HeadwaterError, e.ForeignCommit),
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
    LEDGER: (e.Truncated, e.Halted),
    DUTY: (e.DutyFailed,),
})  # fmt: skip


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return INTERRUPTED
    if isinstance(error, PermissionError | FileNotFoundError):
        return INPUT  # a file or directory that the user has named
    return e.row_of(CODES, error) if isinstance(error, HeadwaterError) else OTHER
