"""Rendezvous hashing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.replica.placement import choose
from tests.support.promise import promise

PROMISES = ("M3",)

NODES = st.lists(st.integers(-1, 1 << 31), min_size=1, max_size=9, unique=True)


@promise("M3")
@settings(deadline=None)
@given(st.integers(0, (1 << 64) - 1), NODES)
def test_order_does_not_matter(key: int, nodes: list[int]) -> None:
    """Every process chooses the same node, however it lists them."""
    assert choose(key, nodes) == choose(key, nodes[::-1]) == choose(key, sorted(nodes))
    assert choose(key, nodes) in nodes


@promise("M2", "M3")
@settings(deadline=None)
@given(st.integers(0, (1 << 64) - 1), NODES)
def test_only_a_lost_node_s_keys_move(key: int, nodes: list[int]) -> None:
    """Whoever was not chosen may go without a change."""
    chosen = choose(key, nodes)
    for gone in nodes:
        left = [node for node in nodes if node != gone]
        if gone != chosen:
            assert choose(key, left) == chosen
        else:
            assert choose(key, left) in {*left, -1}


@promise("M3")
def test_keys_are_spread() -> None:
    """About evenly, and always the same."""
    spread = Counter(choose(key, [1, 2, 3, 4]) for key in range(4_000))
    assert min(spread.values()) > 900
    assert choose(7, []) == -1
    assert [choose(key, [1, 2, 3]) for key in range(1, 13)] == PINNED


PINNED = [1, 1, 1, 1, 1, 3, 3, 2, 3, 1, 3, 2]
"""What older versions chose: brokers of two versions must agree."""
