"""The node that clients should use for a stream. By rendezvous hashing a change of the nodes moves few streams."""

from __future__ import annotations

from collections.abc import Sequence

_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    """The finisher of SplitMix64: every bit of the input changes half of the output."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def choose(key: int, nodes: Sequence[int]) -> int:
    """The node with the highest weight for a key, or -1 if there is none."""
    if len(nodes) < 2:
        return nodes[0] if nodes else -1
    mixed = _mix(key)
    best, heaviest = -1, -1
    for node in nodes:
        weight = _mix(mixed ^ node)
        if weight > heaviest or (weight == heaviest and node > best):
            best, heaviest = node, weight
    return best
