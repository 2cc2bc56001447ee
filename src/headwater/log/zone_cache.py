"""One read of an object per zone: each WAL object has an owner among a zone's brokers, and the others ask it.

The owner is the object's writer, who has it in memory, if that is in this zone, else whoever a rendezvous hash picks.
This saves requests to the store and decides nothing: who gets no answer in time reads the store.
"""

from __future__ import annotations

from typing import Protocol

from headwater.clock import Clock
from headwater.config import INTERNAL
from headwater.errors import CorruptObject, Retriable
from headwater.log import wal
from headwater.metadata.cluster import ClusterState, Member
from headwater.metadata.placement import choose
from headwater.types import WalId

AVOID_SECONDS = 2.0
"""A broker that did not answer is not asked again for so long."""
_EPOCH_BITS = 32


class PeerFailed(Retriable):
    """Another broker did not answer in time, or not as it should."""


class PeerTransport(Protocol):
    """How a broker asks others."""

    async def ask(self, address: tuple[str, int], domain: int, object_id: WalId) -> bytes | None:
        """An object's bytes, or nothing if the other has no such object; raises `PeerFailed`."""

    async def close(self) -> None:
        """End all connections."""


class ZoneCache:
    """Asks the owners of WAL objects in this broker's zone."""

    def __init__(self, cluster: ClusterState, transport: PeerTransport, clock: Clock, *, node: int, zone: str) -> None:
        self._cluster = cluster
        self._transport = transport
        self._clock = clock
        self._node = node
        self._zone = zone
        self._avoided: dict[int, float] = {}
        self.answered = 0
        self.missing = 0
        self.failed = 0

    def __repr__(self) -> str:
        return f"<ZoneCache of node {self._node} in {self._zone}: {self.answered} answers, {self.failed} failures>"

    def owner(self, object_id: WalId) -> Member | None:
        """The broker of this zone that should read an object; nobody if there is none that can be asked."""
        near = {
            member.node: member
            for member in self._cluster.serving()
            if member.zone == self._zone and self._cluster.in_rotation(member) and _address(member) is not None
        }
        for member in near.values():
            if member.epoch == object_id.epoch:
                return member
        return near.get(choose(object_id.epoch << _EPOCH_BITS | object_id.sequence, list(near)))

    def _askable(self, object_id: WalId) -> tuple[Member, tuple[str, int]] | None:
        owner = self.owner(object_id)
        address = _address(owner) if owner is not None else None
        if owner is None or address is None or owner.node == self._node:
            return None
        return None if self._avoided.get(owner.epoch, 0.0) > self._clock.monotonic() else (owner, address)

    def can_ask(self, object_id: WalId) -> bool:
        """Whether another broker is this object's owner, and answers as far as is known."""
        return self._askable(object_id) is not None

    async def fetch(self, domain: int, object_id: WalId) -> bytes | None:
        """An object from its owner; nothing if this broker has to read the store itself."""
        askable = self._askable(object_id)
        if askable is None:
            return None
        owner, address = askable
        try:
            data = await self._transport.ask(address, domain, object_id)
            if data is not None and wal.identity(data) != (object_id, domain):
                raise PeerFailed(f"node {owner.node} answered with another object than {object_id}")
        except (PeerFailed, CorruptObject):
            self.failed += 1
            self._avoid(owner)
            return None
        if data is None:
            self.missing += 1
        else:
            self.answered += 1
        return data

    def _avoid(self, member: Member) -> None:
        live = self._cluster.members
        self._avoided = {epoch: until for epoch, until in self._avoided.items() if epoch in live}
        self._avoided[member.epoch] = self._clock.monotonic() + AVOID_SECONDS


def _address(member: Member) -> tuple[str, int] | None:
    """Where other brokers reach a member."""
    return next(((x.host, x.port) for x in member.listeners if x.name == INTERNAL), None)
