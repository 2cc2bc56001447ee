"""Many groups whose members come, leave and crash while brokers die by `kill -9`.

No committed offset ever goes back, and every group becomes stable within its time-outs. Every third group is one of
KIP-848, whose members are librdkafka's; the others are classic.

python -m tests.soak.groups --groups 50 --members 200 --minutes 10 --kill-every 60 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field

import uvloop

from headwater.client.client import Client
from headwater.client.model import NewTopic
from tests.soak.common import Verdict, progress, workplace
from tests.soak.group_member import SESSION_MS, Member, Truth
from tests.soak.modern_member import ModernMember
from tests.support.running import Running

PROMISES = ("K8", "K9", "K10")

PARTITIONS = 8
BROKERS = 3
MODERN_EVERY = 3
SETTINGS = f"""
[groups]
consumer_session_timeout_ms = {SESSION_MS}
consumer_heartbeat_interval_ms = 1000
"""
LOOK_S = 0.5
TAKE_OVER_S = 20.0
"""Within which another broker has the groups of a dead one."""
LIMIT_S = 2 * SESSION_MS / 1000 + TAKE_OVER_S
"""A session that runs out, a rebalance that waits for it, and a broker that died meanwhile."""


@dataclass(slots=True)
class Alive:
    """A member and the task of its life."""

    member: Member | ModernMember
    task: asyncio.Task[None]


@dataclass(slots=True)
class Watched:
    """A group, who is in it, and since when it has not been stable."""

    truth: Truth
    modern: bool = False
    members: list[Alive] = field(default_factory=list)
    disturbed: float = field(default_factory=time.monotonic)
    stable: bool = False
    longest: float = 0.0

    def look(self, now: float) -> None:
        """Stable: all are in one generation, and have all partitions among them in fair shares."""
        told = [alive.member.assigned for alive in self.members]
        shares = [share or [] for share in told]
        parts = sorted(p for share in shares for p in share)
        generations = {alive.member.generation for alive in self.members}
        fair = bool(shares) and max(map(len, shares)) - min(map(len, shares)) <= 1
        # A member of a KIP-848 group that gets nothing is not told so.
        known = self.modern or None not in told
        self.stable = known and len(generations) == 1 and parts == list(range(PARTITIONS)) and fair
        if self.stable or not self.members:
            self.disturbed = now
        self.longest = max(self.longest, now - self.disturbed)

    def disturb(self) -> None:
        self.disturbed = time.monotonic()


class Soak:
    """All groups, and the chance that moves them."""

    def __init__(self, server: Running, groups: int, members: int, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._wanted = members
        self._addresses = server.bootstrap.split(",")
        self._born = 0
        self.groups = [
            Watched(Truth(f"soak-{i}", "soak", PARTITIONS), i % MODERN_EVERY == MODERN_EVERY - 1) for i in range(groups)
        ]
        self.counts = {"joined": 0, "left": 0, "crashed": 0, "brokers killed": 0}

    async def start(self) -> None:
        async with Client(self._server.bootstrap) as client:
            await client.create_topics([NewTopic("soak", PARTITIONS)])
        for number in range(self._wanted):
            self._join(self.groups[number % len(self.groups)])

    async def disturb(self, end: float) -> None:
        """Somebody comes, leaves or crashes, about four times a second."""
        while time.monotonic() < end:
            group = self._chance.choice(self.groups)
            alive = sum(len(each.members) for each in self.groups)
            if not group.members or self._chance.random() < (0.7 if alive < self._wanted else 0.3):
                self._join(group)
            elif self._chance.random() < 0.5:
                await self._end(group, crash=True)
            else:
                await self._end(group, crash=False)
            await asyncio.sleep(self._chance.uniform(0.1, 0.4))  # the pace of the disturbances

    async def kill(self, every: float, end: float) -> None:
        """A broker dies now and then; the supervisor starts it again."""
        while time.monotonic() + every < end:
            await asyncio.sleep(every)  # the pace of the kills
            victim = self._chance.randrange(1, BROKERS + 1)
            process = await asyncio.to_thread(self._server.broker, victim)
            for group in self.groups:
                group.disturb()
            process.kill()
            self.counts["brokers killed"] += 1

    async def watch(self) -> None:
        while True:
            now = time.monotonic()
            for group in self.groups:
                group.look(now)
            await asyncio.sleep(LOOK_S)  # the grain of what is measured

    async def settle(self) -> int:
        """Wait until all are stable, or the time for that is over; answers how many are not."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and any(group.members and not group.stable for group in self.groups):
            await asyncio.sleep(LOOK_S)  # polls for a state that the loop checks
        return sum(1 for group in self.groups if group.members and not group.stable)

    async def stop(self) -> None:
        """End what is left; not counted."""
        for group in self.groups:
            while group.members:
                gone = group.members.pop()
                await self._cancel(gone)
                await gone.member.crash()

    def _join(self, group: Watched) -> None:
        self._born += 1
        name = f"member-{self._born}"
        member: Member | ModernMember = Member(self._addresses, group.truth, name, self._chance.choice)
        if group.modern:
            member = ModernMember(self._addresses, group.truth, name)
        group.members.append(Alive(member, asyncio.create_task(member.run())))
        group.disturb()
        self.counts["joined"] += 1

    async def _cancel(self, alive: Alive) -> None:
        alive.task.cancel()
        with suppress(asyncio.CancelledError):
            await alive.task

    async def _end(self, group: Watched, *, crash: bool) -> None:
        gone = group.members.pop(self._chance.randrange(len(group.members)))
        await self._cancel(gone)
        await (gone.member.crash() if crash else gone.member.leave())
        group.disturb()
        self.counts["crashed" if crash else "left"] += 1


async def soak(server: Running, options: argparse.Namespace, verdict: Verdict) -> None:
    run = Soak(server, options.groups, options.members, options.seed)
    await run.start()
    watching = asyncio.create_task(run.watch())
    end = time.monotonic() + options.minutes * 60
    with progress() as bars:
        bar = bars.add_task("seconds", total=int(options.minutes * 60), now="")
        work = asyncio.gather(run.disturb(end), run.kill(options.kill_every, end))
        while not work.done():
            stable = sum(group.stable for group in run.groups)
            done = int(options.minutes * 60 - (end - time.monotonic()))
            bars.update(bar, completed=done, now=f"{stable} of {len(run.groups)} groups stable")
            await asyncio.wait([work], timeout=1)
        await work
    unstable = await run.settle()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    await run.stop()
    _judge(run, unstable, verdict)


def _judge(run: Soak, unstable: int, verdict: Verdict) -> None:
    truths = [group.truth for group in run.groups]
    for what, count in run.counts.items():
        verdict.fact(what, count)
    for kind, modern in (("classic", False), ("KIP-848", True)):
        own = [group.truth for group in run.groups if group.modern is modern]
        verdict.floor(f"hand-overs in {kind} groups", sum(truth.hand_overs for truth in own), min(1, len(own)))
        verdict.floor(f"commits in {kind} groups", sum(truth.commits for truth in own), min(1, len(own)))
    violations = [line for truth in truths for line in truth.violations]
    strange = [line for truth in truths for line in truth.strange]
    for line in [*violations, *strange][:20]:
        verdict.fact("wrong", line)
    verdict.rule("offsets that went back", len(violations), 0)
    verdict.rule("errors that no member should get", len(strange), 0)
    verdict.rule("groups not stable in the end", unstable, 0)
    verdict.rule("seconds without stability after a disturbance, at most", max(g.longest for g in run.groups), LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds between two kills of a broker")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"{options.groups} groups, {options.members} members, {options.minutes:g} minutes")
    with workplace("groups") as directory, Running(directory, brokers=BROKERS, settings=SETTINGS) as server:
        uvloop.run(soak(server, options, verdict))
    verdict.leave()


if __name__ == "__main__":
    main()
