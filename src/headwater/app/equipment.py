"""What a broker and a gateway open first and close last: ledger, store, threads, connections to other brokers."""

from __future__ import annotations

from headwater.app.directories import prepare
from headwater.app.peers import connections
from headwater.background import Background
from headwater.clock import SystemChance, host_clock
from headwater.ledger import open_ledger
from headwater.ledger.bucket import counts as ledger_metrics
from headwater.objects import ObjectStore, open_store
from headwater.objects import metrics as object_metrics
from headwater.ops.metrics import Metric
from headwater.settings.settings import Settings
from headwater.threads import Offload, Threads, Turns


class Equipment:
    """See the module. The data directory is prepared first."""

    def __init__(self, settings: Settings, background: Background) -> None:
        prepare(settings)
        self.ledger = open_ledger(settings.ledger_url, settings.object_store, background)
        self.store: ObjectStore = open_store(settings.objects_url, settings.object_store)
        self.clock = host_clock()
        self.chance = SystemChance()
        self.peers = connections(settings, self.chance)
        self._segments = Threads(1, "segments", Turns())
        self._opening = (Threads(1, "opening", Turns()), Threads(1, "opening-huge", Turns()))

    def __repr__(self) -> str:
        return f"<Equipment of {self.ledger!r} and {self.store!r}>"

    @property
    def offload(self) -> Offload:
        """Runs the decoding of segments."""
        return self._segments.run

    @property
    def openers(self) -> tuple[Offload, Offload]:
        """Run the opening of batches: of most, and of huge ones."""
        return self._opening[0].run, self._opening[1].run

    def metrics(self) -> list[Metric]:
        """The metrics of the stores."""
        return object_metrics.collect(self.store) + ledger_metrics.collect(self.ledger)

    async def close(self) -> None:
        """Close everything. Nothing may use it any more."""
        if self.peers is not None:
            await self.peers.close()
        for threads in (self._segments, *self._opening):
            await threads.close()
        await self.ledger.close()
        await self.store.close()
