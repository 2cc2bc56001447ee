"""One tree of errors. Each kind says what the caller must do: retry, fix the input, or give up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

INSTEAD_OF_A_COMMIT = (
    "Only Headwater writes a topic's table: to add rows, produce to the topic or use `headwater table append`; "
    "to change or delete rows, copy them to a table of your own"
)
"""What to do instead of a commit to a topic's table."""


class HeadwaterError(Exception):
    """The base of all errors. The message says what happened, to what, and what to do."""

    action: ClassVar[Literal["retry", "fix", "give up"]] = "give up"


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


class EpochLost(Retriable):
    """The process's epoch was fenced, or a checkpoint skipped the results. The process takes a new epoch."""


class NotReady(Retriable):
    """The process has not caught up with the metadata that it needs, or is shutting down."""


# --- fix the input -------------------------------------------------------------------------------


class BadInput(HeadwaterError):
    """The request can never succeed as it is."""

    action = "fix"


class ConfigError(BadInput):
    """A setting is unknown, malformed or out of range."""


class CorruptFrame(BadInput):
    """Bytes on a connection are not a Kafka frame."""


class TooManyItems(CorruptFrame):
    """The lists of a request have more elements than `limits.request_items` allows."""


class CorruptBatch(BadInput):
    """A record batch fails its checks."""


class UnsupportedBatch(BadInput):
    """A record batch in a format that is no longer written (magic 0 or 1), or with an unknown codec."""


class BatchTooLarge(BadInput):
    """A record batch is larger than its topic or the broker allows, compressed or uncompressed."""


class OpensTooLarge(BatchTooLarge):
    """A record batch decompresses to more bytes than allowed."""


class BadSchema(BadInput):
    """A schema is malformed, too large, or refers to what it was not given. The message names the place."""


class BadValue(BadInput):
    """A value does not fit its schema. The message names the place."""


class NotFound(BadInput):
    """A named thing does not exist."""


class NoRecord(NotFound):
    """No record has this key, or the offset has no record. The topic exists."""


class Conflict(BadInput):
    """The present state is not what the request expected. Nothing was changed. Look at it, then decide anew."""

    def __init__(self, message: str, present: Mapping[int, int] | None = None, version: int | None = None) -> None:
        super().__init__(message)
        self.present: Mapping[int, int] = dict(present or {})
        """By partition, where the next record goes; the partitions whose expected offset was another one."""
        self.version = version
        """The newest version of the table, if another one was expected."""


class Mirrored(BadInput):
    """A link copies the topic, and nobody else writes to it until it is promoted. Nothing was changed."""


# --- give up -----------------------------------------------------------------------------------


class CorruptObject(HeadwaterError):
    """A stored object does not have the content that was written. Run `headwater doctor`."""


class NotAllowed(HeadwaterError):
    """The caller is not known, or may not do this. An operator can change that."""


class Truncated(HeadwaterError):
    """The ledger no longer has the requested records. The caller starts from a checkpoint."""


class Halted(HeadwaterError):
    """A replica cannot continue: an unknown command, another digest, a newer level."""
