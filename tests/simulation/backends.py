"""The ledgers that a simulated cluster can stand on: the plain one in memory, and models of real stores."""

from __future__ import annotations

from collections.abc import Callable

from headwater.clock import Chance
from headwater.metadata import Ledger
from headwater.metadata.etcd import EtcdLedger
from headwater.metadata.etcd_log import Sizes
from tests.simulation.bucket_model import use_bucket
from tests.simulation.etcd_model import EtcdModel, ModelClient, SimNetwork
from tests.simulation.stores import SimLedger, World
from tests.support.virtual import SeededChance

SMALL = Sizes(page_records=7, page_bytes=1 << 12, boundaries=4, feed_records=9, feed_bytes=1 << 12, read_keys=3)
"""So that a few records do what otherwise takes thousands."""


def _memory(world: World) -> None:
    world.open_ledger = lambda chance: SimLedger(world)


def _etcd(world: World) -> None:
    model = EtcdModel()

    def open_ledger(chance: Chance) -> Ledger:
        return EtcdLedger(ModelClient(model, SimNetwork(world)), "sim", chance, sizes=SMALL)

    world.open_ledger = open_ledger
    world.verdict_ledger = EtcdLedger(ModelClient(model), "sim", SeededChance())


BACKENDS: dict[str, Callable[[World], None]] = {"memory": _memory, "etcd": _etcd, "bucket": use_bucket}
"""What each does to a world before its first broker starts."""
