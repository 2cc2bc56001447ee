"""The cost calculator, checked against a published table."""

from dataclasses import asdict

import pytest

from headwater.ops.cost import URSA, Bill, Prices, Requests, Workload, bills
from tests.support.promise import promise

PROMISES = ("O7",)

PUBLISHED = {
    "Ursa": {"servers": 1.04, "connectors": 0.0, "zones": 0.0, "storage": 1.27, "requests": 0.40, "total": 2.71},
    "Kafka on disks": {
        "servers": 0.52, "connectors": 0.52, "zones": 6.0, "storage": 28.27, "requests": 0.0, "total": 35.31,
    },
    "Kafka, tiered storage": {
        "servers": 0.52, "connectors": 0.52, "zones": 6.0, "storage": 4.94, "requests": 0.0, "total": 11.98,
    },
}  # fmt: skip
"""Table 1 of the Ursa paper."""


def as_told(bill: Bill) -> dict[str, float]:
    return {name: value for name, value in asdict(bill).items() if name != "system"} | {"total": bill.total}


@promise("O7")
@pytest.mark.parametrize("system", PUBLISHED)
def test_the_published_table_comes_out(system: str) -> None:
    """With the paper's workload, prices and requests, to the cents that its rounded parts leave open."""
    found = {bill.system: as_told(bill) for bill in bills(Workload(), URSA, Prices(), "Ursa")}
    assert found[system] == {name: pytest.approx(dollars, abs=0.021) for name, dollars in PUBLISHED[system].items()}


@promise("O7")
def test_twice_the_requests_cost_twice() -> None:
    """And nothing else changes."""
    once, *_ = bills(Workload(), Requests(100, 200), Prices())
    twice, *_ = bills(Workload(), Requests(200, 400), Prices())
    assert twice.requests == pytest.approx(2 * once.requests)
    assert (twice.servers, twice.storage) == (once.servers, once.storage)
