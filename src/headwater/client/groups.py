"""Groups and their committed offsets: calls for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.errors import ProtocolError, check
from headwater.client.model import Group, GroupListing, GroupMember
from headwater.client.routing import GROUP_KEY, Repeat, Router

LIST_GROUPS, DESCRIBE_GROUPS, DELETE_GROUPS = 16, 15, 42
OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
NAMES = 9
"""The last version in which requests for offsets have topic names instead of ids."""


def _only(answers: Sequence[Any]) -> Any:
    if len(answers) != 1:
        raise ProtocolError(f"{len(answers)} answers to a request for one group")
    return answers[0]


class GroupCalls(Router):
    """Calls about groups. Each goes to the coordinator of the group."""

    async def _ask(self, group: str, api_key: int, **fields: Any) -> Any:
        connection = await self.coordinator(group, GROUP_KEY)
        return await connection.request(api_key, within=self.settings.request_s, **fields)

    async def list_groups(self) -> list[GroupListing]:
        """All groups of the cluster, by name."""

        async def attempt() -> list[GroupListing]:
            await self.load_metadata([])
            found: dict[str, GroupListing] = {}
            for connection in await self.all_brokers():
                response = await connection.request(
                    LIST_GROUPS, within=self.settings.request_s, states_filter=[], types_filter=[]
                )
                check(response.error_code, "the list of groups")
                for listed in response.groups:
                    state, kind = getattr(listed, "group_state", ""), getattr(listed, "group_type", "")
                    found[listed.group_id] = GroupListing(listed.group_id, state, kind, listed.protocol_type)
            return sorted(found.values(), key=lambda group: group.name)

        return await self.retrying(attempt)

    async def describe_group(self, group: str) -> Group:
        """A group and its members."""

        async def attempt() -> Group:
            response = await self._ask(group, DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False)
            answer = _only(response.groups)
            check(answer.error_code, f"group {group!r}", getattr(answer, "error_message", None))
            if answer.group_state == "Dead":
                check(ErrorCode.group_id_not_found, f"group {group!r}")
            members = [
                GroupMember(m.member_id, getattr(m, "group_instance_id", None), m.client_id, m.client_host)
                for m in answer.members
            ]
            return Group(group, answer.group_state, answer.protocol_type, answer.protocol_data, tuple(members))

        return await self.retrying(attempt)

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""

        async def attempt() -> None:
            response = await self._ask(group, DELETE_GROUPS, groups_names=[group])
            check(_only(response.results).error_code, f"group {group!r}")

        await self.retrying(attempt, repeat=Repeat.IF_NOT_DONE)

    async def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by topic and partition."""

        async def attempt() -> dict[tuple[str, int], int]:
            wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
            response = await self._ask(
                group, OFFSET_FETCH, newest=NAMES, group_id=group, topics=None, groups=[wanted], require_stable=False
            )
            answer = _only(response.groups) if hasattr(response, "groups") else response
            check(answer.error_code, f"offsets of group {group!r}")
            return {
                (topic.name, partition.partition_index): partition.committed_offset
                for topic in answer.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }

        return await self.retrying(attempt)

    async def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group that has no members."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            entry = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            topics.setdefault(topic, []).append(entry)

        async def attempt() -> None:
            response = await self._ask(
                group,
                OFFSET_COMMIT,
                newest=NAMES,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            )
            self._check_partitions(group, response)

        await self.retrying(attempt)

    async def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        """Delete committed offsets of a topic that the members of the group do not read."""

        async def attempt() -> None:
            wanted = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
            response = await self._ask(group, OFFSET_DELETE, group_id=group, topics=wanted)
            check(response.error_code, f"offsets of group {group!r}")
            self._check_partitions(group, response)

        await self.retrying(attempt)

    @staticmethod
    def _check_partitions(group: str, response: Any) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                where = f"offset of group {group!r} for partition {partition.partition_index} of topic {topic.name!r}"
                check(partition.error_code, where)
