"""One tree of errors. Every kind says what its caller must do: try again, mend the input, or give up."""

from __future__ import annotations

from typing import ClassVar, Literal


class HeadwaterError(Exception):
    """What happened, to what, and what to do about it."""

    action: ClassVar[Literal["retry", "fix", "give up"]] = "give up"


# --- try again ---------------------------------------------------------------------------------


class Retriable(HeadwaterError):
    """Nothing was changed, or it is known what was; the same call may succeed later."""

    action = "retry"


class StoreUnavailable(Retriable):
    """A ledger or object store did not do what it was asked; for certain nothing was changed."""


class StoreFull(StoreUnavailable):
    """No space left in the store. Nothing was changed."""


class OutcomeUnknown(Retriable):
    """A write may or may not have happened. Only an idempotent repetition settles it."""


class Overloaded(Retriable):
    """A limit of queued work is reached."""


class EpochLost(Retriable):
    """This process's epoch was fenced, or results were jumped over by a checkpoint: take a new one."""


class NotReady(Retriable):
    """The process has not caught up with the metadata it needs, or is shutting down."""


# --- mend the input ------------------------------------------------------------------------------


class BadInput(HeadwaterError):
    """The request can never succeed as it stands."""

    action = "fix"


class ConfigError(BadInput):
    """A setting is unknown, malformed or out of range."""


class CorruptFrame(BadInput):
    """Bytes on a connection are not a Kafka frame."""


class CorruptBatch(BadInput):
    """A record batch fails its checks."""


class UnsupportedBatch(BadInput):
    """A record batch in a format that is no longer written (magic 0 or 1), or with an unknown codec."""


class BatchTooLarge(BadInput):
    """A record batch is larger than its topic or the broker allows, compressed or opened."""


class NotFound(BadInput):
    """A named thing does not exist."""


# --- give up -----------------------------------------------------------------------------------


class CorruptObject(HeadwaterError):
    """A stored object does not hold what was written. Run `headwater doctor`."""


class Truncated(HeadwaterError):
    """The ledger no longer holds the records asked for: start from a checkpoint."""


class Halted(HeadwaterError):
    """A replica met a record it must not guess about: unknown command, other digest, newer level."""
