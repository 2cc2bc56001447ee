"""Settings as plain data: defaults here, then a TOML (or JSON) file, then `HEADWATER_…` variables, then flags.

Unknown names and wrong types are refused. `wal.hold_ms` in a file is `[wal]` with `hold_ms`; in the environment it is
`HEADWATER_WAL__HOLD_MS`. A setting that is not given keeps its default, also inside a section that is given.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import ConfigError
from headwater.settings.gateway import Gateway as Gateway
from headwater.settings.gateway import check_gateway
from headwater.settings.limits import MAX_CLUSTER_PARTITIONS
from headwater.settings.limits import Limits as Limits
from headwater.settings.limits import Quotas as Quotas
from headwater.settings.links import Links as Links
from headwater.settings.links import check_links
from headwater.settings.names import check_names, variables
from headwater.settings.objects import StoreOptions
from headwater.settings.schema_registry import SchemaRegistry as SchemaRegistry
from headwater.settings.schema_registry import check_schema_registry
from headwater.settings.security import AUTHENTICATION as AUTHENTICATION
from headwater.settings.security import MECHANISMS as MECHANISMS
from headwater.settings.security import PROTOCOLS as PROTOCOLS
from headwater.settings.security import HttpSecurity as HttpSecurity
from headwater.settings.security import ListenerSecurity as ListenerSecurity
from headwater.settings.security import Oauth as Oauth
from headwater.settings.security import Security as Security
from headwater.settings.security import Tls as Tls
from headwater.settings.security import check_security
from headwater.settings.sql import Sql as Sql
from headwater.settings.sql import check_sql
from headwater.settings.zones import NO_ZONE, parse_zones

MIB = 1 << 20
MIN_PROCESS_SESSION_MS = 600
INTERNAL = "INTERNAL"
"""Name of the listener for other brokers only. No client is given its address."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections. The string below a field is its meaning in `docs/reference/configuration.md`."""


class Profile(_Section, frozen=True):
    """How appends are gathered into WAL objects."""

    object_bytes: int
    """Largest WAL object in bytes. A flush starts early when so many bytes wait. A larger batch has its own object."""
    min_interval_ms: int
    """Shortest time between the starts of two flushes. A flush that fills an object does not wait for it."""
    gather_ms: int
    """Longest time that a flush waits for clients that were just answered to send again; it never waits for more than
    twice the time of the last flush. If they do not send, later flushes wait less often. 0 means no wait."""
    flushes: int
    """Flushes under way at once, from the upload to the ledger. Where both take about a millisecond, 1 is best: a
    client that waits for acknowledgements fills the next flush, not the one after it."""
    hedge_ms: int = 0
    """An upload that takes longer is sent a second time, and the first to succeed counts. 0 means never."""


class Wal(_Section, frozen=True):
    """The write path."""

    cost: Profile = Profile(object_bytes=4 * MIB, min_interval_ms=200, gather_ms=0, flushes=16, hedge_ms=300)
    """The profile `cost`: few requests to the object store."""
    latency: Profile = Profile(object_bytes=4 * MIB, min_interval_ms=0, gather_ms=10, flushes=1)
    """The profile `latency`: quick acknowledgements."""
    hold_ms: int = 500
    """How long a broker holds a batch of an idempotent producer whose predecessors may still arrive through another
    broker. After that the batch is appended, and the producer retries if they are still missing."""


class Cache(_Section, frozen=True):
    """Memory for data that was written or read lately. The object store stays authoritative."""

    wal_bytes: int = 64 * MIB
    """Bytes of WAL objects. The least recently used ones are dropped."""
    segment_bytes: int = 256 * MIB
    """Bytes of decoded row groups and footers of segments; only consumers that read settled records need them. It
    should hold one row group (16 MB) of every partition that is read at the same time."""


class Routing(_Section, frozen=True):
    """Which brokers clients are sent to."""

    enforce_owner: bool = False
    """Whether a broker answers NOT_LEADER_OR_FOLLOWER for partitions that belong to another broker in the client's
    zone."""
    tell_other_zones: bool = True
    """Whether answers to clients with a zone list the brokers of other zones too. The coordinator of their group may
    be there. Leaders are brokers of the client's own zone in either case."""


class Brownout(_Section, frozen=True):
    """When a broker that is slower than the others is taken out of rotation, and when it returns."""

    enabled: bool = True
    """Whether a broker measures itself and takes part in the decision."""
    interval_ms: int = 5_000
    """How often a broker measures itself and, while one is slow, reports. It is also the time limit of a probe."""
    floor_ms: int = 1_000
    """A broker is slow only if nine of ten appends, or of ten reads, take longer than this."""
    factor: int = 3
    """A broker is slow only if they also take longer than this many times the median of the other brokers."""
    after_ms: int = 30_000
    """How long a broker must be slow before it is taken out."""
    back_ms: int = 60_000
    """How long a broker must do well before it returns."""
    groups_after_ms: int = 60_000
    """How long a broker that is out keeps the groups it coordinates. A move starts every member's session anew, so it
    should be longer than the sessions of clients."""


class Peers(_Section, frozen=True):
    """How brokers of a zone share WAL objects, through the listener `internal`."""

    timeout_ms: int = 1_000
    """How long a broker waits for another broker's answer. After that it reads the object store itself."""
    connections: int = 4
    """Connections to each other broker. Further questions wait for a free one."""
    served_connections: int = 256
    """Connections from other brokers that a broker serves. Further ones are closed at once."""


class Housekeeping(_Section, frozen=True):
    """Retention, garbage collection and checkpoints. One broker per domain does them, under a lease."""

    interval_ms: int = 5_000
    """Time between two rounds, on average; each pause is half of it to one and a half times as long."""
    lease_ms: int = 30_000
    """How long the lease lasts. If its holder dies, another broker takes over after that time at the latest."""
    dead_object_grace_ms: int = 60_000
    """How long a WAL object stays in the store after the last reference to it is gone."""
    arrival_grace_ms: int = 3_600_000
    """How long records stay that were older than their topic's `retention.ms` when they arrived, unless that is a
    shorter time. It gives who copies old records into a topic the time to notice."""
    orphan_interval_ms: int = 600_000
    """Time between two searches for WAL objects that fenced processes stored and never entered into the ledger. A new
    fence starts a search at once."""
    producer_expiry_ms: int = 86_400_000
    """How long the state of an idempotent producer that appends nothing is kept. After that retries of its old batches
    are not recognised."""
    checkpoint_bytes: int = 16 * MIB
    """Bytes of ledger records between two checkpoints of a domain. Ledgers of limited length need them sooner."""


class Groups(_Section, frozen=True):
    """Consumer groups. The limits are Kafka's, where Kafka has one."""

    initial_rebalance_delay_ms: int = 3_000
    """How long a new classic group waits for more members before its first assignment. 0 means no wait."""
    min_session_timeout_ms: int = 6_000
    """Shortest session time-out that a member of a classic group may ask for. Shorter ones are refused."""
    max_session_timeout_ms: int = 1_800_000
    """Longest session time-out that a member of a classic group may ask for. Longer ones are refused."""
    new_member_timeout_ms: int = 300_000
    """How long a new member of a classic group may wait for its first assignment before it is removed."""
    max_members: int = 10_000
    """Members of one group. Further ones are refused with GROUP_MAX_SIZE_REACHED."""
    consumer_session_timeout_ms: int = 45_000
    """Session time-out of members of KIP-848 groups. The group config `consumer.session.timeout.ms` overrides it."""
    consumer_heartbeat_interval_ms: int = 5_000
    """Heartbeat interval of members of KIP-848 groups. `consumer.heartbeat.interval.ms` of a group overrides it."""
    consumer_assignment_interval_ms: int = 1_000
    """Shortest time between two assignments of a KIP-848 group. Its `consumer.assignment.interval.ms` overrides it."""
    offset_metadata_bytes: int = 4_096
    """Longest metadata, in characters, of one committed offset. Longer ones are refused."""
    offset_retention_ms: int = 604_800_000
    """How long committed offsets stay after the group became empty, or after it stopped reading their topic. A group
    that has been empty for ten minutes and has no offsets is deleted."""
    check_interval_ms: int = 5_000
    """How often a coordinator takes over shards of groups that have none, and removes what has expired."""


class Transactions(_Section, frozen=True):
    """Transactions of producers. The defaults are Kafka's."""

    version: int = 2
    """Kafka's `transaction.version` that clients are offered, 1 or 2. In version 2 every transaction has an epoch of
    its own, so that no late request can meet the next one; older clients use version 1 in any case."""
    max_timeout_ms: int = 900_000
    """Longest time-out that a producer may ask for. Longer ones are refused with INVALID_TRANSACTION_TIMEOUT. An open
    transaction holds up consumers of committed records, tables and retention of its partitions."""
    id_expiry_ms: int = 604_800_000
    """How long a transactional id is remembered after its last use. Open transactions stay."""
    check_interval_ms: int = 1_000
    """How often a broker looks for transactions that are past their time-outs."""


class Spark(_Section, frozen=True):
    """Where settling jobs run."""

    master: str = ""
    """Spark's master, as in `spark.master`. The compactor starts the driver in its own process. Empty: this machine,
    with one task at once for every core but one, which is left to brokers."""
    remote: str = ""
    """A Spark Connect server, `sc://HOST:PORT`. If it is set, `master` is ignored."""
    conf: dict[str, str] = {}
    """Further settings of Spark by their names. They override Headwater's own choices."""
    job_timeout_ms: int = 600_000
    """Longest time of one job. After that the compactor cancels it and plans its work again."""

    @property
    def chosen_master(self) -> str:
        """The master, also if none is set."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.master or f"local[{max(1, cores - 1)}]"


class Lake(_Section, frozen=True):
    """Settling: topics become tables."""

    enabled: bool = True
    """Whether `headwater up` runs a compactor."""
    interval_ms: int = 1_000
    """How often the compactor looks for topics that are due, on average, while it is idle."""
    niceness: int = 10
    """Niceness of the compactor, Spark's JVM and its workers on this machine, within their session and as a session
    beside others. With 10 a busy broker gets most of the processors. 0: as brokers. At most 19. While a topic lags by
    more than twice its freshness target it falls step by step to 0, as far as the system allows."""
    lease_ms: int = 30_000
    """How long the compaction lease of a domain lasts. If its holder dies, another compactor takes over after that time
    at the latest."""
    freshness_ms: int = 30_000
    """How far a table may lag behind its log. A topic is due after a third of it, or when `file_bytes` wait. The topic
    config `headwater.table.freshness.ms` overrides it."""
    file_bytes: int = 48 * MIB
    """Largest number of WAL bytes in one segment, and in one task."""
    job_bytes: int = 1024 * MIB
    """Bytes after which one job takes no more files. The rest waits for the next job."""
    merge_files: int = 8
    """Number of neighbouring small segments from which on they are merged into one. At least 2."""
    small_file_bytes: int = 8 * MIB
    """A segment below this many bytes counts as small."""
    partition_bytes: int = 8 * MIB
    """A partition that has this many bytes in a job gets segments of its own, so that engines pass over those of other
    partitions. 0: partitions always share them. See the topic config `headwater.table.cut.partitions`, too."""
    keep_versions: int = 50
    """Newest versions of a table that stay readable."""
    version_age_ms: int = 0
    """Versions older than this expire too, except the newest. 0 means that only their number counts."""
    tag_hours: int = 120
    """For this many hours Iceberg keeps the last version of every hour, as a tag. 0 means no tags."""
    expire_interval_ms: int = 600_000
    """How often the versions of a table without new data are checked for expiry."""
    orphan_interval_ms: int = 600_000
    """Time between two searches for segments that no table knows: those of failed jobs and fenced compactors."""
    foreign_retry_ms: int = 60_000
    """How often, on average, a follower that a foreign commit holds checks whether the commit is gone."""
    followers: tuple[str, ...] = ("iceberg", "delta")
    """Table formats that topics are kept in: `iceberg`, `delta`."""
    catalogs: dict[str, dict[str, str]] = {}
    """Further Iceberg catalogs by name, each with pyiceberg's properties (`type`, `uri`, …)."""
    readers: dict[str, str] = {}
    """Properties that the REST catalog gives to readers, by Iceberg's names (`s3.endpoint`, …). They override endpoint,
    region and addressing style, which it gives by itself. It gives credentials only if they are set here."""
    spark: Spark = Spark()


class Settings(_Section, frozen=True):
    """The settings of one process."""

    data: str = "./headwater-data"
    """Directory of the ledger and the objects, unless `ledger` and `objects` name other places."""
    ledger: str = ""
    """URL of the ledger, see `docs/guides/ledgers.md`. Empty: the file `ledger.db` in `data`."""
    objects: str = ""
    """URL of the object store, see `docs/guides/objects.md`. Empty: the directory `objects` in `data`."""
    zone: str = NO_ZONE
    """Zone of this process, see `docs/guides/zones.md`. Clients see it as the rack of the broker, unless it is the
    default."""
    zones: str = ""
    """Comma-separated zones to which `headwater up` assigns its brokers in turn. Empty: all of them are in `zone`."""
    node: int = 1
    """Number of the broker, unique in the cluster. With `headwater up`, that of the first broker; the others follow."""
    brokers: int = 1
    """Number of brokers that `headwater up` runs, 1 to 64. Their ports count up from those in `kafka`."""
    process_session_ms: int = 3_000
    """How long a process may show no beat before the others fence it and take over what it did, at least 600. Beats are
    sent every half second, and at least six in this time. On a ledger that is paid by the request both are longer. All
    processes of a cluster should have the same."""
    kafka: str = "127.0.0.1:9092"
    """Comma-separated Kafka listeners: `HOST:PORT` or `NAME=HOST:PORT`. Port 0 takes any free port."""
    advertise: str = ""
    """Addresses that clients are given, per listener: `NAME=HOST:PORT,…`. Empty: the addresses in `kafka`."""
    internal: str = ""
    """`HOST:PORT` at which other brokers of the zone ask for WAL objects. Empty: the broker neither asks nor answers.
    `advertise` may name its address for others as `INTERNAL`."""
    internal_secret_file: str = ""
    """File with a secret of at least 16 characters that all brokers share. Beyond loopback, `internal` needs it or
    mutual TLS."""
    http: str = "127.0.0.1:8080"
    """`HOST:PORT` of health pages and metrics. `gateway.http` has the HTTP API and the Iceberg catalog."""
    auto_create_topics: bool = True
    """Whether Metadata creates a topic that does not exist, if the client allows it."""
    default_partitions: int = 1
    """Partitions of a topic that is created without a number of them."""
    log_level: str = "info"
    """Lowest level that is logged: `debug`, `info`, `warning`, `error`."""
    limits: Limits = Limits()
    quotas: Quotas = Quotas()
    wal: Wal = Wal()
    cache: Cache = Cache()
    object_store: StoreOptions = StoreOptions()
    routing: Routing = Routing()
    peers: Peers = Peers()
    brownout: Brownout = Brownout()
    housekeeping: Housekeeping = Housekeeping()
    groups: Groups = Groups()
    transactions: Transactions = Transactions()
    lake: Lake = Lake()
    gateway: Gateway = Gateway()
    sql: Sql = Sql()
    links: Links = Links()
    schema_registry: SchemaRegistry = SchemaRegistry()
    security: Security = Security()

    @property
    def ledger_url(self) -> str:
        return self.ledger or f"sqlite://{Path(self.data).absolute()}/ledger.db"

    @property
    def objects_url(self) -> str:
        return self.objects or (Path(self.data).absolute() / "objects").as_uri()

    @property
    def spill(self) -> str:
        """The directory for what queries do not have in memory."""
        return self.sql.spill or str(Path(self.data).absolute() / "spill")

    @property
    def default_profile(self) -> str:
        """The write profile of topics that set none: a cloud bills requests, a local directory does not."""
        return "latency" if self.objects_url.startswith(("file:", "memory:")) else "cost"


def load(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from a file, the environment and flags, each overriding the one before."""
    tree: dict[str, Any] = msgspec.to_builtins(Settings())
    if file:
        try:
            text = Path(file).read_text()
            _merge(tree, msgspec.json.decode(text, type=dict) if file.endswith(".json") else tomllib.loads(text))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            raise ConfigError(f"cannot read the settings in {file}: {error}") from error
        check_names(Settings, tree)
    for keys, value in variables(Settings, os.environ if environment is None else environment):
        _put(tree, keys, value)
    for name, value in (flags or {}).items():
        if value is not None:
            _put(tree, name.split("."), value)
    try:
        settings = msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {error}") from error
    _check(settings)
    return settings


def _merge(tree: dict[str, Any], given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(tree.get(name), dict):
            _merge(tree[name], value)
        else:
            tree[name] = value


def _put(tree: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"settings: {key} is not a section")
    tree[keys[-1]] = value


def _check(settings: Settings) -> None:
    for section in ("limits", "quotas", "cache", "housekeeping", "peers", "transactions"):
        numbers = getattr(settings, section)
        for name in numbers.__struct_fields__:
            if getattr(numbers, name) <= 0:
                raise ConfigError(f"settings: {section}.{name} must be above 0")
    for section, profile in (("wal.cost", settings.wal.cost), ("wal.latency", settings.wal.latency)):
        times = (profile.min_interval_ms, profile.gather_ms, profile.hedge_ms)
        if profile.object_bytes <= 0 or profile.flushes <= 0 or min(times) < 0:
            raise ConfigError(f"settings: {section}: object_bytes and flushes must be above 0, no time below 0")
    settings.object_store.check()
    _check_lake(settings.lake)
    _check_groups(settings.groups)
    if settings.transactions.version > 2:
        raise ConfigError("settings: transactions.version must be 1 or 2")
    check_security(settings.security, _protected(settings))
    brownout = settings.brownout
    if min(brownout.interval_ms, brownout.floor_ms, brownout.factor, brownout.after_ms, brownout.back_ms) <= 0:
        raise ConfigError("settings: brownout: interval_ms, floor_ms, factor, after_ms and back_ms must be above 0")
    if settings.wal.hold_ms < 0:
        raise ConfigError("settings: wal.hold_ms must not be negative")
    if not 1 <= settings.brokers <= 64 or settings.node < 0:
        raise ConfigError("settings: brokers must be between 1 and 64, and node must not be negative")
    if settings.process_session_ms < MIN_PROCESS_SESSION_MS:
        raise ConfigError(f"settings: process_session_ms must be at least {MIN_PROCESS_SESSION_MS}")
    if not 1 <= settings.default_partitions <= settings.limits.partitions_per_topic:
        raise ConfigError("settings: default_partitions must be between 1 and limits.partitions_per_topic")
    if settings.limits.partitions > MAX_CLUSTER_PARTITIONS:
        raise ConfigError(f"settings: limits.partitions must not be above {MAX_CLUSTER_PARTITIONS}")
    for zone in (settings.zone, *parse_zones(settings.zones)):
        if not zone or zone != zone.strip() or set(zone) & set("/,"):
            raise ConfigError("settings: zone and each of zones must be a name without '/', ',' and outer spaces")
    if INTERNAL in parse_listeners(settings.kafka):
        raise ConfigError(f"settings: kafka: a listener for clients cannot have the name {INTERNAL}")
    parse_listeners(settings.advertise or settings.kafka)
    if settings.internal:
        parse_address(settings.internal)
    parse_address(settings.http)
    check_gateway(settings.gateway, parse_address)
    check_sql(settings.sql)
    check_links(settings.links)
    check_schema_registry(settings.schema_registry)


def _check_groups(groups: Groups) -> None:
    for name in groups.__struct_fields__:
        if getattr(groups, name) <= 0 and name not in ("initial_rebalance_delay_ms", "consumer_assignment_interval_ms"):
            raise ConfigError(f"settings: groups.{name} must be above 0")
    if groups.consumer_assignment_interval_ms < 0:
        raise ConfigError("settings: groups.consumer_assignment_interval_ms must not be negative")
    if groups.initial_rebalance_delay_ms < 0 or groups.min_session_timeout_ms > groups.max_session_timeout_ms:
        raise ConfigError(
            "settings: groups.initial_rebalance_delay_ms must not be negative, and "
            "min_session_timeout_ms must not be above max_session_timeout_ms"
        )


def _check_lake(lake: Lake) -> None:
    sizes = ("file_bytes", "job_bytes", "small_file_bytes")
    for name in ("interval_ms", "lease_ms", "freshness_ms", *sizes, "keep_versions"):
        if getattr(lake, name) <= 0:
            raise ConfigError(f"settings: lake.{name} must be above 0")
    times = (lake.spark.job_timeout_ms, lake.orphan_interval_ms, lake.expire_interval_ms, lake.foreign_retry_ms)
    if lake.merge_files < 2 or min(times) <= 0:
        raise ConfigError(
            "settings: lake.merge_files must be at least 2, and spark.job_timeout_ms, "
            "orphan_interval_ms, expire_interval_ms and foreign_retry_ms must be above 0"
        )
    if not 0 <= lake.niceness <= 19:
        raise ConfigError("settings: lake.niceness must be between 0 and 19")
    if min(lake.version_age_ms, lake.tag_hours, lake.partition_bytes) < 0:
        raise ConfigError("settings: lake.version_age_ms, tag_hours and partition_bytes must not be negative")
    unknown = set(lake.followers) - {"iceberg", "delta"}
    if unknown:
        raise ConfigError(f"settings: lake.followers may contain iceberg and delta, not {sorted(unknown)[0]!r}")
    clash = set(lake.catalogs) & {"iceberg", "delta"}
    if clash:
        raise ConfigError(f"settings: lake.catalogs: a catalog cannot have the name {sorted(clash)[0]}")


def _protected(settings: Settings) -> list[str]:
    """The names of all listeners, `internal` included."""
    names = list(parse_listeners(settings.kafka))
    if not settings.internal:
        return names
    if settings.security.listener(INTERNAL).protocol not in ("PLAINTEXT", "SSL"):
        raise ConfigError(f"settings: listener {INTERNAL}: the protocol must be PLAINTEXT or SSL")
    return [*names, INTERNAL]


def parse_address(text: str) -> tuple[str, int]:
    """Host and port in `HOST:PORT` or `[::1]:PORT`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text!r} does not have the form HOST:PORT")
    return host.strip("[]"), int(port)


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """The addresses in `NAME=HOST:PORT,…` by name. A listener without a name is PLAINTEXT."""
    listeners: dict[str, tuple[str, int]] = {}
    for part in text.split(","):
        name, _equals, address = part.strip().rpartition("=")
        name = name or "PLAINTEXT"
        if name in listeners:
            raise ConfigError(f"two listeners have the name {name!r}")
        listeners[name] = parse_address(address)
    return listeners
