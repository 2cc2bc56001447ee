"""What the models of real clients share: a coordinator that they look for, requests to it, and what they read.

A model follows its client's own rules: what it does at which request with which error. The rules are read from the
client's source. A model does not read records. A partition counts as read while the client would fetch from it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients import TOPIC, Client, History, Violation
from tests.simulation.cluster import Disconnected, SimCluster

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, SYNC, CONSUMER_HEARTBEAT = 8, 9, 10, 11, 12, 14, 68
SESSION_MS = 6_000
REBALANCE_MS = 120_000
"""Longer than a run: a group that is saved by this time-out alone is a group that sticks."""
HEARTBEAT_S = 0.5
READ_S = 0.1
COMMIT_S = 0.7


@dataclass(slots=True)
class Truth:
    """What the members of one group were told and did, all together."""

    name: str
    acked: dict[int, int] = field(default_factory=dict)
    """By partition: the offset whose commit was acknowledged last."""
    open: dict[int, list[int]] = field(default_factory=dict)
    """By partition: offsets of commits without an answer. Clients have several under way, so a late one may win."""
    tried: dict[int, int] = field(default_factory=dict)
    reads: Counter[int] = field(default_factory=Counter)
    """By partition: how often a member read it."""
    assignments: int = 0

    def floor(self, partition: int) -> int:
        """The lowest offset that may be committed now."""
        return min([self.acked.get(partition, -1), *self.open.get(partition, [])])

    def begins(self, partition: int, offset: int, before: int) -> None:
        """A member begins to read where the group has committed. `before` is the floor when it asked."""
        floor = min(before, self.floor(partition))
        if not floor <= offset <= self.tried.get(partition, -1):
            raise Violation(f"group {self.name}, partition {partition}: begins at {offset}, {floor} was acknowledged")

    def commits(self, positions: Mapping[int, int]) -> None:
        """A commit is sent."""
        for partition, offset in positions.items():
            self.tried[partition] = max(offset, self.tried.get(partition, -1))
            self.open.setdefault(partition, []).append(offset)

    def answered(self, positions: Mapping[int, int], code: ErrorCode) -> None:
        """A commit is answered."""
        for partition, offset in positions.items():
            self.open[partition].remove(offset)
            if code is ErrorCode.none:
                self.acked[partition] = offset


class GroupClient(Client):
    """A member of a group, with what all clients have: a coordinator, positions, commits at intervals."""

    request_s = 30.0
    """The time-out of a request, as the client has it by default."""

    def __init__(
        self,
        cluster: SimCluster,
        rng: random.Random,
        history: History,
        truth: Truth,
        partitions: int,
        on_assigned: Callable[[GroupClient], None],
    ) -> None:
        super().__init__(cluster, rng, history)
        self.truth = truth
        self.partitions = partitions
        self.on_assigned = on_assigned
        self.stop = False
        self.coordinator: int | None = None
        self.member_id = ""
        self.epoch = -1
        """The generation or the member epoch."""
        self.positions: dict[int, int] = {}
        """The partitions that the client fetches, with the next offset of each."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] = cluster.world.loop.create_future()

    # --- tasks -------------------------------------------------------------------------------------------

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Start work of this client. A violation in it ends the client."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def run(self) -> None:
        """Live until `stop` is set."""
        self.spawn(self._read())
        self.spawn(self.live())
        while not self.stop:
            await asyncio.wait([self._failure], timeout=READ_S)
            if self._failure.done():
                break
        for task in list(self._tasks):
            task.cancel()
        if self._failure.done():
            self._failure.result()

    async def live(self) -> None:
        """The client's life in the group."""
        raise NotImplementedError

    async def _read(self) -> None:
        since = 0.0
        while True:
            await asyncio.sleep(READ_S)
            for partition in self.positions:
                self.positions[partition] += 1
                self.truth.reads[partition] += 1
            since += READ_S
            if since >= COMMIT_S and self.positions:
                since = 0.0
                self.commit(dict(self.positions))

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commit positions in the background."""
        raise NotImplementedError

    def fatal(self, request: str, code: object) -> None:
        """The client gives up with an error that its application sees."""
        raise Violation(f"group {self.truth.name}: {type(self).__name__} ends for ever: {request} got {code}")

    # --- requests ------------------------------------------------------------------------------------------

    async def send(self, node: int, key: int, version: int, within: float, **fields: Any) -> Mapping[str, Any]:
        """One request. Raises `Disconnected`, or `TimeoutError` after the client has closed the connection."""
        connection = self.connection(node)
        generation = connection.generation
        try:
            async with asyncio.timeout(within):
                answer: Mapping[str, Any] = await connection.send(key, version, **fields)
                return answer
        except TimeoutError:
            connection.broken(generation)
            raise

    async def ask_coordinator(self, key: int, version: int, within: float, **fields: Any) -> Mapping[str, Any]:
        """A request to the coordinator that the client knows."""
        if self.coordinator is None:
            raise Disconnected
        return await self.send(self.coordinator, key, version, within, **fields)

    async def find_coordinator(self) -> tuple[ErrorCode, int]:
        """Ask some broker for the coordinator."""
        fields = {"key_type": 0, "coordinator_keys": [self.truth.name]}
        found = await self.send(self.any_node(), FIND_COORDINATOR, 4, self.request_s, **fields)
        [place] = found["coordinators"]
        return place["error_code"], place["node_id"]

    async def fetch_offsets(self, partitions: list[int], version: int) -> tuple[ErrorCode, dict[int, int]]:
        """Committed offsets, with a check that they are not older than what was acknowledged before."""
        before = {p: self.truth.floor(p) for p in partitions}
        wanted = {"group_id": self.truth.name, "topics": [{"name": TOPIC, "partition_indexes": partitions}]}
        if version >= 9:
            wanted |= self.fetch_identity()
        answer = await self.ask_coordinator(OFFSET_FETCH, version, self.request_s, groups=[wanted], require_stable=True)
        [group] = answer["groups"]
        found = {}
        for topic in group["topics"]:
            for row in topic["partitions"]:
                if row["error_code"] is not ErrorCode.none:
                    self.fatal("OffsetFetch of a partition", row["error_code"])
                found[row["partition_index"]] = row["committed_offset"]
        for partition, offset in found.items():
            self.truth.begins(partition, offset, before[partition])
        return group["error_code"], found

    def fetch_identity(self) -> dict[str, Any]:
        """Whom an OffsetFetch names as its sender."""
        return {"member_id": None, "member_epoch": -1}

    async def send_commit(self, positions: Mapping[int, int], epoch: int, version: int) -> ErrorCode:
        """One OffsetCommit; the code of its first partition."""
        self.truth.commits(positions)
        rows = [{"partition_index": p, "committed_offset": offset} for p, offset in positions.items()]
        answer = await self.ask_coordinator(
            OFFSET_COMMIT,
            version,
            self.request_s,
            group_id=self.truth.name,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[{"name": TOPIC, "partitions": rows}],
        )
        code: ErrorCode = answer["topics"][0]["partitions"][0]["error_code"]
        self.truth.answered(positions, code)
        return code

    # --- the classic protocol --------------------------------------------------------------------------------

    async def send_join(self) -> Mapping[str, Any]:
        """One JoinGroup."""
        return await self.ask_coordinator(
            JOIN,
            5,
            REBALANCE_MS / 1000 + 5,
            group_id=self.truth.name,
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "sim", "metadata": b""}],
        )

    async def send_sync(self, joined: Mapping[str, Any], within: float) -> Mapping[str, Any]:
        """One SyncGroup, with assignments if this member leads."""
        names = [member["member_id"] for member in joined["members"]]
        shares = {n: bytes(range(i, self.partitions, len(names))) for i, n in enumerate(names)}
        return await self.ask_coordinator(
            SYNC,
            3,
            within,
            group_id=self.truth.name,
            generation_id=self.epoch,
            member_id=self.member_id,
            assignments=[{"member_id": name, "assignment": share} for name, share in shares.items()],
        )

    async def send_heartbeat(self, within: float) -> ErrorCode:
        """One Heartbeat."""
        who = {"group_id": self.truth.name, "generation_id": self.epoch, "member_id": self.member_id}
        answer = await self.ask_coordinator(HEARTBEAT, 3, within, **who)
        code: ErrorCode = answer["error_code"]
        return code

    def was_assigned(self) -> None:
        """The client has got partitions."""
        self.truth.assignments += 1
        self.on_assigned(self)
