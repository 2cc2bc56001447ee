"""The broker that looks after a shard. Groups and transactional ids are divided into shards, shards among brokers."""

from __future__ import annotations

from functools import lru_cache

from headwater.replica.placement import choose
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState

GROUPS = 1 << 40
"""Hash keys of shards of groups begin here, apart from those of streams."""
TRANSACTIONS = 1 << 41
"""Hash keys of shards of transactional ids begin here."""


_REMEMBERED = 64
"""Divisions of shards that are remembered. A division changes only when brokers come, go or leave the rotation."""


def place(state: ClusterState, key: int, keep: int = 0) -> Process | None:
    """The live broker that a rendezvous hash picks for a key, among those in rotation in all zones.

    The broker with the epoch `keep` is a candidate also if it is out of rotation.
    """
    members = _candidates(state, keep)
    return members.get(choose(key, list(members)))


def shards_of(state: ClusterState, first: int, count: int, node: int) -> frozenset[int]:
    """Which of `count` shards, whose hash keys begin at `first`, `place` gives to a node."""
    return _shards_of(first, count, node, tuple(_candidates(state, 0)))


@lru_cache(_REMEMBERED)
def _shards_of(first: int, count: int, node: int, nodes: tuple[int, ...]) -> frozenset[int]:
    if node not in nodes:
        return frozenset()
    return frozenset(shard for shard in range(count) if choose(first + shard, nodes) == node)


def _candidates(state: ClusterState, keep: int) -> dict[int, Process]:
    return {
        member.node: member
        for member in state.serving()
        if not state.rotation.out or state.in_rotation(member) or member.epoch == keep
    }
