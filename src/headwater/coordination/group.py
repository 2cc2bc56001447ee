"""The protocol of all kinds of groups. A coordinator uses groups by it only; `coordination/kinds.py` lists the kinds.

Groups are pure: requests, topics and times come in; answers and changes to store come out. Times are milliseconds of a
clock that never goes back, except `wall_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from headwater.coordination.common import Change, Reply, Topics
from headwater.settings.settings import Groups


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The sources of a group's settings."""

    settings: Groups
    """The broker's settings for groups of all kinds."""
    new_id: Callable[[], str]
    """Makes the ids of new members."""
    configs_of: Callable[[str], Mapping[str, str]]
    """The configs that are set for a group, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The member that commits offsets, according to the request."""

    member_id: str
    instance_id: str | None
    epoch: int
    """The generation or the member's epoch; negative for a commit from outside the group."""
    version: int
    """The version of the OffsetCommit request."""
    is_transactional: bool = False


class Group(Protocol):
    """One group of any kind."""

    kind: ClassVar[str]
    """The name of the kind, in the ledger and in Kafka's tools."""

    @classmethod
    def create(cls, name: str, context: GroupContext, wall_ms: int) -> Self:
        """A new group."""

    @classmethod
    def restore(cls, name: str, context: GroupContext, head: bytes, members: Mapping[str, bytes], now_ms: int) -> Self:
        """A group from its bytes in the ledger. Sessions start again."""

    @property
    def state(self) -> str:
        """The state, by the name that Kafka's tools show."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members. Only then may it be deleted, or become a group of another kind."""

    @property
    def members(self) -> Mapping[str, object]:
        """The members by id."""

    @property
    def weight(self) -> int:
        """The bytes that the members have brought."""

    @property
    def protocol_type(self) -> str | None:
        """The kind of clients of the members; `None` if that is not known."""

    def next_deadline(self) -> int | None:
        """The latest time at which `tick` must be called."""

    def tick(self, topics: Topics, now_ms: int, wall_ms: int) -> None:
        """Do what is due, such as ending the sessions of silent members."""

    def changes(self) -> Change | None:
        """The changes since the last call. They must be stored before the next answer is sent."""

    def replies(self) -> list[Reply]:
        """The answers since the last call to requests that waited."""

    def abandon(self, code: str) -> list[Reply]:
        """Give up the group in this process. Returns answers with this error code to all waiting requests."""

    def subscribed(self, topics: Topics) -> Set[str] | None:
        """The topics that the members subscribe to; `None` if that is not known."""

    def is_subscribed(self, topic: str, topics: Topics) -> bool:
        """Whether the members may be using the committed offsets of a topic."""

    def check_commit(self, commit: Commit, now_ms: int) -> None:
        """Raise a `GroupError` unless the caller may commit offsets. A member's commit may be a sign of life."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise a `GroupError` unless the caller may read committed offsets."""
