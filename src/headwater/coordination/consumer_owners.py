"""Who holds which partition of a consumer group, owned or about to be given up. One at most, always."""

from __future__ import annotations

import uuid

from headwater.coordination.consumer_members import Member
from headwater.errors import Halted


class Owners:
    """The holder of each partition that has one."""

    def __init__(self) -> None:
        self._holders: dict[uuid.UUID, dict[int, str]] = {}

    def __repr__(self) -> str:
        return f"Owners({sum(map(len, self._holders.values()))} partitions)"

    def is_free(self, topic: uuid.UUID, partition: int) -> bool:
        """Whether no member holds it."""
        holders = self._holders.get(topic)
        return holders is None or partition not in holders

    def move(self, before: Member | None, after: Member | None) -> None:
        """A member's holdings have changed; it is new without a before, and gone without an after."""
        if (
            before is not None
            and after is not None
            and (before.assigned, before.revoking) == (after.assigned, after.revoking)
        ):
            return
        if before is not None:
            self._release(before)
        if after is not None:
            self._claim(after)

    def _release(self, member: Member) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic, partitions in assignment.items():
                holders = self._holders[topic]
                for partition in partitions:
                    del holders[partition]
                if not holders:
                    del self._holders[topic]

    def _claim(self, member: Member) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic, partitions in assignment.items():
                holders = self._holders.setdefault(topic, {})
                for partition in partitions:
                    holder = holders.setdefault(partition, member.member_id)
                    if holder != member.member_id:
                        raise Halted(
                            f"partition {partition} of topic {topic} is held by {holder} and by {member.member_id}: "
                            "the group is not what was stored; run `headwater doctor`"
                        )
