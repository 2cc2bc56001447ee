"""One read of an object per zone: each WAL object has an owner among the brokers of a zone, and the others ask it.

If the writer of the object is in this zone, it is the owner, since it has the object in memory. Otherwise a rendezvous
hash picks the owner. This only saves requests to the store: a broker that gets no answer in time reads the store.
"""

from __future__ import annotations

from typing import Protocol

from headwater.clock import Clock
from headwater.errors import Damaged, Retriable
from headwater.log.wal import format as wal
from headwater.replica.placement import choose
from headwater.settings.settings import INTERNAL
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState
from headwater.types import WalId

AVOID_SECONDS = 2.0
"""A broker that did not answer is not asked again for this long."""
_EPOCH_BITS = 32


class PeerFailed(Retriable):
    """Another broker did not answer in time, or answered wrongly."""


class PeerTransport(Protocol):
    """The way in which a broker asks other brokers."""

    async def ask(self, address: tuple[str, int], domain: int, object_id: WalId) -> bytes | None:
        """The bytes of an object; None if the other broker does not find it. Raises `PeerFailed`."""

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

    def owner(self, object_id: WalId) -> Process | None:
        """The broker of this zone that should read an object; None if no broker of the zone can be asked."""
        near = {
            member.node: member
            for member in self._cluster.serving()
            if member.zone == self._zone and self._cluster.in_rotation(member) and _address(member) is not None
        }
        for member in near.values():
            if member.epoch == object_id.epoch:
                return member
        return near.get(choose(object_id.epoch << _EPOCH_BITS | object_id.sequence, list(near)))

    def _askable(self, object_id: WalId) -> tuple[Process, tuple[str, int]] | None:
        owner = self.owner(object_id)
        address = _address(owner) if owner is not None else None
        if owner is None or address is None or owner.node == self._node:
            return None
        return None if self._avoided.get(owner.epoch, 0.0) > self._clock.monotonic() else (owner, address)

    def can_ask(self, object_id: WalId) -> bool:
        """Whether another broker owns this object and has not failed recently."""
        return self._askable(object_id) is not None

    async def fetch(self, domain: int, object_id: WalId) -> bytes | None:
        """The object from its owner; None if this broker has to read the store itself."""
        askable = self._askable(object_id)
        if askable is None:
            return None
        owner, address = askable
        try:
            data = await self._transport.ask(address, domain, object_id)
            if data is not None and wal.identity(data) != (object_id, domain):
                raise PeerFailed(f"node {owner.node} answered with another object than {object_id}")
        except (PeerFailed, Damaged):
            self.failed += 1
            self._avoid(owner)
            return None
        if data is None:
            self.missing += 1
        else:
            self.answered += 1
        return data

    def _avoid(self, member: Process) -> None:
        live = self._cluster.processes
        self._avoided = {epoch: until for epoch, until in self._avoided.items() if epoch in live}
        self._avoided[member.epoch] = self._clock.monotonic() + AVOID_SECONDS


def _address(member: Process) -> tuple[str, int] | None:
    """The address at which other brokers reach a member."""
    return next(((x.host, x.port) for x in member.listeners if x.name == INTERNAL), None)
