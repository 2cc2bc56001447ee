"""The holder of each partition of a consumer group: the member that owns it or is giving it up. At most one."""

from __future__ import annotations

import uuid

from headwater.coordination.consumer.members import ConsumerMember
from headwater.errors import Halted


class Owners:
    """The holder of each partition that has one."""

    def __init__(self) -> None:
        self._holders: dict[uuid.UUID, dict[int, str]] = {}

    def __repr__(self) -> str:
        return f"Owners({sum(map(len, self._holders.values()))} partitions)"

    def is_free(self, topic: uuid.UUID, partition: int) -> bool:
        """Whether no member holds a partition."""
        holders = self._holders.get(topic)
        return holders is None or partition not in holders

    def move(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Update a member's partitions. `before` is `None` for a new member, `after` for a removed one."""
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

    def _release(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic, partitions in assignment.items():
                holders = self._holders[topic]
                for partition in partitions:
                    del holders[partition]
                if not holders:
                    del self._holders[topic]

    def _claim(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic, partitions in assignment.items():
                holders = self._holders.setdefault(topic, {})
                for partition in partitions:
                    holder = holders.setdefault(partition, member.member_id)
                    if holder != member.member_id:
                        raise Halted(
                            f"partition {partition} of topic {topic} is held by {holder} and by {member.member_id}: "
                            "the stored group is damaged; run `headwater doctor`"
                        )
