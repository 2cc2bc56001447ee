"""M3: rendezvous hashing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.replica.placement import choose

NODES = st.lists(st.integers(-1, 1 << 31), min_size=1, max_size=9, unique=True)


@settings(deadline=None)
@given(st.integers(0, (1 << 64) - 1), NODES)
def test_order_does_not_matter(key: int, nodes: list[int]) -> None:
    """M3: every process chooses the same node, however it lists them."""
    assert choose(key, nodes) == choose(key, nodes[::-1]) == choose(key, sorted(nodes))
    assert choose(key, nodes) in nodes


@settings(deadline=None)
@given(st.integers(0, (1 << 64) - 1), NODES)
def test_only_a_lost_node_s_keys_move(key: int, nodes: list[int]) -> None:
    """M2, M3: whoever was not chosen may go without a change."""
    chosen = choose(key, nodes)
    for gone in nodes:
        left = [node for node in nodes if node != gone]
        if gone != chosen:
            assert choose(key, left) == chosen
        else:
            assert choose(key, left) in {*left, -1}


def test_keys_are_spread() -> None:
    """M3: about evenly, and always the same."""
    spread = Counter(choose(key, [1, 2, 3, 4]) for key in range(4_000))
    assert min(spread.values()) > 900
    assert choose(7, []) == -1
    assert [choose(key, [1, 2, 3]) for key in range(1, 13)] == PINNED


PINNED = [1, 1, 1, 1, 1, 3, 3, 2, 3, 1, 3, 2]
"""What older versions chose: brokers of two versions must agree."""
