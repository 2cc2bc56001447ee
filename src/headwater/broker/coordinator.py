"""The coordinator of groups: which broker it is, and how decisions get into the ledger before anybody hears of them.

Groups are spread over shards, shards over the live brokers by rendezvous hashing. The broker whose turn it is claims
the shard in the ledger; from then on nothing that an earlier holder decides counts. The state machines of
`headwater.coordination` decide in memory; what they want stored is appended, and the answers wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace

from headwater.broker.guard import Guard
from headwater.broker.held_groups import ClusterTopics, Held
from headwater.clock import Chance, Clock
from headwater.config import Groups as GroupSettings
from headwater.coordination.classic import ClassicGroup, ClassicSettings
from headwater.coordination.common import Change, GroupError, Reply
from headwater.coordination.consumer import ConsumerGroup
from headwater.coordination.consumer_requests import ConsumerGroupSettings
from headwater.errors import HeadwaterError
from headwater.metadata.cluster import ClusterState, Member
from headwater.metadata.commands import ChangeGroup, ClaimShard, Command, DropGroup, DropOffsets
from headwater.metadata.grouping import MAX_NAME, SHARDS, StoredGroup, shard_of
from headwater.metadata.membership import Membership
from headwater.metadata.placement import choose
from headwater.metadata.replica import Replica
from headwater.metadata.resources import ResourceKind
from headwater.metadata.results import Done, Reason, Refused
from headwater.metadata.streams import StreamsState

log = logging.getLogger("headwater.groups")

_SHARD_KEYS = 1 << 40
"""Shards hash apart from streams."""
_CLAIM_SECONDS = 5.0
SESSION_CONFIG, HEARTBEAT_CONFIG = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
EMPTY_GROUP_MS = 600_000
"""A group without members and offsets is forgotten after this time."""


class Coordinator:
    """The groups whose turn to be coordinated is here."""

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
    ) -> None:
        self._cluster = cluster
        self.replica = domain
        self._membership = membership
        self.settings = settings
        self._clock = clock
        self._node = node
        self._patience_ms = patience_ms
        self._classic = ClassicSettings(
            initial_delay_ms=settings.initial_rebalance_delay_ms,
            new_member_timeout_ms=settings.new_member_timeout_ms,
            max_members=settings.max_members,
            new_id=lambda: str(chance.uuid()),
        )
        self._consumer = ConsumerGroupSettings(
            new_member_id=lambda: str(chance.uuid()),
            session_timeout_ms=settings.consumer_session_timeout_ms,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
            max_size=settings.max_members,
        )
        self.topics = ClusterTopics(cluster.state, guard)
        self._claims: dict[int, int] = {}
        """Shards that are held, with the number of the claim."""
        self._claiming: dict[int, asyncio.Task[None]] = {}
        self._groups: dict[str, Held] = {}
        self.changes = 0
        self.commits = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Coordinator of {len(self._claims)} shards, {len(self._groups)} groups in memory>"

    def start(self) -> None:
        """Look after the groups whose turn is here."""
        self.replica.state.groups.on_claim = self._claim_changed
        self._task = asyncio.create_task(self._look_after(), name="groups")

    async def close(self) -> None:
        """Let go of everything; whoever waits is sent to another coordinator."""
        self.replica.state.groups.on_claim = None
        for shard in list(self._claims):
            self._let_go(shard)
        tasks = [*self._claiming.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, HeadwaterError, GroupError):
                await task

    # --- whose turn ------------------------------------------------------------------------------------

    def place(self, group: str) -> Member | None:
        """The broker whose turn it is to coordinate a group."""
        return self._place(shard_of(group))

    def _place(self, shard: int) -> Member | None:
        members = {member.node: member for member in self._candidates(shard)}
        return members.get(choose(_SHARD_KEYS + shard, list(members)))

    def _candidates(self, shard: int) -> list[Member]:
        """Brokers of all zones that do well: a group has one coordinator, wherever its members are.

        The present one stays for a while when it does badly. With every move members begin a new session, so groups
        that followed brokers which go out and come back would never find out who of their members is gone.
        """
        state = self._cluster.state
        members = state.serving()
        if not state.rotation.out:
            return members
        claim = self.replica.state.groups.claims.get(shard)
        holder = claim.holder if claim is not None else 0
        if state.rotation.is_out_since(holder, state.clock_ms - self._patience_ms):
            holder = 0
        return [member for member in members if state.in_rotation(member) or member.epoch == holder]

    def _is_ours(self, shard: int) -> bool:
        place = self._place(shard)
        return place is not None and place.node == self._node

    def _holds(self, shard: int) -> bool:
        number = self._claims.get(shard)
        return number is not None and self._stands(shard, number)

    def _stands(self, shard: int, number: int) -> bool:
        claim = self.replica.state.groups.claims.get(shard)
        return claim is not None and claim.number == number and claim.holder == self.replica.epoch

    async def enter(self, group: str, *, nameless: bool = False) -> None:
        """Be the coordinator of a group, or say who is not. Only offsets can belong to a group without a name."""
        if not (group or nameless) or len(group) > MAX_NAME:
            raise GroupError("invalid_group_id", "the group id is empty or too long")
        await self._enter_shard(shard_of(group))

    async def _enter_shard(self, shard: int) -> None:
        if not self._membership.in_contact:
            raise GroupError("coordinator_not_available", "this broker is out of contact with the cluster")
        if not self._is_ours(shard):
            raise GroupError("not_coordinator")
        if not self._holds(shard):
            task = self._claiming.get(shard)
            if task is None:
                task = self._claiming[shard] = asyncio.create_task(self._claim(shard), name=f"claim-{shard}")
                task.add_done_callback(lambda done: self._claimed(shard, done))
            done, _ = await asyncio.wait([task], timeout=_CLAIM_SECONDS)
            if not done:
                raise GroupError("coordinator_load_in_progress")
            if not self._holds(shard):
                raise GroupError("not_coordinator")

    async def _claim(self, shard: int) -> None:
        self._let_go(shard)
        [result] = await self.replica.submit([ClaimShard(shard)])
        if not isinstance(result, Done) or not self._stands(shard, result.value):
            return
        self._claims[shard] = result.value
        for stored in list(self.replica.state.groups.of_shard(shard).values()):
            if stored.members:
                self.find(stored.name)  # from now on its members have to show themselves here

    def _claimed(self, shard: int, done: asyncio.Task[None]) -> None:
        self._claiming.pop(shard, None)
        if not done.cancelled() and isinstance(done.exception(), HeadwaterError):
            log.info("a shard of groups could not be claimed", extra={"shard": shard, "reason": str(done.exception())})

    def _claim_changed(self, shard: int) -> None:
        """Told by the ledger. Somebody else may have claimed what is held here."""
        number = self._claims.get(shard)
        if number is not None and not self._stands(shard, number):
            self._let_go(shard)

    def _let_go(self, shard: int) -> None:
        self._claims.pop(shard, None)
        for held in [held for held in self._groups.values() if held.shard == shard]:
            self._abandon(held, "not_coordinator")

    # --- groups in memory --------------------------------------------------------------------------------

    def find(self, name: str) -> Held | None:
        """A group that has or had members, in memory from now on."""
        held = self._groups.get(name)
        if held is None:
            stored = self.replica.state.groups.get(name)
            if stored is None or not stored.head:
                return None
            held = self.hold(name, self._loaded(stored))
        return held

    def _loaded(self, stored: StoredGroup) -> ClassicGroup | ConsumerGroup:
        if stored.kind == ConsumerGroup.kind:
            settings = self.settings_of(stored.name)
            return ConsumerGroup.load(stored.name, settings, stored.head, stored.members, self.now_ms())
        return ClassicGroup.load(stored.name, self._classic, stored.head, stored.members, self.now_ms())

    def new_classic(self, name: str) -> ClassicGroup:
        """A group of the classic protocol, that `hold` takes in."""
        return ClassicGroup(name, self._classic, self._clock.wall_ms())

    def new_consumer(self, name: str) -> ConsumerGroup:
        """A group of KIP-848, that `hold` takes in."""
        return ConsumerGroup(name, self.settings_of(name))

    def settings_of(self, name: str) -> ConsumerGroupSettings:
        """What a KIP-848 group goes by: its own configs, and the broker's settings where it has none."""
        configs = self._cluster.state.resources.of(ResourceKind.GROUP, name)
        if not configs:
            return self._consumer
        return replace(
            self._consumer,
            session_timeout_ms=int(configs.get(SESSION_CONFIG, self._consumer.session_timeout_ms)),
            heartbeat_interval_ms=int(configs.get(HEARTBEAT_CONFIG, self._consumer.heartbeat_interval_ms)),
        )

    def hold(self, name: str, group: ClassicGroup | ConsumerGroup) -> Held:
        """Have a group in memory. One without members, of another kind, gives way to it."""
        before = self._groups.get(name)
        if before is not None:
            self._abandon(before, "not_coordinator")
        shard = shard_of(name)
        held = self._groups[name] = Held(name, shard, self._claims.get(shard, 0), group)
        self._arm(held)
        return held

    def stored(self, name: str) -> StoredGroup | None:
        """A group as it lies in the ledger, offsets included."""
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
        """How many groups in memory are of which kind and in which state."""
        return Counter((held.group.kind, held.group.state) for held in self._groups.values())

    def members(self) -> int:
        """How many members the groups in memory have."""
        return sum(len(held.group.members) for held in self._groups.values())

    # --- deciding and storing ------------------------------------------------------------------------------

    def settle(self, held: Held, *also: Reply) -> None:
        """After an event: store what changed, then give the answers, in their order."""
        change, replies = held.group.changes(), [*held.replies(), *also]
        if change is None and held.saving is None:
            _deliver(replies)
        elif change is not None or replies:
            held.outbox.append((change, replies))
            if held.saving is None:
                held.saving = asyncio.create_task(self._save(held), name=f"group-{held.name}")
        self._arm(held)

    async def _save(self, held: Held) -> None:
        while held.outbox:
            waiting, held.outbox = held.outbox, []
            replies = [reply for _, of_event in waiting for reply in of_event]
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
                    _refuse(replies, error)
                    held.saving = None
                    self._abandon(held, error.code)
                    return
            _deliver(replies)
        held.saving = None

    async def _submit(self, command: Command) -> int:
        """Enter a decision of this coordinator; it is refused if another one has taken over."""
        try:
            [result] = await self.replica.submit([command])
        except ValueError as error:  # larger than a record may be
            raise GroupError("unknown_server_error", str(error)) from error
        except HeadwaterError as error:
            raise GroupError("coordinator_not_available", str(error)) from error
        if isinstance(result, Done):
            return result.value
        if isinstance(result, Refused) and result.reason is Reason.INVALID:
            raise GroupError("unknown_server_error", result.detail)
        raise GroupError("not_coordinator")

    async def submit(self, group: str, make: Callable[[int], Command]) -> int:
        """Enter a command about a group; `make` is told the number of the claim."""
        claim = self._claims.get(shard_of(group))
        if claim is None:
            raise GroupError("not_coordinator")
        return await self._submit(make(claim))

    def _abandon(self, held: Held, code: str) -> None:
        """Forget what is in memory. What is in the ledger is the truth, here or at another coordinator."""
        if self._groups.get(held.name) is held:
            del self._groups[held.name]
        if held.timer is not None:
            held.timer.cancel()
        error = GroupError(code)
        _refuse([reply for _, replies in held.outbox for reply in replies], error)
        held.outbox = []
        _deliver(held.abandoned(code))

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
        held.tick(self.topics, self.now_ms(), self._clock.wall_ms())
        self.settle(held)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_ms / 1000)
            try:
                for shard in list(self._claims):
                    if not self._is_ours(shard):
                        self._let_go(shard)
                for shard in range(SHARDS):
                    if self.replica.state.groups.of_shard(shard) and self._is_ours(shard):
                        await self._enter_shard(shard)
                await self._expire()
            except (GroupError, HeadwaterError) as error:
                log.info("groups are not looked after for now", extra={"reason": str(error)})

    async def _expire(self) -> None:
        """Forget offsets whose time is over or whose topic is gone, and groups that nothing is left of."""
        await self._cluster.barrier()
        state = self.replica.state
        before, idle = state.clock_ms - self.settings.offset_retention_ms, state.clock_ms - EMPTY_GROUP_MS
        for shard, claim in list(self._claims.items()):
            for group in list(state.groups.of_shard(shard).values()):
                held = self._groups.get(group.name)
                gone = list(self._expired(group, held, before))
                if gone:
                    await self._submit(DropOffsets(claim, group.name, gone))
                if (held is None or held.group.is_empty) and not group.offsets and group.changed_ms <= idle:
                    await self.delete(group.name, claim)

    def _expired(self, group: StoredGroup, held: Held | None, before_ms: int) -> Iterator[tuple[bytes, int]]:
        used: Set[str] = set()
        empty = held is None or held.group.is_empty
        if held is not None and not empty:
            wanted = held.subscribed_topics(self.topics)
            used = {t.name for t in self._cluster.state.topics.values()} if wanted is None else wanted
        for topic_id, partitions in group.offsets.items():
            topic = self._cluster.state.topics.get(topic_id)
            for partition, committed in partitions.items():
                since = max(group.changed_ms, committed.committed_ms) if empty else committed.committed_ms
                if topic is None or topic.deleting or (topic.name not in used and since <= before_ms):
                    yield topic_id.bytes, partition

    async def delete(self, name: str, claim: int | None = None) -> None:
        """Forget a group and its offsets."""
        number = self._claims.get(shard_of(name), 0) if claim is None else claim
        await self._submit(DropGroup(number, name))
        held = self._groups.get(name)
        if held is not None:
            self._abandon(held, "not_coordinator")


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
