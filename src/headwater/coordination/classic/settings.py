"""Settings of classic groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.coordination.group import GroupContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSettings:
    """The settings of classic groups."""

    initial_delay_ms: int
    new_member_timeout_ms: int
    max_members: int
    new_id: Callable[[], str]

    @classmethod
    def of(cls, context: GroupContext) -> ClassicSettings:
        """The settings of all classic groups of a broker."""
        return cls(
            initial_delay_ms=context.settings.initial_rebalance_delay_ms,
            new_member_timeout_ms=context.settings.new_member_timeout_ms,
            max_members=context.settings.max_members,
            new_id=context.new_id,
        )
