"""The operations that the ledger needs of etcd, as plain data, and the protocol of a client.

`ledger/etcd/transport.py` talks to real servers. The simulation has a model of etcd in memory for the same ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from headwater.errors import HeadwaterError


class Compacted(HeadwaterError):
    """The requested revision is compacted. The caller reads the current state instead."""

    action = "retry"


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its value, with the revisions at which it was created and last changed."""

    key: bytes
    value: bytes
    created: int
    modified: int


@dataclass(frozen=True, slots=True)
class Get:
    """Keys from `key` up to, not including, `end`; or `key` alone. In the order of keys."""

    key: bytes
    end: bytes = b""
    limit: int = 0
    revision: int = 0
    """The revision to read; 0 for the current one."""


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove keys from `key` up to, not including, `end`; or `key` alone."""

    key: bytes
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on one key's revisions. A key that does not exist has revision 0."""

    key: bytes
    field: Literal["created", "modified"]
    relation: Literal["=", "<"]
    revision: int


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a `Get`. `more` is true if the limit cut it off."""

    pairs: Sequence[Pair]
    more: bool
    revision: int
    """The revision of the store at the read."""


@dataclass(frozen=True, slots=True)
class Transacted:
    """The result of a transaction: which branch was taken, and the results of its `Get`s in order."""

    succeeded: bool
    revision: int
    found: Sequence[Found]


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts received by a watch, in the order of their revisions. Later messages have newer revisions."""

    pairs: Sequence[Pair]


class EtcdClient(Protocol):
    """A client of etcd.

    Reads are linearizable. An operation that certainly had no effect raises `StoreUnavailable`; one that may have had,
    or may still have, an effect raises `OutcomeUnknown`. Only reads and `put` are retried on other members.
    """

    async def get(self, get: Get) -> Found:
        """Read keys. Raises `Compacted` if the requested revision is compacted."""

    async def transact(
        self,
        compares: Sequence[Compare],
        success: Sequence[Get | Put | Delete],
        failure: Sequence[Get] = (),
    ) -> Transacted:
        """Execute `success` if all comparisons hold, else `failure`. It is atomic, with one new revision."""

    async def put(self, put: Put) -> int:
        """Put a key that may be put twice, and return the revision. Every member is tried, a short time each."""

    def watch(self, key: bytes, end: bytes, start: int) -> AsyncIterator[Changes]:
        """All puts in a range of keys from a revision on. Raises `Compacted`, or `StoreUnavailable` when it ends."""

    async def compact(self, revision: int) -> None:
        """Compact the history before a revision. An older revision than before changes nothing."""

    async def close(self) -> None:
        """Release sockets. Idempotent."""
