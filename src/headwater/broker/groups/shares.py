"""Shares of the memory for groups: of a member in its group, of a group, and of the caller who made a group.

Every broker keeps what members bring, and so do the ledger and each checkpoint. A join above a share is refused with
GROUP_MAX_SIZE_REACHED and changes nothing. Members that are there already stay.
"""

from __future__ import annotations

from collections import Counter

from headwater.coordination.common import GroupError
from headwater.security.logins import network_of
from headwater.settings.limits import Limits
from headwater.shares import fits
from headwater.state.cluster.access import ANONYMOUS


class GroupShares:
    """Counts the bytes of the groups that one broker coordinates."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._groups: dict[str, tuple[str, int]] = {}
        """By group, who made it, and its bytes. A group that came from the ledger belongs to the next who joins."""
        self._callers: Counter[str] = Counter()
        self.total = 0

    def __repr__(self) -> str:
        return f"<GroupShares: {self.total} bytes of {len(self._groups)} groups>"

    @property
    def largest(self) -> int:
        """The bytes of the groups of the caller who has most."""
        return max(self._callers.values(), default=0)

    def check(self, group: str, caller: str, brought: int, before: int = 0) -> None:
        """Refuse what a member brings to a group if a share would be exceeded. `before`: what that replaces."""
        most = self._limits.group_member_bytes
        if brought > most:
            raise _too_large(f"a member of {brought} bytes", most, "group_member_bytes")
        self.check_group(group, caller, brought - before)

    def check_group(self, group: str, caller: str, more: int) -> None:
        """Refuse so many further bytes of a group if a share would be exceeded."""
        if more <= 0:
            return
        limits = self._limits
        maker, size = self._groups.get(group, ("", 0))
        maker = maker or caller
        if size + more > limits.group_bytes:
            raise _too_large(f"a group of {size + more} bytes", limits.group_bytes, "group_bytes")
        if self.total + more > limits.groups_bytes:
            raise _too_large("groups of this broker", limits.groups_bytes, "groups_bytes")
        mine = self._callers[maker] + more
        if not fits(mine, self.total + more, limits.caller_groups_bytes, limits.groups_bytes):
            raise _too_large(f"groups of {maker}", limits.caller_groups_bytes, "caller_groups_bytes")

    def note(self, group: str, size: int, caller: str = "") -> None:
        """Note the present size of a group, and who made it, if that is not known yet."""
        maker, before = self._groups.get(group, ("", 0))
        self._count(maker, -before)
        self._groups[group] = (maker or caller, size)
        self._count(maker or caller, size)

    def forget(self, group: str) -> None:
        """A group is in memory no more."""
        maker, size = self._groups.pop(group, ("", 0))
        self._count(maker, -size)

    def _count(self, maker: str, size: int) -> None:
        self.total += size
        if maker:
            self._callers[maker] += size
            if not self._callers[maker]:
                del self._callers[maker]


def caller_of(principal: str, host: str) -> str:
    """Whose share it is: the user's, or that of the address of one who has not logged in."""
    return principal if principal != ANONYMOUS else network_of(host)


def _too_large(what: str, limit: int, setting: str) -> GroupError:
    return GroupError("group_max_size_reached", f"{what}: the limit is {limit} bytes (limits.{setting})")
