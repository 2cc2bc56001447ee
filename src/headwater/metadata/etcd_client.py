"""What the etcd ledger asks of etcd: a few operations as plain data, and who carries them out.

`etcd_grpc` speaks to real servers. The simulation brings a model of etcd in memory, so that the same ledger runs on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from headwater.errors import HeadwaterError


class Compacted(HeadwaterError):
    """The history asked for is no longer there: read the present instead."""

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
    """Keys from `key` up to but without `end`, or `key` alone, in the order of keys."""

    key: bytes
    end: bytes = b""
    limit: int = 0
    revision: int = 0
    """As things were at a revision; 0 for now."""


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove keys from `key` up to but without `end`, or `key` alone."""

    key: bytes
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on one key's revisions. A key that is not there has revision 0."""

    key: bytes
    field: Literal["created", "modified"]
    relation: Literal["=", "<"]
    revision: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a `Get` gave. `more` if its limit left some out."""

    pairs: Sequence[Pair]
    more: bool
    revision: int
    """Of the store when this was read."""


@dataclass(frozen=True, slots=True)
class Transacted:
    """How a transaction ended: which branch was taken, and what its `Get`s gave, in order."""

    succeeded: bool
    revision: int
    found: Sequence[Found]


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts as a watch tells of them, in the order of their revisions. No later message has an older revision."""

    pairs: Sequence[Pair]


class EtcdClient(Protocol):
    """Whoever carries the operations out.

    Everything that reads is linearizable. What fails for certain without an effect raises `StoreUnavailable`, what may
    have had or may still have one raises `OutcomeUnknown`. Only what reads is tried again elsewhere.
    """

    async def get(self, get: Get) -> Found:
        """Read. Raises `Compacted` if the revision asked for is."""

    async def transact(
        self,
        compares: Sequence[Compare],
        success: Sequence[Get | Put | Delete],
        failure: Sequence[Get] = (),
    ) -> Transacted:
        """If all comparisons hold do one list of operations, else the other; atomically, under one new revision."""

    def watch(self, key: bytes, end: bytes, start: int) -> AsyncIterator[Changes]:
        """Every put in a range of keys from a revision on. Raises `Compacted`, or `StoreUnavailable` when it ends."""

    async def compact(self, revision: int) -> None:
        """Forget history before a revision. Less than was forgotten already changes nothing."""

    async def close(self) -> None:
        """Release sockets. Idempotent."""
