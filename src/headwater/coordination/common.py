"""What the group protocols share: errors, changes to store, and the view of topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from headwater.errors import Halted


class GroupError(Exception):
    """A group refuses a request. The code is the name of one of Kafka's error codes."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message


class Change(msgspec.Struct, frozen=True):
    """What must be in the ledger before any later answer is sent. A head of `None` has not changed."""

    head: bytes | None
    put: dict[str, bytes]
    drop: tuple[str, ...]

    def then(self, later: Change) -> Change:
        """This change and a later one, merged."""
        put = {name: blob for name, blob in self.put.items() if name not in later.drop} | later.put
        drop = dict.fromkeys((*self.drop, *later.drop))
        return Change(
            later.head if later.head is not None else self.head, put, tuple(name for name in drop if name not in put)
        )


class Stored(Protocol):
    """A stored value. Its first field is the number of its format."""

    @property
    def format(self) -> int:
        """The number of the format."""


_S = TypeVar("_S", bound=Stored)


def decoded(decoder: msgspec.msgpack.Decoder[_S], data: bytes, known: int) -> _S:
    """Decode a stored value. Raises `Halted` if this version does not know its format."""
    try:
        stored = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Halted(f"a group in the ledger cannot be read by this version: {error}; upgrade this process") from error
    if stored.format != known:
        raise Halted(f"a group in the ledger has format {stored.format}; this version knows {known}: upgrade it")
    return stored


class Topics(Protocol):
    """The topics of the cluster, as a group sees them."""

    @property
    def version(self) -> int:
        """Rises when a topic, its number of partitions, or the rules about who may describe it change."""

    def get(self, name: str) -> tuple[uuid.UUID, int] | None:
        """A topic's id and number of partitions. `None` if the topic does not exist."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic. `None` if the topic does not exist."""

    def visible(self, principal: str, host: str, names: frozenset[str]) -> frozenset[str]:
        """The topics among `names` that a principal may describe."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request that had to wait."""

    token: object
    answer: object
