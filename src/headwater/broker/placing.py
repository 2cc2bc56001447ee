"""The broker that looks after a shard. Groups and transactional ids are divided into shards, shards among brokers."""

from __future__ import annotations

from headwater.replica.placement import choose
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState

GROUPS = 1 << 40
"""Hash keys of shards of groups begin here, apart from those of streams."""
TRANSACTIONS = 1 << 41
"""Hash keys of shards of transactional ids begin here."""


def place(state: ClusterState, key: int, keep: int = 0) -> Process | None:
    """The live broker that a rendezvous hash picks for a key, among those in rotation in all zones.

    The broker with the epoch `keep` is a candidate also if it is out of rotation.
    """
    members = {
        member.node: member
        for member in state.serving()
        if not state.rotation.out or state.in_rotation(member) or member.epoch == keep
    }
    return members.get(choose(key, list(members)))
