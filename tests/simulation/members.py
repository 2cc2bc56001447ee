"""Members of groups, of both protocols, that count with committed offsets and complain about what cannot be.

A partition's committed offset is a counter: whoever owns it reads it and commits the next number. So a committed offset
that was acknowledged is never undone, and no member of an older generation ever commits after a younger one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients import TOPIC, Client, History, Violation
from tests.simulation.cluster import Disconnected, SimCluster

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, SYNC, CONSUMER_HEARTBEAT = 8, 9, 10, 11, 12, 14, 68
SESSION_MS = 6_000


class Refused(Exception):
    """A broker said no."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Ledger:
    """What the members of one group were told, all together."""

    name: str
    led: dict[int, str] = field(default_factory=dict)
    """Who leads a generation."""
    acked: dict[int, int] = field(default_factory=dict)
    """Per partition: the largest offset whose commit was acknowledged."""
    tried: dict[int, int] = field(default_factory=dict)
    commits: int = 0

    def lead(self, generation: int, leader: str) -> None:
        if self.led.setdefault(generation, leader) != leader:
            raise Violation(f"group {self.name}: generation {generation} is led by {leader} and {self.led[generation]}")


class Member(Client):
    """What members of both protocols do."""

    def __init__(
        self, cluster: SimCluster, rng: random.Random, history: History, ledger: Ledger, partitions: int
    ) -> None:
        super().__init__(cluster, rng, history)
        self.ledger = ledger
        self.partitions = partitions
        self.stop = False
        self.mortal = True
        """Whether its process dies now and then, without a word."""
        self.member_id = ""
        self.epoch = -1

    async def run(self) -> None:
        while not self.stop:
            try:
                await self.live()
            except (Disconnected, TimeoutError):
                await self.rest()
            except Refused as refused:
                self.refused(refused.code)
                await self.rest()

    async def live(self) -> None:
        raise NotImplementedError

    def refused(self, code: ErrorCode) -> None:
        raise NotImplementedError

    def dies(self) -> bool:
        return self.mortal and self.rng.random() < 0.02

    async def call(self, key: int, version: int, **fields: Any) -> Mapping[str, Any]:
        """Ask the coordinator."""
        async with asyncio.timeout(30):
            found = await self.connection(self.any_node()).send(
                FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[self.ledger.name]
            )
            [place] = found["coordinators"]
            _check(place["error_code"])
            answer: Mapping[str, Any] = await self.connection(place["node_id"]).send(key, version, **fields)
            return answer

    async def count(self, partition: int, version: int) -> None:
        """Read a partition's committed offset and commit the next."""
        acked = self.ledger.acked.get(partition, -1)
        wanted: dict[str, Any] = {
            "group_id": self.ledger.name,
            "topics": [{"name": TOPIC, "partition_indexes": [partition]}],
        }
        if version >= 9:
            wanted |= {"member_id": self.member_id, "member_epoch": self.epoch}
        answer = await self.call(OFFSET_FETCH, version, groups=[wanted], require_stable=True)
        [group] = answer["groups"]
        _check(group["error_code"])
        at = group["topics"][0]["partitions"][0]["committed_offset"]
        if not acked <= at <= self.ledger.tried.get(partition, -1):
            raise Violation(
                f"group {self.ledger.name}, partition {partition}: committed {at}, but {acked} was acknowledged and "
                f"{self.ledger.tried.get(partition, -1)} tried at most"
            )
        self.ledger.tried[partition] = max(self.ledger.tried.get(partition, -1), at + 1)
        committed = await self.call(
            OFFSET_COMMIT,
            version,
            group_id=self.ledger.name,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": partition, "committed_offset": at + 1}]}],
        )
        _check(committed["topics"][0]["partitions"][0]["error_code"])
        self.ledger.acked[partition] = max(self.ledger.acked.get(partition, -1), at + 1)
        self.ledger.commits += 1


class ClassicMember(Member):
    """Joins, syncs, beats and counts."""

    async def live(self) -> None:
        joined = await self.call(
            JOIN,
            5,
            group_id=self.ledger.name,
            session_timeout=SESSION_MS,
            rebalance_timeout=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "sim", "metadata": b""}],
        )
        if joined["error_code"] is ErrorCode.member_id_required:
            self.member_id = joined["member_id"]
            return
        _check(joined["error_code"])
        self.member_id, self.epoch = joined["member_id"], joined["generation_id"]
        self.ledger.lead(self.epoch, joined["leader"])
        names = [member["member_id"] for member in joined["members"]]
        assigned = {
            name: bytes(p for p in range(self.partitions) if p % len(names) == i) for i, name in enumerate(names)
        }
        synced = await self.call(
            SYNC,
            3,
            group_id=self.ledger.name,
            generation_id=self.epoch,
            member_id=self.member_id,
            assignments=[{"member_id": name, "assignment": data} for name, data in assigned.items()],
        )
        _check(synced["error_code"])
        await self.work(synced["assignment"])

    async def work(self, owned: bytes) -> None:
        while not self.stop:
            for partition in owned:
                await self.count(partition, 8)
            beat = await self.call(
                HEARTBEAT, 3, group_id=self.ledger.name, generation_id=self.epoch, member_id=self.member_id
            )
            _check(beat["error_code"])
            await self.rest()
            if self.dies():
                self.member_id = ""  # and its process starts again
                return

    def refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.unknown_member_id:
            self.member_id = ""


Owned = tuple[tuple[Any, tuple[int, ...]], ...]
"""Partitions by topic."""
NOTHING: Owned = ()


class ConsumerMember(Member):
    """Heartbeats tell it what it owns; it counts with that."""

    owned: Owned = NOTHING
    lives = 0

    async def live(self) -> None:
        self.lives += 1
        self.member_id, self.epoch = f"{self.rng.getrandbits(32):x}-{self.lives}", 0
        self.owned = NOTHING
        while not self.stop:
            await self.beat()
            for _, partitions in self.owned:
                for partition in partitions:
                    await self.count(partition, 9)
            await self.rest()
            if self.dies():
                return

    async def beat(self) -> None:
        answer = await self.call(
            CONSUMER_HEARTBEAT,
            1,
            group_id=self.ledger.name,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout=SESSION_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[{"topic_id": topic, "partitions": partitions} for topic, partitions in self.owned],
        )
        _check(answer["error_code"])
        if answer["member_epoch"] < self.epoch:
            raise Violation(f"group {self.ledger.name}: an epoch went back from {self.epoch} to {answer}")
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            given = answer["assignment"]["topic_partitions"]
            self.owned = tuple((pair["topic_id"], tuple(pair["partitions"])) for pair in given)

    def refused(self, code: ErrorCode) -> None:
        """Whatever it was, it starts over under a new name."""


def _check(code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise Refused(code)
