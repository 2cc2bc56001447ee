"""One tree of errors. Each kind says what the caller must do: retry, fix the input, or give up.

An error that leaves a package of `headwater` (a room) has a kind of this file. A room may refine a kind for itself.
Codes are not here: each server has a table with a row for every kind (`broker/errors.py`, `gateway/problems.py`,
`gateway/flight/errors.py`, `cli/errors.py`). `docs/reference/errors.md` shows the tables side by side.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, TypeVar

_Row = TypeVar("_Row")

INSTEAD_OF_A_COMMIT = (
    "Only Headwater writes a topic's table: to add rows, produce to the topic or use `headwater table append`; "
    "to change or delete rows, copy them to a table of your own"
)
"""What to do instead of a commit to a topic's table."""


class HeadwaterError(Exception):
    """The base of all errors. The message says what happened, to what, and what to do."""

    action: ClassVar[Literal["retry", "fix", "give up"]] = "give up"


def table(groups: Mapping[_Row, Iterable[type[HeadwaterError]]]) -> Mapping[type[HeadwaterError], _Row]:
    """A server's table from the kinds of each row. A kind has one row."""
    found: dict[type[HeadwaterError], _Row] = {}
    for row, kinds in groups.items():
        for kind in kinds:
            if found.setdefault(kind, row) is not row:
                raise ValueError(f"{kind.__name__} has two rows")
    return found


def row_of(table: Mapping[type[HeadwaterError], _Row], error: HeadwaterError) -> _Row:
    """The row of an error in a server's table: that of its kind, which is the first of its classes with a row."""
    return next(table[kind] for kind in type(error).__mro__ if kind in table)


# --- retry -------------------------------------------------------------------------------------


class Retriable(HeadwaterError):
    """The same call may succeed later."""

    action = "retry"


class StoreUnavailable(Retriable):
    """A ledger or object store did not do what it was asked to do. Nothing was changed."""


class StoreFull(StoreUnavailable):
    """No space left in the store. Nothing was changed."""


class OutcomeUnknown(Retriable):
    """A write may or may not have taken effect. Only an idempotent retry resolves the doubt."""


class Overloaded(Retriable):
    """A limit of queued work is reached."""


class TooOften(Retriable):
    """The caller asks too often, or has failed to log in too often."""


class QuotaExceeded(Retriable):
    """The client has used up its quota. It may try again after the throttle time."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long the client must be silent."""


class EpochLost(Retriable):
    """The process's epoch was fenced, or a checkpoint skipped the results. The process takes a new epoch."""


class NotReady(Retriable):
    """The process has not caught up with the metadata that it needs, or is shutting down."""


class NoEngine(Retriable):
    """Every place for queries is taken, or the engine's process died. The same query may work in a moment."""


class SnapshotGone(Retriable):
    """A file or an object of a query's snapshot was deleted while it was read. Take a new snapshot."""


class RegistryUnavailable(Retriable):
    """A schema registry does not answer, or refuses the caller. Records are settled without typed values meanwhile."""


# --- fix the input -------------------------------------------------------------------------------


class BadInput(HeadwaterError):
    """The request can never succeed as it is."""

    action = "fix"


class ConfigError(BadInput):
    """A setting is unknown, malformed or out of range."""


class MissingExtra(ConfigError):
    """A part of Headwater is used whose libraries are not installed."""


class InvalidName(BadInput):
    """The name is not valid for a topic."""


class InvalidPartitions(BadInput):
    """The number of partitions is not valid for the topic."""


class CorruptFrame(BadInput):
    """Bytes on a connection are not a Kafka frame."""


class TooManyItems(CorruptFrame):
    """The lists of a request have more elements than `limits.request_items` allows."""


class CorruptBatch(BadInput):
    """A record batch fails its checks."""


RecordErrors = tuple[tuple[int, str], ...]
"""The invalid records of a batch: the position of each in the batch, and the reason."""


class InvalidRecord(CorruptBatch):
    """The batch arrived as it was sent, but a client may not send such a batch."""

    records: RecordErrors = ()
    opened = 0
    """The bytes that were opened to find that out."""


class InvalidTimestamp(BadInput):
    """A record's timestamp is too far from the broker's clock for this topic."""

    records: RecordErrors = ()
    opened = 0
    """As in `InvalidRecord`."""


class UnsupportedBatch(BadInput):
    """A record batch in a format that is no longer written (magic 0 or 1), or with an unknown codec."""


class TooLarge(BadInput):
    """A record batch is larger than its topic or the broker allows, compressed or uncompressed."""


class OpensTooLarge(TooLarge):
    """A record batch decompresses to more bytes than allowed."""


class OffsetOutOfRange(BadInput):
    """The offset is not in the log."""

    def __init__(self, message: str, *, partition: int | None = None, start: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.partition = partition
        """The partition, if the error says what it has: the offsets from `start` to `end`."""
        self.start = start
        self.end = end


class BadSchema(BadInput):
    """A schema is malformed, too large, or refers to what it was not given. The message names the place."""


class BadValue(BadInput):
    """A value does not fit its schema. The message names the place."""


class NotFound(BadInput):
    """A named thing does not exist."""


class NoRecord(NotFound):
    """No record has this key, or the offset has no record. The topic exists."""


class Exists(BadInput):
    """A thing of that name exists already. The message says what kind of thing."""


class LimitReached(BadInput):
    """The cluster may not have that many of a thing. The message names the limit."""


class InternalTopic(BadInput):
    """An internal topic cannot be changed."""


class CompactedTopic(BadInput):
    """Records of a compacted topic are not deleted by their offsets."""


class Conflict(BadInput):
    """The present state is not what the request expected. Nothing was changed. Look at it, then decide anew."""

    def __init__(self, message: str, present: Mapping[int, int] | None = None, version: int | None = None) -> None:
        super().__init__(message)
        self.present: Mapping[int, int] = dict(present or {})
        """By partition, where the next record goes; the partitions whose expected offset was another one."""
        self.version = version
        """The newest version of the table, if another one was expected."""


class Mirrored(BadInput):
    """A link copies the topic, and no client writes to it until it is promoted. Nothing was changed."""


class SchemaReason(enum.Enum):
    """Why the schema registry refused a request."""

    NO_SUBJECT = enum.auto()
    NO_VERSION = enum.auto()
    NO_SCHEMA = enum.auto()
    SUBJECT_DELETED = enum.auto()
    """It is deleted already; `permanent` removes it."""
    SUBJECT_NOT_DELETED = enum.auto()
    """It must be deleted before it is deleted permanently."""
    VERSION_DELETED = enum.auto()
    VERSION_NOT_DELETED = enum.auto()
    NO_COMPATIBILITY = enum.auto()
    """The subject has no compatibility level of its own."""
    NO_MODE = enum.auto()
    """The subject has no mode of its own."""
    INCOMPATIBLE = enum.auto()
    BAD_SCHEMA = enum.auto()
    BAD_VERSION = enum.auto()
    BAD_COMPATIBILITY = enum.auto()
    BAD_MODE = enum.auto()
    NOT_PERMITTED = enum.auto()
    """The mode of the subject, or a limit, does not allow it."""
    REFERENCED = enum.auto()
    """Other schemas refer to it."""
    BAD_SUBJECT = enum.auto()
    TOO_LARGE = enum.auto()


class SchemaRefused(BadInput):
    """The schema registry refused a request. Nothing was changed."""

    def __init__(self, reason: SchemaReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StatementRefused(BadInput):
    """A statement that is not run: it does more than read, cannot be parsed, or names what the caller may not see."""


class QueryFailed(BadInput):
    """The engine could not answer: a value that cannot be cast, a column that does not exist, a division by zero."""


class QueryLimit(BadInput):
    """A query went beyond one of its limits. The message names the limit and how to raise it."""


class QueryCancelled(BadInput):
    """The query was cancelled."""


class NotAuthenticated(BadInput):
    """A log-in is refused, or is needed. The message is sent to the client."""

    def __init__(self, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge
        """Over HTTP, the schemes that are accepted."""


# --- give up -----------------------------------------------------------------------------------


class NotAllowed(HeadwaterError):
    """The caller is not known, or may not do this. An operator can change that."""


class ClientError(HeadwaterError):
    """A call to another server failed: it refused the call, or its answer is not understood."""


class Damaged(HeadwaterError):
    """A stored object does not have the content that was written. Run `headwater doctor`."""


class ObjectMissing(HeadwaterError):
    """No object has this path."""


class ForeignCommit(HeadwaterError):
    """Another writer changed the data of a topic's table. The follower commits nothing until an operator repairs it."""


class Truncated(HeadwaterError):
    """The ledger no longer has the requested records. The caller starts from a checkpoint."""


class Halted(HeadwaterError):
    """A replica cannot continue: an unknown command, another digest, a newer level."""


class LedgerWentBack(Halted):
    """The ledger lacks records that it had. Nothing may be written before an operator has decided."""


class DutyFailed(HeadwaterError):
    """A duty died without which the process cannot continue. The log has the traceback."""
