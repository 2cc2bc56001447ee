"""What a workload costs in a cloud, compared with replicated Kafka: requests, storage, servers, traffic between zones.

Plain arithmetic on measured rates of requests. Prices and workload are parameters. The default prices are those of one
large cloud. The default workload is that of the Ursa paper (VLDB 2025, section 8); its published table checks the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

MONTH_DAYS = 30


@dataclass(frozen=True, slots=True)
class Prices:
    """In dollars."""

    server_hour: float = 0.0864
    put_thousand: float = 0.005
    get_thousand: float = 0.0004
    object_gb_month: float = 0.023
    disk_gb_month: float = 0.045
    zone_gb: float = 0.01
    """Per GB that crosses from one zone to another."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is written, and how long it is kept."""

    gb: float = 180.0
    """Size as clients send it, compressed."""
    hours: float = 2.0
    log_gb: float = 200.0
    """Size in Kafka's log, for one replica."""
    table_gb: float = 55.0
    """Size in the tables."""
    log_days: float = 7.0
    """How long Kafka keeps its log for readers that return."""
    table_days: float = 30.0
    tiered_local_gb: float = 20.0
    """The part of `log_gb` that Kafka with tiered storage keeps on its own disks."""
    brokers: int = 3
    compactors: int = 3
    connectors: int = 3
    """Servers that write Kafka's records into tables."""
    replicas: int = 3
    crossings: float = 3.0
    """How often a GB crosses zones in Kafka: to its leader, and to two followers elsewhere."""


@dataclass(frozen=True, slots=True)
class Requests:
    """All requests to the object store per GB that clients write: log, settling, reading, garbage collection."""

    puts: float
    """Uploads and listings, which have the same price. Deletions are free."""
    gets: float


@dataclass(frozen=True, slots=True)
class Bill:
    """One system's costs, in dollars."""

    system: str
    servers: float
    connectors: float
    zones: float
    storage: float
    requests: float

    @property
    def total(self) -> float:
        return self.servers + self.connectors + self.zones + self.storage + self.requests


URSA = Requests(puts=73_000 / 180, gets=73_000 / 180)
"""The counts of the paper: about as many reads, for compaction, as writes."""


def bills(work: Workload, requests: Requests, prices: Prices, system: str = "Headwater") -> list[Bill]:
    """The costs of a workload on a log in object storage, on Kafka, and on Kafka with tiered storage."""
    table = work.table_gb * prices.object_gb_month * work.table_days / MONTH_DAYS
    asked = work.gb * (requests.puts * prices.put_thousand + requests.gets * prices.get_thousand) / 1000
    machines = work.hours * prices.server_hour
    crossing = work.log_gb * work.crossings * prices.zone_gb
    disks = work.replicas * work.log_gb * prices.disk_gb_month
    local = work.replicas * work.tiered_local_gb * prices.disk_gb_month
    tiered = (work.log_gb - work.tiered_local_gb) * prices.object_gb_month * work.log_days / MONTH_DAYS
    kafka, connectors = work.brokers * machines, work.connectors * machines
    return [
        Bill(system, (work.brokers + work.compactors) * machines, 0.0, 0.0, table, asked),
        Bill("Kafka on disks", kafka, connectors, crossing, disks + table, 0.0),
        Bill("Kafka, tiered storage", kafka, connectors, crossing, local + tiered + table, 0.0),
    ]
