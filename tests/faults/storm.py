"""Faults one after another on a cluster under load: processes killed and stopped, stores that go away and come back."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from harness.cluster import Cluster
from harness.patience import eventually
from headwater.replica.membership import SESSION_SECONDS
from tests.faults.lake_running import patiently
from tests.support.load import Load

RECOVER_SECONDS = 90.0
SETTLED = "headwater_settled_files_total"
PAUSE_LIMIT_SECONDS = 2.5 * SESSION_SECONDS


@dataclass(frozen=True, slots=True)
class Felt:
    """A fault, and how long some partition took nothing because of it."""

    what: str
    pause: float


class Storm:
    """Makes faults of some kinds and waits each time until all partitions take records again."""

    def __init__(self, cluster: Cluster, load: Load, seed: int, outage_seconds: float) -> None:
        self._cluster = cluster
        self._load = load
        self._chance = random.Random(seed)
        self._outage = outage_seconds
        self.felt: list[Felt] = []

    def strike(self, kinds: str) -> None:
        """One fault of one of these kinds, and the recovery from it."""
        what = self._chance.choice(FAULTS[kinds])
        start = time.monotonic()
        mend = what(self)
        mend()
        mended = time.monotonic()
        eventually(
            lambda: self._load.problems or self._load.acknowledged_everywhere(mended),
            f"all partitions take records after {what.__name__}",
            RECOVER_SECONDS,
        )
        self.felt.append(Felt(what.__name__.strip("_"), self._load.pause_after(start, time.monotonic())))

    def _wait(self, seconds: float) -> None:
        """Let a fault last. Nothing counts on its length."""
        time.sleep(seconds)

    # --- brokers -------------------------------------------------------------------------------------

    def kill_broker(self) -> Callable[[], None]:
        node = self._chance.randrange(1, self._cluster.brokers + 1)
        self._cluster.member(node).kill()
        moment = time.monotonic()
        # The traffic has to find its way without the dead broker, not wait for its return.
        eventually(
            lambda: self._load.problems or self._load.acknowledged_everywhere(moment),
            f"others take over from broker {node}",
            RECOVER_SECONDS,
        )
        return lambda: self._cluster.restart(node)

    def pause_broker(self) -> Callable[[], None]:
        node = self._chance.randrange(1, self._cluster.brokers + 1)
        process = self._cluster.broker(node)
        self._cluster.pause(process)
        self._wait(self._chance.uniform(0.2, PAUSE_LIMIT_SECONDS))
        return lambda: process.send_signal(signal.SIGCONT)

    # --- stores --------------------------------------------------------------------------------------

    def kill_metadata_node(self) -> Callable[[], None]:
        servers = self._cluster.stores.metadata
        if self._cluster.stores.ledger == "oxia":
            servers.kill()
            self._wait(self._outage / 5)
            return lambda: servers.start()
        node = self._chance.randrange(len(servers.names))
        servers.kill(node)
        self._wait(self._outage / 5)
        return lambda: servers.start(node)

    def pause_metadata_node(self) -> Callable[[], None]:
        servers = self._cluster.stores.metadata
        if self._cluster.stores.ledger == "oxia":
            servers.pause()
            self._wait(self._outage / 5)
            return lambda: servers.resume()
        node = self._chance.randrange(len(servers.names))
        servers.pause(node)
        self._wait(self._outage / 5)
        return lambda: servers.resume(node)

    def kill_metadata_leader(self) -> Callable[[], None]:
        servers = self._cluster.stores.metadata
        if self._cluster.stores.ledger == "oxia":
            return self.kill_metadata_node()
        node = servers.leader()
        servers.kill(node)
        self._wait(self._outage / 5)
        return lambda: servers.start(node)

    def kill_object_store(self) -> Callable[[], None]:
        self._cluster.stores.s3.kill()
        self._wait(self._outage)
        return self._cluster.stores.s3.start

    def pause_object_store(self) -> Callable[[], None]:
        self._cluster.stores.s3.pause()
        self._wait(self._outage)
        return self._cluster.stores.s3.resume

    # --- the compactor -------------------------------------------------------------------------------

    def kill_compactor(self) -> Callable[[], None]:
        """At some moment of its start, or as soon as it has settled something."""
        compactor = self._cluster.compactor()
        patience = self._chance.uniform(0.0, RECOVER_SECONDS)
        with suppress(TimeoutError):
            patiently(lambda: compactor.is_ready and compactor.metric(SETTLED), "it has settled something", patience)
        family = psutil.Process(compactor.pid).children(recursive=True)
        compactor.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()

        def launch() -> None:
            compactor.launch()

        return launch


FAULTS: Mapping[str, list[Callable[[Storm], Callable[[], None]]]] = {
    "brokers": [Storm.kill_broker, Storm.kill_broker, Storm.pause_broker],
    "metadata": [Storm.kill_metadata_node, Storm.pause_metadata_node, Storm.kill_metadata_leader],
    "objects": [Storm.kill_object_store, Storm.kill_object_store, Storm.pause_object_store],
    "compactor": [Storm.kill_compactor],
    "everything": [
        Storm.kill_broker, Storm.pause_broker, Storm.kill_metadata_node, Storm.kill_metadata_leader,
        Storm.kill_object_store,
    ],
}  # fmt: skip
