"""Which brokers a client is told of, and which of them it should use for a stream.

Every broker serves everything, so this is about cost and speed, never about truth. A client that says where it is, by a
`client.id` such as `zone_id=eu-1a,app=orders`, is sent to the brokers of its zone, if there are any that do well. It is
told of the others too, unless told not to: most clients reach a coordinator only if their metadata names it.
"""

from __future__ import annotations

import functools

from headwater.metadata.cluster import ClusterState, Member
from headwater.metadata.placement import choose

ZONE_KEY = "zone_id"
NO_ZONE = ""
_ZONES_REMEMBERED = 1_024
"""Client ids whose zone is known without parsing them again."""


@functools.lru_cache(_ZONES_REMEMBERED)
def zone_of(client_id: str) -> str:
    """The zone that a client id names: the first `zone_id` of its `key=value` pairs; empty if it names none.

    A zone's name has no comma. Spaces around keys and values do not count, and what is no pair is passed over.
    """
    for part in client_id.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip() == ZONE_KEY:
            return value.strip()
    return NO_ZONE


class _View:
    """What clients of one zone are told."""

    __slots__ = ("brokers", "leaders")

    def __init__(self, brokers: list[Member], leaders: list[int]) -> None:
        self.brokers = brokers
        self.leaders = leaders


class Routing:
    """The brokers as clients of each zone see them. Kept until members change."""

    def __init__(self, state: ClusterState, *, tell_all: bool = True) -> None:
        self._state = state
        self._tell_all = tell_all
        self._views: dict[str, _View] = {}

    def __repr__(self) -> str:
        return f"<Routing among {len(self._state.serving())} brokers>"

    def refresh(self) -> None:
        """Members have changed, or how they do."""
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

    def brokers(self, zone: str = NO_ZONE) -> list[Member]:
        """The brokers that a client is told of, by node: all, or where zones are kept apart, those of its own if one of
        them does well."""
        return self._view(zone).brokers

    def leaders(self, zone: str = NO_ZONE) -> list[int]:
        """The nodes among which a client's partitions are dealt out."""
        return self._view(zone).leaders

    def leader(self, stream_id: int, zone: str = NO_ZONE) -> int:
        """The node that clients of a zone should use for a stream, -1 if there is none."""
        return choose(stream_id, self._view(zone).leaders)

    def controller(self, zone: str = NO_ZONE) -> int:
        """The node that a client should send admin requests to: one of those that it is told of."""
        return min(self._view(zone).leaders, default=-1)
