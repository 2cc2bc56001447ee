"""The state of domain 0: processes and their epochs, topics and where their streams lie, producer ids, configs."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headwater.errors import Halted
from headwater.metadata.access import Access, AccessImage
from headwater.metadata.access_commands import DropAcls, DropUser, PutAcls, PutUser
from headwater.metadata.base import COMMON_COMMANDS, BaseImage, State
from headwater.metadata.commands import (
    AddPartitions,
    AllocateProducers,
    AlterConfigs,
    AlterQuota,
    AlterResource,
    CreateTopic,
    DeleteTopic,
    Fence,
    Listener,
    Record,
    TakeEpoch,
    TopicGone,
    TopicReady,
)
from headwater.metadata.resources import QuotaRow, ResourceRow, Resources
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.rotation import Rotation, RotationImage
from headwater.metadata.rotation_commands import Report, SetRotation
from headwater.types import CLUSTER

MAX_TOPICS = 100_000
MAX_PARTITIONS = 100_000
MAX_PRODUCER_BLOCK = 100_000

NO_NODE = -1
"""The node id of a process that serves no clients."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A process whose epoch is not fenced."""

    epoch: int
    process: str
    node: int
    zone: str
    listeners: tuple[Listener, ...]


class Topic(msgspec.Struct, array_like=True):
    """A topic. `streams` are allocated with the intent; the first `ready` of them can be used."""

    id: uuid.UUID
    name: str
    domain: int
    configs: dict[str, str]
    streams: list[int]
    ready: int
    deleting: bool
    created_ms: int

    @property
    def pending(self) -> bool:
        """Whether someone has to carry an intent through."""
        return self.deleting or self.ready < len(self.streams)


def likeness(name: str) -> str:
    """What a topic's name is to tools that take dots for underscores."""
    return name.replace(".", "_")


class ClusterImage(msgspec.Struct, array_like=True):
    """A checkpoint of domain 0."""

    base: BaseImage
    members: list[Member]
    topics: list[Topic]
    cluster_id: str
    next_epoch: int
    next_stream: int
    next_producer: int
    resources: list[ResourceRow]
    quotas: list[QuotaRow]
    access: AccessImage
    rotation: RotationImage | None = None
    """Missing in checkpoints of versions that did not have it."""


_decoder = msgspec.msgpack.Decoder(ClusterImage)


class ClusterState(State):
    """The fold of domain 0."""

    def __init__(self) -> None:
        super().__init__(CLUSTER)
        self.members: dict[int, Member] = {}
        self.topics: dict[uuid.UUID, Topic] = {}
        """Every topic, also those whose deletion is still carried through."""
        self.names: dict[str, Topic] = {}
        """Topics by name, without those being deleted."""
        self.alike: dict[str, str] = {}
        """Names of topics by their `likeness`, without those being deleted."""
        self.cluster_id = ""
        """Made from the first process's name, so that it is the same for everybody and for ever."""
        self.resources = Resources()
        self.access = Access()
        self.rotation = Rotation()
        self._next_epoch = 1
        self._next_stream = 1
        self._next_producer = 1
        self.changes = 0
        """How often members or topics have changed here; no part of the state."""
        self.on_change: Callable[[], None] | None = None
        """Told when members or topics changed; set by the replica, no part of the state."""

    def _changed(self) -> None:
        self.changes += 1
        if self.on_change:
            self.on_change()

    def _open_to_all(self, record: Record) -> bool:
        return all(isinstance(command, TakeEpoch) for command in record.commands)

    # --- processes -----------------------------------------------------------------------------------

    def serving(self) -> list[Member]:
        """Members that serve clients."""
        return [member for member in self.members.values() if member.node != NO_NODE]

    def in_rotation(self, member: Member) -> bool:
        """Whether clients should be sent to a member."""
        return member.epoch not in self.rotation.out

    def _take_epoch(self, epoch: int, command: TakeEpoch) -> Result:
        for member in self.members.values():
            if member.process == command.process:
                return Done(member.epoch)
        if not self.cluster_id:
            digest = hashlib.sha256(command.process.encode()).digest()[:16]
            self.cluster_id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        number = self._next_epoch
        self._next_epoch += 1
        if command.node != NO_NODE:
            for older in [m.epoch for m in self.members.values() if m.node == command.node]:
                self._fence(epoch, Fence(older))
        self.members[number] = Member(number, command.process, command.node, command.zone, command.listeners)
        self._roll("epoch", number)
        self._changed()
        return Done(number)

    def _fence(self, epoch: int, command: Fence) -> Result:
        if command.epoch >= self._next_epoch:
            return Refused(Reason.UNKNOWN, f"epoch {command.epoch} was never given out")
        result = super()._fence(epoch, command)
        self.rotation.forget(command.epoch)
        if self.members.pop(command.epoch, None):
            self._changed()
        return result

    def _report(self, epoch: int, command: Report) -> Result:
        member = self.members.get(epoch)
        if member is None or member.node == NO_NODE:
            return Refused(Reason.INVALID, "only brokers report how they do")
        self._roll("report", epoch, command.publish_us, command.fetch_us)
        return self.rotation.report(epoch, command, self.clock_ms)

    def _set_rotation(self, epoch: int, command: SetRotation) -> Result:
        member = self.members.get(command.epoch)
        if member is None or member.node == NO_NODE:
            return Refused(Reason.UNKNOWN, f"epoch {command.epoch} is no broker's")
        was = self.in_rotation(member)
        result = self.rotation.set(command, len(self.serving()), self.clock_ms)
        self._roll("rotation", command.epoch, self.in_rotation(member))
        if was != self.in_rotation(member):
            self._changed()
        return result

    def _allocate_producers(self, epoch: int, command: AllocateProducers) -> Result:
        if not 0 < command.count <= MAX_PRODUCER_BLOCK:
            return Refused(Reason.INVALID, f"a block of {command.count} producer ids")
        first = self._next_producer
        self._next_producer += command.count
        self._roll("producers", first)
        return Done(first)

    # --- topics ----------------------------------------------------------------------------------------

    def _create_topic(self, epoch: int, command: CreateTopic) -> Result:
        if command.topic in self.topics:
            return Done()
        if command.name in self.names:
            return Refused(Reason.EXISTS, f"topic {command.name!r} exists already")
        if not 0 < command.partitions <= MAX_PARTITIONS or len(self.topics) >= MAX_TOPICS or command.domain < 1:
            return Refused(Reason.INVALID, f"{command.partitions} partitions, {len(self.topics)} topics")
        topic = Topic(
            id=command.topic,
            name=command.name,
            domain=command.domain,
            configs=dict(command.configs),
            streams=self._allocate_streams(command.partitions),
            ready=0,
            deleting=False,
            created_ms=self.clock_ms,
        )
        self.topics[topic.id] = self.names[topic.name] = topic
        self.alike[likeness(topic.name)] = topic.name
        self._roll("topic", topic.name, topic.streams)
        self._changed()
        return Done()

    def _allocate_streams(self, count: int) -> list[int]:
        first = self._next_stream
        self._next_stream += count
        return list(range(first, first + count))

    def _add_partitions(self, epoch: int, command: AddPartitions) -> Result:
        topic = self.topics.get(command.topic)
        if topic is None or topic.deleting:
            return Refused(Reason.UNKNOWN, "the topic does not exist")
        missing = command.total - len(topic.streams)
        if missing <= 0 or command.total > MAX_PARTITIONS:
            return Refused(Reason.INVALID, f"the topic has {len(topic.streams)} partitions")
        topic.streams += self._allocate_streams(missing)
        self._roll("partitions", topic.name, topic.streams)
        self._changed()
        return Done()

    def _topic_ready(self, epoch: int, command: TopicReady) -> Result:
        topic = self.topics.get(command.topic)
        if topic is None or topic.deleting:
            return Refused(Reason.UNKNOWN, "the topic does not exist")
        topic.ready = max(topic.ready, min(command.partitions, len(topic.streams)))
        self._roll("ready", topic.name, topic.ready)
        self._changed()
        return Done()

    def _delete_topic(self, epoch: int, command: DeleteTopic) -> Result:
        topic = self.topics.get(command.topic)
        if topic is None or topic.deleting:
            return Refused(Reason.UNKNOWN, "the topic does not exist")
        topic.deleting = True
        del self.names[topic.name]
        if self.alike.get(likeness(topic.name)) == topic.name:
            del self.alike[likeness(topic.name)]
        self._roll("delete", topic.name)
        self._changed()
        return Done()

    def _topic_gone(self, epoch: int, command: TopicGone) -> Result:
        topic = self.topics.get(command.topic)
        if topic is not None and not topic.deleting:
            return Refused(Reason.INVALID, "the topic is not being deleted")
        self.topics.pop(command.topic, None)
        self._roll("gone", command.topic)
        return Done()

    def _alter_configs(self, epoch: int, command: AlterConfigs) -> Result:
        topic = self.topics.get(command.topic)
        if topic is None or topic.deleting:
            return Refused(Reason.UNKNOWN, "the topic does not exist")
        for key in command.remove:
            topic.configs.pop(key, None)
        topic.configs.update(command.put)
        self._roll("configs", topic.name, sorted(topic.configs.items()))
        self._changed()
        return Done()

    # --- configs of what is no topic, quotas -----------------------------------------------------------

    def _alter_resource(self, epoch: int, command: AlterResource) -> Result:
        result = self.resources.alter(command)
        self._roll("resource", command.kind, command.name, sorted(command.put.items()), command.remove)
        self._changed()
        return result

    def _alter_quota(self, epoch: int, command: AlterQuota) -> Result:
        result = self.resources.alter_quota(command)
        self._roll("quota", command.entity, sorted(command.put.items()), command.remove)
        self._changed()
        return result

    # --- access ----------------------------------------------------------------------------------------

    def _put_acls(self, epoch: int, command: PutAcls) -> Result:
        self._roll("acls+", msgspec.msgpack.encode(command.acls))
        return self.access.put_acls(command)

    def _drop_acls(self, epoch: int, command: DropAcls) -> Result:
        self._roll("acls-", msgspec.msgpack.encode(command.acls))
        return self.access.drop_acls(command)

    def _put_user(self, epoch: int, command: PutUser) -> Result:
        self._roll("user+", command.name, command.mechanism, command.salt, command.stored_key)
        return self.access.put_user(command)

    def _drop_user(self, epoch: int, command: DropUser) -> Result:
        self._roll("user-", command.name, command.mechanism)
        return self.access.drop_user(command)

    # --- checkpoints -------------------------------------------------------------------------------------

    def image(self) -> bytes:
        resources, quotas = self.resources.image()
        return msgspec.msgpack.encode(
            ClusterImage(
                base=self._base_image(),
                members=list(self.members.values()),
                topics=list(self.topics.values()),
                cluster_id=self.cluster_id,
                next_epoch=self._next_epoch,
                next_stream=self._next_stream,
                next_producer=self._next_producer,
                resources=resources,
                quotas=quotas,
                access=self.access.image(),
                rotation=self.rotation.image(),
            )
        )

    def restore(self, image: bytes) -> None:
        try:
            decoded = _decoder.decode(image)
        except msgspec.MsgspecError as error:
            raise Halted(f"a checkpoint cannot be read by this version: {error}") from error
        self._restore_base(decoded.base)
        self.members = {m.epoch: m for m in decoded.members}
        self.topics = {t.id: t for t in decoded.topics}
        self.names = {t.name: t for t in decoded.topics if not t.deleting}
        self.alike = {likeness(name): name for name in self.names}
        self.cluster_id = decoded.cluster_id
        self._next_epoch = decoded.next_epoch
        self._next_stream = decoded.next_stream
        self._next_producer = decoded.next_producer
        self.resources.restore(decoded.resources, decoded.quotas)
        self.access.restore(decoded.access)
        self.rotation.restore(decoded.rotation or RotationImage({}, {}))
        self._changed()

    COMMANDS: ClassVar[dict[type, Callable[[Any, int, Any], Result]]] = {
        **COMMON_COMMANDS,
        Fence: _fence,
        TakeEpoch: _take_epoch,
        CreateTopic: _create_topic,
        AddPartitions: _add_partitions,
        TopicReady: _topic_ready,
        DeleteTopic: _delete_topic,
        TopicGone: _topic_gone,
        AlterConfigs: _alter_configs,
        AllocateProducers: _allocate_producers,
        AlterResource: _alter_resource,
        AlterQuota: _alter_quota,
        PutAcls: _put_acls,
        DropAcls: _drop_acls,
        PutUser: _put_user,
        DropUser: _drop_user,
        Report: _report,
        SetRotation: _set_rotation,
    }
