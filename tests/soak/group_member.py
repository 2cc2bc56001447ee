"""A cheap member of a classic group: raw requests, commits that only count up, a look at every hand-over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection, connect
from headwater.errors import HeadwaterError

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
SESSION_MS = 10_000
BEAT_S = 2.0
PAUSE_S = 0.3

_AGAIN = {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.unknown_member_id}
"""What sends a member back to join."""
_ELSEWHERE = {
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.request_timed_out,
}
"""What sends it to look for the coordinator."""


class Rejoin(Exception):
    """The group is about to begin anew."""


class Moved(Exception):
    """The coordinator is somebody else, or not to be had right now."""


@dataclass(slots=True)
class Truth:
    """What is known of one group: how far its offsets must be, and how far they can be."""

    group: str
    topic: str
    partitions: int
    at_least: dict[int, int] = field(default_factory=dict)
    at_most: dict[int, int] = field(default_factory=dict)
    commits: int = 0
    hand_overs: int = 0
    violations: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Errors that a member should never get."""

    def began(self, partition: int, offset: int) -> None:
        self.at_most[partition] = max(offset, self.at_most.get(partition, 0))

    def stands(self, partition: int, offset: int) -> None:
        self.at_least[partition] = max(offset, self.at_least.get(partition, 0))

    def look(self, partition: int, offset: int, floor: int) -> None:
        """A new owner was told an offset; `floor` is what stood before it asked."""
        if not floor <= offset <= self.at_most.get(partition, 0):
            self.violations.append(
                f"{self.group}/{partition}: told {offset}, must be {floor} to {self.at_most.get(partition, 0)}"
            )
        self.stands(partition, offset)


class Member:
    """One member; `run` is its life until it is cancelled (a crash) or leaves."""

    def __init__(self, addresses: list[str], truth: Truth, name: str, pick: Callable[[list[str]], str]) -> None:
        self._addresses = addresses
        self._truth = truth
        self._name = name
        self._pick = pick
        self._connection: Connection | None = None
        self._id = ""
        self._generation = -1
        self.assigned: list[int] | None = None
        """None while it is not part of a stable group."""
        self.generation = -1

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._take_part()
                except Rejoin:
                    continue
                except (Moved, HeadwaterError):
                    await self._hang_up()
                    await asyncio.sleep(PAUSE_S)  # a client's pause before it looks again
                finally:
                    self.assigned = None
        finally:
            await self._hang_up()

    async def crash(self) -> None:
        """Nothing is left to do once `run` is over: it has hung up."""

    async def leave(self) -> None:
        """Say good-bye; call it once `run` is over."""
        try:
            row = {"member_id": self._id, "group_instance_id": None, "reason": "soak"}
            await self._ask(LEAVE, group_id=self._truth.group, members=[row])
        except (Moved, Rejoin, HeadwaterError):
            pass  # its session will end
        finally:
            await self._hang_up()

    # --- one generation ------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        joined = await self._join()
        self._generation = joined.generation_id
        plan: Mapping[str, list[int]] = {}
        if joined.leader == self._id:
            names = sorted(member.member_id for member in joined.members)
            plan = {n: list(range(i, self._truth.partitions, len(names))) for i, n in enumerate(names)}
        rows = [{"member_id": n, "assignment": json.dumps(parts).encode()} for n, parts in plan.items()]
        synced = await self._ask(SYNC, **self._who(), assignments=rows, protocol_type="consumer", protocol_name="soak")
        assigned: list[int] = json.loads(bytes(synced.assignment) or b"[]")
        ends = await self._take_over(assigned)
        self.assigned, self.generation = assigned, self._generation
        while True:
            await self._ask(HEARTBEAT, **self._who())
            for partition in assigned:
                ends[partition] += 1
                self._truth.began(partition, ends[partition])
            if assigned:
                await self._commit(ends)
            await asyncio.sleep(BEAT_S)  # the pace of its heartbeats

    async def _join(self) -> Any:
        protocols = [{"name": "soak", "metadata": b""}]
        times = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS}
        while True:
            answer = await self._request(
                JOIN,
                group_id=self._truth.group, member_id=self._id, group_instance_id=None, protocol_type="consumer",
                protocols=protocols, **times,
            )  # fmt: skip
            if answer.error_code is ErrorCode.member_id_required:
                self._id = answer.member_id
                continue
            self._judge(answer.error_code)
            self._id = answer.member_id
            return answer

    async def _take_over(self, assigned: list[int]) -> dict[int, int]:
        floors = {p: self._truth.at_least.get(p, 0) for p in assigned}
        topics = [{"name": self._truth.topic, "partition_indexes": assigned}]
        if not assigned:
            return {}
        asked = {"group_id": self._truth.group, "topics": topics, "member_id": None, "member_epoch": -1}
        connection = await self._coordinator()
        answer = await connection._request(OFFSET_FETCH, 8, SESSION_MS / 1000, {"groups": [asked]})
        self._judge(answer.groups[0].error_code)
        ends = {}
        for row in answer.groups[0].topics[0].partitions:
            self._judge(row.error_code)
            ends[row.partition_index] = max(row.committed_offset, 0)
            self._truth.look(row.partition_index, ends[row.partition_index], floors[row.partition_index])
        self._truth.hand_overs += 1
        return ends

    async def _commit(self, ends: Mapping[int, int]) -> None:
        parts = [
            {"partition_index": p, "committed_offset": offset, "committed_metadata": self._name}
            for p, offset in ends.items()
        ]
        connection = await self._coordinator()
        fields = {
            "group_id": self._truth.group, "member_id": self._id, "generation_id_or_member_epoch": self._generation,
            "topics": [{"name": self._truth.topic, "partitions": parts}],
        }  # fmt: skip
        answer = await connection._request(OFFSET_COMMIT, 9, SESSION_MS / 1000, fields)
        for row in answer.topics[0].partitions:
            self._judge(row.error_code)
            self._truth.stands(row.partition_index, ends[row.partition_index])
        self._truth.commits += 1

    # --- requests ------------------------------------------------------------------------------------

    def _who(self) -> dict[str, Any]:
        named = {"group_id": self._truth.group, "member_id": self._id, "group_instance_id": None}
        return {**named, "generation_id": self._generation}

    async def _ask(self, api_key: int, **fields: Any) -> Any:
        answer = await self._request(api_key, **fields)
        self._judge(answer.error_code)
        return answer

    async def _request(self, api_key: int, **fields: Any) -> Any:
        connection = await self._coordinator()
        return await connection.request(api_key, within=4 * SESSION_MS / 1000, **fields)

    def _judge(self, code: ErrorCode) -> None:
        if code is ErrorCode.none:
            return
        if code is ErrorCode.unknown_member_id:
            self._id = ""
        if code in _AGAIN:
            raise Rejoin
        if code not in _ELSEWHERE:
            self._truth.strange.append(f"{self._name}: {code.name}")
        raise Moved

    async def _coordinator(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        host, port = self._pick(self._addresses).rsplit(":", 1)
        asking = await connect(host, int(port), self._name)
        try:
            answer = await asking.request(FIND_COORDINATOR, key_type=0, coordinator_keys=[self._truth.group])
        finally:
            await asking.close()
        found = answer.coordinators[0]
        if found.error_code is not ErrorCode.none:
            raise Moved
        self._connection = await connect(found.host, found.port, self._name)
        return self._connection

    async def _hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
