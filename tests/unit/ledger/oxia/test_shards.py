"""Routes go to the shard that Oxia's own clients would send them to."""

import pytest

from headwater.errors import StoreUnavailable
from headwater.ledger.oxia.shards import Shard, find_shard, hash_of
from tests.support.promise import promise

PROMISES = ("M1",)

KNOWN = {
    "headwater-000000": 1074036623,
    "headwater-000001": 4063081089,
    "headwater-000002": 3789448765,
    "headwater-123456": 4235896798,
    "headwater-beats": 2881521395,
    "123456789": 1738636799,
}
"""What the hash library of Oxia's server gives."""


@promise("M1")
@pytest.mark.parametrize("route", KNOWN)
def test_hashes_are_those_of_oxia(route: str) -> None:
    assert hash_of(route) == KNOWN[route]


@promise("M1")
def test_other_lengths_are_refused() -> None:
    """The hash of other lengths is computed in another way, which nothing here needs."""
    for route in ("12345678", "12345678901234567"):
        with pytest.raises(ValueError, match="9 to 16 bytes"):
            hash_of(route)


@promise("M1")
def test_both_ends_of_a_range_belong_to_its_shard() -> None:
    hashed = KNOWN["headwater-beats"]
    below, above = Shard(0, "a:1", 0, hashed - 1), Shard(2, "c:1", hashed + 1, (1 << 32) - 1)
    here = Shard(1, "b:1", hashed, hashed)
    assert find_shard([below, here, above], "headwater-beats") == here
    with pytest.raises(StoreUnavailable, match="no shard"):
        find_shard([below, above], "headwater-beats")
