"""The coordinator of groups: which broker coordinates a group, and how decisions are stored before they are answered.

Groups are divided into shards, and shards among the live brokers by rendezvous hashing. The chosen broker claims the
shard in the ledger; from then on decisions of an earlier holder are refused. The state machines of
`headwater.coordination` decide in memory. Their changes are appended to the ledger, and the answers wait for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Set
from typing import TypeVar

from headwater.background import Background, Duty, OnDeath, Supervised, Tasks
from headwater.broker import placing
from headwater.broker.groups.held import ClusterTopics, Held
from headwater.broker.groups.shares import GroupShares
from headwater.clock import Chance, Clock
from headwater.coordination.common import Change, GroupError, Reply
from headwater.coordination.group import Group, GroupContext
from headwater.coordination.kinds import kind_of
from headwater.errors import HeadwaterError, Retriable
from headwater.replica.internal_topics import topic_by_id
from headwater.replica.membership import Membership
from headwater.replica.replica import Replica
from headwater.security.guard import Guard
from headwater.settings.settings import Groups as GroupSettings
from headwater.state.cluster.domain import Process
from headwater.state.cluster.resources import ConfigResource
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.groups import ChangeGroup, ClaimShard, DropGroup, DropOffsets
from headwater.state.commands.transactions import StageOffsets
from headwater.state.records import Command
from headwater.state.results import Done, Reason, Refused, Result, Transacted
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import MAX_NAME, SHARDS, StoredGroup, shard_of

_G = TypeVar("_G", bound=Group)
log = logging.getLogger("headwater.groups")
GROUPS = Duty("groups", OnDeath.RESTART, "claims shards of groups and forgets groups and offsets past their time")

_CLAIM_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""How long a request for committed offsets waits for the ledger. Shorter than the time-outs of clients' requests."""
LOOK_PAUSE_SECONDS = 0.1
MAX_LOOKS = 5_000
"""Requests for committed offsets that wait for the ledger at once. Further ones are refused with a retriable error."""
RELEASE_SECONDS = 1.0
"""How often a coordinator checks whether its shards are still its own."""
OFFSETS_PER_COMMAND = 10_000
"""Offsets that expire go in commands of this size, since a ledger record has a limit."""
EMPTY_GROUP_MS = 600_000
"""A group without members and offsets is forgotten after this time."""


class Coordinator:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        cluster: Replica[ClusterState],
        domain: Replica[StreamsState],
        membership: Membership,
        settings: GroupSettings,
        clock: Clock,
        chance: Chance,
        *,
        node: int,
        guard: Guard,
        patience_ms: int,
        background: Background,
        shares: GroupShares,
    ) -> None:
        self._cluster = cluster
        self.replica = domain
        self._membership = membership
        self.settings = settings
        self._clock = clock
        self._node = node
        self._patience_ms = patience_ms
        self.shares = shares
        self.context = GroupContext(
            settings,
            new_id=lambda: str(chance.uuid()),
            configs_of=lambda name: cluster.state.resources.of(ConfigResource.GROUP, name),
        )
        self.topics = ClusterTopics(cluster.state, guard)
        self._claims: dict[int, int] = {}
        """The shards that this broker holds, with the number of each claim."""
        self._claiming: dict[int, asyncio.Task[None]] = {}
        self._groups: dict[str, Held] = {}
        self.changes = 0
        self.commits = 0
        self.looks = 0
        """Requests for committed offsets that wait for the ledger now."""
        self._background = background
        self._duty: Supervised | None = None
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<Coordinator of {len(self._claims)} shards, {len(self._groups)} groups in memory>"

    def start(self) -> None:
        """Start to coordinate the groups that are placed here."""
        self.replica.state.groups.on_claim = self._claim_changed
        self._duty = self._background.run(GROUPS, self._look_after)

    async def close(self) -> None:
        """Release all shards; requests that wait are sent to another coordinator."""
        self.replica.state.groups.on_claim = None
        for shard in list(self._claims):
            self._let_go(shard)
        if self._duty is not None:
            await self._duty.stop()
        for task in list(self._claiming.values()):
            task.cancel()
            await asyncio.wait([task])

    # --- placement -------------------------------------------------------------------------------------

    def place(self, group: str) -> Process | None:
        """The broker that should coordinate a group."""
        return self._place(shard_of(group))

    def _place(self, shard: int) -> Process | None:
        """The broker for a shard. A group has one coordinator, wherever its members are.

        The current coordinator stays a candidate for a while after it goes out of rotation. Members begin a new session
        with every move, so a group that moved each time a broker goes out and comes back would never notice that a
        member is gone.
        """
        state = self._cluster.state
        claim = self.replica.state.groups.claims.get(shard)
        holder = claim.holder if claim is not None else 0
        if state.rotation.is_out_since(holder, state.clock_ms - self._patience_ms):
            holder = 0
        return placing.place(state, placing.GROUPS + shard, holder)

    def _is_ours(self, shard: int) -> bool:
        place = self._place(shard)
        return place is not None and place.node == self._node

    def _holds(self, shard: int) -> bool:
        number = self._claims.get(shard)
        return number is not None and self._is_current(shard, number)

    def _is_current(self, shard: int, number: int) -> bool:
        claim = self.replica.state.groups.claims.get(shard)
        return claim is not None and claim.number == number and claim.holder == self.replica.epoch

    async def enter(self, group: str, *, nameless: bool = False) -> None:
        """Make this broker the coordinator of a group, or raise `GroupError`. A nameless group has only offsets."""
        _check_name(group, nameless)
        await self._enter_shard(shard_of(group))

    async def look(self, group: str) -> None:
        """Catch up with every offset that was committed for a group. Any broker may do that, with a claim or without.

        librdkafka never asks again for the offsets of an assignment after NOT_COORDINATOR or
        COORDINATOR_NOT_AVAILABLE. So a broker that is not the coordinator reads instead, and one that does not reach
        the ledger waits. COORDINATOR_LOAD_IN_PROGRESS, its only refusal, is retried by all clients.
        """
        _check_name(group, nameless=True)
        if self.looks >= MAX_LOOKS:
            raise GroupError("coordinator_load_in_progress", "too many requests wait for the ledger")
        self.looks += 1
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                while True:
                    try:
                        await self.replica.barrier()
                        return
                    except Retriable:
                        await asyncio.sleep(LOOK_PAUSE_SECONDS)
        except (TimeoutError, HeadwaterError) as error:
            raise GroupError("coordinator_load_in_progress", "the ledger cannot be reached") from error
        finally:
            self.looks -= 1

    async def _enter_shard(self, shard: int) -> None:
        if not self._membership.in_contact:
            raise GroupError("coordinator_not_available", "this broker is out of contact with the cluster")
        if not self._is_ours(shard):
            raise GroupError("not_coordinator")
        if not self._holds(shard):
            task = self._claiming.get(shard)
            if task is None:
                task = self._claiming[shard] = self._tasks.spawn(self._claim(shard), f"claim-{shard}")
                task.add_done_callback(lambda done: self._claimed(shard, done))
            done, _ = await asyncio.wait([task], timeout=_CLAIM_SECONDS)
            if not done:
                raise GroupError("coordinator_load_in_progress")
            if not self._holds(shard):
                raise GroupError("not_coordinator")

    async def _claim(self, shard: int) -> None:
        self._let_go(shard)
        [result] = await self.replica.submit([ClaimShard(shard)])
        if not isinstance(result, Done) or not self._is_current(shard, result.value):
            return
        self._claims[shard] = result.value
        for stored in list(self.replica.state.groups.of_shard(shard).values()):
            if stored.members:
                self.find(stored.name)  # from now on its members have to send heartbeats here

    def _claimed(self, shard: int, done: asyncio.Task[None]) -> None:
        self._claiming.pop(shard, None)
        if not done.cancelled() and isinstance(done.exception(), HeadwaterError):
            log.info("a shard of groups could not be claimed", extra={"shard": shard, "reason": str(done.exception())})

    def _claim_changed(self, shard: int) -> None:
        """Called when a claim is applied. Another broker may have claimed a shard that this one holds."""
        number = self._claims.get(shard)
        if number is not None and not self._is_current(shard, number):
            self._let_go(shard)

    def _let_go(self, shard: int) -> None:
        self._claims.pop(shard, None)
        for held in [held for held in self._groups.values() if held.shard == shard]:
            self._abandon(held, "not_coordinator")

    # --- groups in memory --------------------------------------------------------------------------------

    def find(self, name: str) -> Held | None:
        """A group that has or had members. It is in memory from now on."""
        held = self._groups.get(name)
        if held is None:
            stored = self.replica.state.groups.get(name)
            if stored is None or not stored.head:
                return None
            held = self.hold(name, self._restored(stored))
        return held

    def glance(self, name: str) -> Group | None:
        """A group that has or had members, as it was stored if another broker coordinates it."""
        if self._holds(shard_of(name)):
            held = self.find(name)
            return held.group if held is not None else None
        stored = self.replica.state.groups.get(name)
        return self._restored(stored) if stored is not None and stored.head else None

    def _restored(self, stored: StoredGroup) -> Group:
        kind = kind_of(stored.kind)
        return kind.restore(stored.name, self.context, stored.head, stored.members, self.now_ms())

    def new(self, kind: type[_G], name: str) -> _G:
        """A new group of a kind; `hold` takes it into memory."""
        return kind.create(name, self.context, self._clock.wall_ms())

    def hold(self, name: str, group: Group) -> Held:
        """Keep a group in memory. It replaces one of another kind that has no members."""
        before = self._groups.get(name)
        if before is not None:
            self._abandon(before, "not_coordinator")
        shard = shard_of(name)
        held = self._groups[name] = Held(name, shard, self._claims.get(shard, 0), group)
        self.shares.note(name, group.weight)
        self._arm(held)
        return held

    def stored(self, name: str) -> StoredGroup | None:
        """A group as it is in the ledger, with its offsets."""
        return self.replica.state.groups.get(name)

    async def listed(self) -> list[StoredGroup]:
        """Every group that is coordinated here."""
        await self.replica.barrier()
        shards = [s for s in range(SHARDS) if self.replica.state.groups.of_shard(s) and self._is_ours(s)]
        for shard in shards:
            await self._enter_shard(shard)
        return [group for shard in shards for group in self.replica.state.groups.of_shard(shard).values()]

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def states(self) -> Counter[tuple[str, str]]:
        """The number of groups in memory, by kind and state."""
        return Counter((held.group.kind, held.group.state) for held in self._groups.values())

    def members(self) -> int:
        """How many members the groups in memory have."""
        return sum(len(held.group.members) for held in self._groups.values())

    # --- deciding and storing ------------------------------------------------------------------------------

    def settle(self, held: Held, *also: Reply) -> None:
        """After an event: store the changes, then send the answers in order."""
        change, replies = held.group.changes(), [*held.group.replies(), *also]
        if change is not None and self._groups.get(held.name) is held:
            self.shares.note(held.name, held.group.weight)
        if change is None and held.saving is None:
            _deliver(replies)
        elif change is not None or replies:
            held.outbox.append((change, replies))
            if held.saving is None:
                held.saving = self._tasks.spawn(self._save(held), f"group-{held.name}")
        self._arm(held)

    async def _save(self, held: Held) -> None:
        while held.outbox:
            waiting, held.outbox = held.outbox, []
            replies = held.sending = [reply for _, of_event in waiting for reply in of_event]
            change: Change | None = None
            for later, _ in waiting:
                if later is not None:
                    change = later if change is None else change.then(later)
            if change is not None:
                kind = held.group.kind
                command = ChangeGroup(held.claim, held.name, kind, change.head, change.put, change.drop)
                try:
                    await self._submit(command)
                    self.changes += 1
                except GroupError as error:
                    self._not_saved(held, replies, error)
                    return
                except Exception as error:
                    self._not_saved(held, replies, GroupError("unknown_server_error", repr(error)))
                    raise
            _deliver(replies)
        held.saving = None

    def _not_saved(self, held: Held, replies: list[Reply], error: GroupError) -> None:
        _refuse(replies, error)
        held.saving = None
        self._abandon(held, error.code)

    async def _submit(self, command: Command) -> int:
        """Commit a decision of this coordinator. It is refused if another one has taken over."""
        result = await self._judged(command)
        if isinstance(result, Done):
            return result.value
        raise GroupError("not_coordinator")

    async def _judged(self, command: Command) -> Result:
        """Append a command and wait for what `apply` says."""
        try:
            [result] = await self.replica.submit([command])
        except ValueError as error:  # the command is larger than a record may be
            raise GroupError("unknown_server_error", str(error)) from error
        except HeadwaterError as error:
            raise GroupError("coordinator_not_available", str(error)) from error
        if isinstance(result, Refused) and result.reason is Reason.INVALID:
            raise GroupError("unknown_server_error", result.detail)
        return result

    def _claimed_number(self, group: str) -> int:
        claim = self._claims.get(shard_of(group))
        if claim is None:
            raise GroupError("not_coordinator")
        return claim

    async def submit(self, group: str, make: Callable[[int], Command]) -> int:
        """Commit a command about a group. `make` gets the number of the claim."""
        return await self._submit(make(self._claimed_number(group)))

    async def stage(self, group: str, make: Callable[[int], StageOffsets]) -> Transacted:
        """Stage offsets of a group in a transaction. `make` gets the number of the claim."""
        result = await self._judged(make(self._claimed_number(group)))
        if not isinstance(result, Transacted):
            raise GroupError("not_coordinator")
        return result

    def _abandon(self, held: Held, code: str) -> None:
        """Drop a group from memory. The ledger has the group as it was stored, for this or another coordinator."""
        if self._groups.get(held.name) is held:
            del self._groups[held.name]
            self.shares.forget(held.name)
        if held.timer is not None:
            held.timer.cancel()
        error = GroupError(code)
        _refuse([*held.sending, *(reply for _, replies in held.outbox for reply in replies)], error)
        held.outbox = []
        _deliver(held.group.abandon(code))

    # --- time ------------------------------------------------------------------------------------------------

    def _arm(self, held: Held) -> None:
        due = held.group.next_deadline()
        if due is None or (held.timer is not None and held.due_ms <= due):
            return
        if held.timer is not None:
            held.timer.cancel()
        held.due_ms = due
        delay = max(0, due - self.now_ms()) / 1000
        held.timer = asyncio.get_running_loop().call_later(delay, self._fire, held)

    def _fire(self, held: Held) -> None:
        held.timer = None
        if self._groups.get(held.name) is not held:
            return
        held.group.tick(self.topics, self.now_ms(), self._clock.wall_ms())
        self.settle(held)

    async def _look_after(self) -> None:
        while True:
            await self._rest()
            try:
                for shard in range(SHARDS):
                    if self.replica.state.groups.of_shard(shard) and self._is_ours(shard):
                        await self._enter_shard(shard)
                await self._expire()
            except (GroupError, HeadwaterError) as error:
                log.info("maintenance of groups postponed", extra={"reason": str(error)})

    async def _rest(self) -> None:
        """Pause until the next look. Meanwhile let go of shards that are placed elsewhere by now, and of all while the
        ledger cannot be reached: another broker may hold them, and members that wait here would wait in vain."""
        end = self._clock.monotonic() + self.settings.check_interval_ms / 1000
        while (left := end - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(left, RELEASE_SECONDS))
            for shard in list(self._claims):
                if not self._membership.in_contact or not self._is_ours(shard):
                    self._let_go(shard)

    async def _expire(self) -> None:
        """Delete expired offsets, offsets of deleted topics, and groups without members and offsets."""
        await self._cluster.barrier()
        state = self.replica.state
        before, idle = state.clock_ms - self.settings.offset_retention_ms, state.clock_ms - EMPTY_GROUP_MS
        for shard, claim in list(self._claims.items()):
            for group in list(state.groups.of_shard(shard).values()):
                held = self._groups.get(group.name)
                gone = list(self._expired(group, held, before))
                for i in range(0, len(gone), OFFSETS_PER_COMMAND):
                    await self._submit(DropOffsets(claim, group.name, gone[i : i + OFFSETS_PER_COMMAND]))
                unused = not group.offsets and not state.transactions.staging(group.name)
                if (held is None or held.group.is_empty) and unused and group.changed_ms <= idle:
                    await self.delete(group.name, claim)

    def _expired(self, group: StoredGroup, held: Held | None, before_ms: int) -> Iterator[tuple[bytes, int]]:
        used: Set[str] = set()
        empty = held is None or held.group.is_empty
        if held is not None and not empty:
            wanted = held.group.subscribed(self.topics)
            used = {t.name for t in self._cluster.state.topics.values()} if wanted is None else wanted
        staged = self.replica.state.transactions.is_staged
        for topic_id, partitions in group.offsets.items():
            topic = topic_by_id(self._cluster.state, topic_id)
            for partition, committed in partitions.items():
                since = max(group.changed_ms, committed.committed_ms) if empty else committed.committed_ms
                if topic is not None and staged(group.name, topic_id, partition):
                    continue  # its transaction may still end
                if topic is None or (topic.name not in used and since <= before_ms):
                    yield topic_id.bytes, partition

    async def delete(self, name: str, claim: int | None = None) -> None:
        """Delete a group and its offsets."""
        number = self._claims.get(shard_of(name), 0) if claim is None else claim
        await self._submit(DropGroup(number, name))
        held = self._groups.get(name)
        if held is not None:
            self._abandon(held, "not_coordinator")


def _check_name(group: str, nameless: bool) -> None:
    if not (group or nameless) or len(group) > MAX_NAME:
        raise GroupError("invalid_group_id", "the group id is empty or too long")


def _deliver(replies: list[Reply]) -> None:
    for reply in replies:
        future = reply.token
        if isinstance(future, asyncio.Future) and not future.done():
            future.set_result(reply.answer)


def _refuse(replies: list[Reply], error: GroupError) -> None:
    for reply in replies:
        future = reply.token
        if isinstance(future, asyncio.Future) and not future.done():
            future.set_exception(error)
