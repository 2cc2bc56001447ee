"""Which process copies which partitions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.link.copying.shares import held, lease_of, owner_of, plan, presence_of, present, share_of
from headwater.state.machine import Lease

SHARES = 8


def leases(*epochs: int, until: int = 100) -> dict[str, Lease]:
    return {presence_of(epoch): Lease(epoch, epoch, until) for epoch in epochs}


def test_a_process_alone_takes_all_shares() -> None:
    found = plan({}, 10, 7, ["orders"], SHARES)
    assert found.take == (presence_of(7), *(lease_of("orders", share) for share in range(SHARES)))
    assert found.give == ()


def test_a_process_that_is_not_heard_of_any_more_owns_nothing() -> None:
    assert present(leases(1, until=10) | leases(2, until=100), 50) == [2]
    assert len(plan(leases(1, until=10), 50, 2, ["orders"], SHARES).take) == SHARES + 1


def test_leases_of_others_are_left_alone_until_they_expire() -> None:
    taken = {lease_of("orders", share): Lease(1, 1, 100) for share in range(SHARES)}
    assert plan(taken, 99, 2, ["orders"], SHARES).take == (presence_of(2),)
    assert len(plan(taken, 100, 2, ["orders"], SHARES).take) == SHARES + 1


def test_leases_of_links_that_are_gone_are_given_up() -> None:
    taken = {lease_of("orders", 3): Lease(2, 1, 100), lease_of("orders", 4): Lease(1, 2, 100)}
    assert plan(taken, 10, 2, [], SHARES).give == (lease_of("orders", 3),)


@settings(max_examples=20)
@given(st.sets(st.integers(1, 1000), min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
def test_after_a_few_rounds_every_share_has_one_holder(epochs: set[int], links: list[str]) -> None:
    """Processes that come one after another settle, whatever the order of their rounds."""
    known: dict[str, Lease] = {}
    for now in range(3 * len(epochs) + 3):
        for epoch in sorted(epochs):
            found = plan(known, now, epoch, links, SHARES)
            for name in found.take:
                known[name] = Lease(epoch, 1, 1_000)
            for name in found.give:
                known[name] = Lease(epoch, 1, now)
    for link in links:
        owned = [held(known, 500, epoch, link, SHARES) for epoch in sorted(epochs)]
        assert sorted(share for shares in owned for share in shares) == list(range(SHARES))


@settings(max_examples=30)
@given(st.sets(st.integers(1, 1000), min_size=2, max_size=6), st.integers(0, SHARES - 1))
def test_a_share_moves_only_if_its_owner_leaves(epochs: set[int], share: int) -> None:
    name = lease_of("orders", share)
    owner = owner_of(name, epochs)
    for gone in epochs - {owner}:
        assert owner_of(name, epochs - {gone}) == owner


def test_two_processes_get_about_the_same_number_of_shares() -> None:
    for first in range(1, 50):
        owners = [owner_of(lease_of(link, share), (first, first + 1)) for link in "abcd" for share in range(SHARES)]
        assert 6 <= owners.count(first) <= 26


@given(st.binary(min_size=16, max_size=16), st.integers(0, 1 << 31), st.integers(1, 64))
def test_every_partition_has_a_share(topic: bytes, partition: int, shares: int) -> None:
    assert 0 <= share_of(topic, partition, shares) < shares
