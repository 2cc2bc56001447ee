"""Which brokers the metadata for a client lists, and which of them the client should use for a stream.

Every broker serves every stream, so routing affects cost and speed, not correctness. A client that names its zone with
a `client.id` such as `zone_id=eu-1a,app=orders` uses the brokers of its zone, if any of them is in rotation. By default
its metadata lists the other brokers, too: most clients reach a coordinator only if their metadata names it.
"""

from __future__ import annotations

import functools

from headwater.replica.placement import choose
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState

ZONE_KEY = "zone_id"
NO_ZONE = ""
_ZONES_REMEMBERED = 1_024
"""The number of client ids whose zone is cached."""


@functools.lru_cache(_ZONES_REMEMBERED)
def zone_of(client_id: str) -> str:
    """The zone that a client id names: the first `zone_id` of its `key=value` pairs; empty if it names none.

    A zone's name has no comma. Spaces around keys and values are ignored, as are parts that are not pairs.
    """
    for part in client_id.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip() == ZONE_KEY:
            return value.strip()
    return NO_ZONE


class _View:
    """The brokers for clients of one zone."""

    __slots__ = ("brokers", "leaders")

    def __init__(self, brokers: list[Process], leaders: list[int]) -> None:
        self.brokers = brokers
        self.leaders = leaders


class Routing:
    """The brokers for clients of each zone. They are cached until members change."""

    def __init__(self, state: ClusterState, *, tell_all: bool = True) -> None:
        self._state = state
        self._tell_all = tell_all
        self._views: dict[str, _View] = {}

    def __repr__(self) -> str:
        return f"<Routing among {len(self._state.serving())} brokers>"

    def refresh(self) -> None:
        """Drop the cache, after members or the rotation have changed."""
        self._views.clear()

    def _view(self, zone: str) -> _View:
        view = self._views.get(zone)
        if view is not None:
            return view
        everybody = sorted(self._state.serving(), key=lambda member: member.node)
        well = [member for member in everybody if self._state.in_rotation(member)]
        here = [member for member in well if member.zone == zone] if zone else []
        if zone and not here:
            return self._view(NO_ZONE)
        narrow = bool(here) and not self._tell_all
        told = [member for member in everybody if member.zone == zone] if narrow else everybody
        view = self._views[zone] = _View(told, [member.node for member in here or well or everybody])
        return view

    def brokers(self, zone: str = NO_ZONE) -> list[Process]:
        """The brokers in the metadata for a client, by node: all of them. If zones are kept apart, only those of the
        client's zone, if one of them is in rotation."""
        return self._view(zone).brokers

    def leaders(self, zone: str = NO_ZONE) -> list[int]:
        """The nodes among which a client's partitions are divided."""
        return self._view(zone).leaders

    def leader(self, stream_id: int, zone: str = NO_ZONE) -> int:
        """The node that clients of a zone should use for a stream; -1 if there is none."""
        return choose(stream_id, self._view(zone).leaders)

    def controller(self, zone: str = NO_ZONE) -> int:
        """The node to which a client should send admin requests: one of those in its metadata."""
        return min(self._view(zone).leaders, default=-1)
