"""What the group protocols have in common: how they refuse, what they want stored, what they know of topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from headwater.errors import Halted


class GroupError(Exception):
    """A request that a group refuses. The code is the name of one of Kafka's error codes."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message


class Change(msgspec.Struct, frozen=True):
    """What has to be in the ledger before any answer that was given after it. A head of `None` has not changed."""

    head: bytes | None
    put: dict[str, bytes]
    drop: tuple[str, ...]

    def then(self, later: Change) -> Change:
        """This change and a later one as one."""
        put = {name: blob for name, blob in self.put.items() if name not in later.drop} | later.put
        drop = dict.fromkeys((*self.drop, *later.drop))
        return Change(
            later.head if later.head is not None else self.head, put, tuple(name for name in drop if name not in put)
        )


class Stored(Protocol):
    """What lies in the ledger says first in which format it is."""

    @property
    def format(self) -> int:
        """The number of the format."""


_S = TypeVar("_S", bound=Stored)


def decoded(decoder: msgspec.msgpack.Decoder[_S], data: bytes, known: int) -> _S:
    """What some bytes in the ledger stand for; halts on what this version does not know."""
    try:
        stored = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Halted(f"a group in the ledger cannot be read by this version: {error}; upgrade this process") from error
    if stored.format != known:
        raise Halted(f"a group of format {stored.format} in the ledger; this version knows {known}: upgrade it")
    return stored


class Topics(Protocol):
    """The topics of the cluster, as a group sees them."""

    @property
    def version(self) -> int:
        """Rises when any topic, its number of partitions or who may know of it changes."""

    def get(self, name: str) -> tuple[uuid.UUID, int] | None:
        """A topic's id and how many partitions it has."""

    def names(self) -> Iterable[str]:
        """All topics."""

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic that is there."""

    def visible(self, principal: str, host: str, names: frozenset[str]) -> frozenset[str]:
        """Those of some topics that somebody may know of."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request that had to wait."""

    token: object
    answer: object
