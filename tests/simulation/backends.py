"""The ledgers that a simulated cluster can stand on: the plain one in memory, and models of real stores."""

from __future__ import annotations

from collections.abc import Callable

from harness.virtual import SeededChance
from headwater.clock import Chance
from headwater.ledger import Ledger
from headwater.ledger.etcd.layout import Sizes
from headwater.ledger.etcd.ledger import EtcdLedger
from headwater.ledger.oxia.ledger import OxiaLedger
from tests.simulation.bucket_model import use_bucket
from tests.simulation.etcd_model import EtcdModel, ModelClient, SimNetwork
from tests.simulation.oxia_model import OxiaFaults, OxiaModel
from tests.simulation.stores import Faults, SimLedger, World

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


def _oxia(world: World) -> None:
    """Two shards, whose leaders change now and then and do not know it at once."""
    model = OxiaModel(shards=2)

    def faults() -> OxiaFaults:
        now = world.faults
        return OxiaFaults(
            refused=now.append_refused,
            lost=now.append_lost,
            reply_lost=now.append_reply_lost,
            late=now.append_late,
            late_seconds=now.late_seconds,
            read_refused=now.read_refused,
            notice_lost=now.read_refused,
            delay=now.delay,
            down=world.outage,
        )

    def trouble() -> None:
        if world.faults != Faults(delay=world.faults.delay):
            shard = world.rng.randrange(2)
            model.depose(shard)
            world.loop.outside(world.rng.random() * 5, model.enlighten, shard)
        world.loop.outside(world.rng.uniform(1, 20), trouble)

    world.loop.outside(world.rng.uniform(1, 20), trouble)
    world.open_ledger = lambda chance: OxiaLedger(model.open(world.rng, faults))
    world.verdict_ledger = OxiaLedger(model.open())


BACKENDS: dict[str, Callable[[World], None]] = {
    "memory": _memory,
    "etcd": _etcd,
    "oxia": _oxia,
    "bucket": use_bucket,
}
"""What each does to a world before its first broker starts."""
