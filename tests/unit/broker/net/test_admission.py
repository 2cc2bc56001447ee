"""Limits on connections, in all, by address and by second."""

from headwater.broker.net.admission import Admission, Admissions
from headwater.security.quotas import ClientQuotas
from headwater.settings import settings as config
from headwater.state.cluster.resources import ConfigResource, Resources
from headwater.state.commands.cluster import AlterResource
from tests.support.hands import Hands
from tests.support.promise import promise

PROMISES = ("K14",)


def admissions(**limits: int) -> tuple[Admissions, Resources, ClientQuotas, Hands]:
    settings = config.Settings(limits=config.Limits(**limits))
    clock = Hands()
    quotas = ClientQuotas(settings.quotas, clock)
    return Admissions(settings, quotas, clock), Resources(), quotas, clock


@promise("K14")
def test_connections_in_all_and_from_one_address() -> None:
    """Limits of the settings, and those that were changed since."""
    door, resources, _, _ = admissions(connections=3, connections_per_address=2)
    assert [door.knock(a, resources).taken for a in ("a", "a", "a", "b", "c")] == [True, True, False, True, False]
    door.release("a")
    assert door.knock("c", resources) == Admission(True)
    assert door.count == 3
    changed = {"max.connections": "5", "max.connections.per.ip": "1"}
    resources.alter(AlterResource(ConfigResource.BROKER, "", changed, ()))
    assert [door.knock(a, resources).taken for a in ("c", "d", "e", "f")] == [False, True, True, False]
    for address in ("a", "b", "c", "d", "e"):
        door.release(address)
    assert repr(door) == "<Admissions: 0 connections from 0 addresses>"


@promise("K14")
def test_new_connections_in_a_second() -> None:
    """Too many in all are kept waiting, too many from one address are refused after a while."""
    door, resources, quotas, clock = admissions(connections_per_second=1)
    assert all(door.knock("a", resources) == Admission(True) for _ in range(10))
    assert door.knock("a", resources) == Admission(True, 1.0)
    clock.now += 100
    quotas.refresh({(("ip", "b"),): {"connection_creation_rate": "1"}}, 1)
    assert all(door.knock("b", resources) == Admission(True) for _ in range(10))
    assert door.knock("b", resources) == Admission(False, 1.0, "connection_rate")
    clock.now += 11
    assert door.knock("b", resources).taken
    assert door.count == 22
