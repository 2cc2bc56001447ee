"""Settings as plain data: defaults here, then a TOML (or JSON) file, then `HEADWATER_…` variables, then flags.

Unknown names and wrong types are refused. `wal.hold_ms` in a file is `[wal]` with `hold_ms`; in the environment it is
`HEADWATER_WAL__HOLD_MS`. What is not given keeps its default, also inside a section that is.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headwater.config_security import AUTHENTICATION as AUTHENTICATION
from headwater.config_security import MECHANISMS as MECHANISMS
from headwater.config_security import PROTOCOLS as PROTOCOLS
from headwater.config_security import HttpSecurity as HttpSecurity
from headwater.config_security import ListenerSecurity as ListenerSecurity
from headwater.config_security import Oauth as Oauth
from headwater.config_security import Security as Security
from headwater.config_security import Tls as Tls
from headwater.config_security import check_security
from headwater.errors import ConfigError
from headwater.store_options import StoreOptions

MIB = 1 << 20
ENV_PREFIX = "HEADWATER_"
INTERNAL = "INTERNAL"
"""The name of the listener that only other brokers use; no client is ever told of it."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections."""


class Limits(_Section, frozen=True):
    """Bounds on everything that a client can make grow."""

    frame_bytes: int = 100 * MIB
    opened_batch_bytes: int = 64 * MIB
    connections: int = 10_000
    connections_per_address: int = 2_147_483_647
    connections_per_second: int = 2_147_483_647
    connection_inflight_bytes: int = 32 * MIB
    connection_inflight_requests: int = 256
    broker_inflight_bytes: int = 256 * MIB
    fetch_response_bytes: int = 55 * MIB
    fetch_sessions: int = 1_000
    partitions_per_topic: int = 10_000


class Quotas(_Section, frozen=True):
    """How clients' rates are measured, and what they may push of their own metrics."""

    samples: int = 11
    """A rate is that of so many samples, the present one included."""
    sample_ms: int = 1_000
    entities: int = 10_000
    """Of so many users and clients at once the rates are known; the one that was quiet longest goes first."""
    telemetry_bytes: int = MIB
    telemetry_clients: int = 10_000
    """So many clients' subscriptions are remembered."""


class Profile(_Section, frozen=True):
    """How appends are gathered into WAL objects."""

    object_bytes: int
    """A flush takes no more than this, unless a single batch is larger."""
    min_interval_ms: int
    """At least this long between the starts of two flushes, unless an object is full."""
    gather_ms: int
    """How long a flush waits at most for clients that were just answered to send again, and no longer than twice what
    the last one took: one flush for all costs a fraction of one for each. Where they do not come, it stops."""
    flushes: int
    """How many may be under way at once, from the upload to the ledger. One is best where both take about a
    millisecond: a client that waits for its acknowledgements fills the next flush, not the one after it."""
    hedge_ms: int = 0
    """An upload that takes longer is sent a second time, and the first to arrive counts; 0 for never."""


class Wal(_Section, frozen=True):
    """The write path."""

    cost: Profile = Profile(object_bytes=4 * MIB, min_interval_ms=200, gather_ms=0, flushes=16, hedge_ms=300)
    latency: Profile = Profile(object_bytes=4 * MIB, min_interval_ms=0, gather_ms=10, flushes=1)
    hold_ms: int = 500
    """How long a batch waits for predecessors that went through another broker."""


class Cache(_Section, frozen=True):
    """Memory for what was written or read lately. Never authoritative."""

    wal_bytes: int = 64 * MIB
    segment_bytes: int = 256 * MIB
    """Row groups of segments, opened. Only consumers that read the past need it."""


class Routing(_Section, frozen=True):
    """Which brokers clients are sent to."""

    enforce_owner: bool = False
    """Whether a broker sends clients away that use it for partitions which are another's, in the client's zone."""
    tell_other_zones: bool = True
    """Whether clients with a zone are told of brokers elsewhere too, where their group's coordinator may be. Leaders
    are those of their own zone either way."""


class Brownout(_Section, frozen=True):
    """When a broker that is slower than the others is kept out of rotation, and when it is let back."""

    enabled: bool = True
    interval_ms: int = 5_000
    """How often a broker looks at how it does."""
    floor_ms: int = 1_000
    """A broker is slow if nine of ten appends, or reads, take longer than this …"""
    factor: int = 3
    """… and longer than so many times what they take at the median of the others."""
    after_ms: int = 30_000
    """So long it must be slow to be taken out."""
    back_ms: int = 60_000
    """So long it must do well to be let back."""
    groups_after_ms: int = 60_000
    """So long a broker that is out keeps the groups it coordinates. A move costs every member a new session, so it
    should be longer than sessions are."""


class Peers(_Section, frozen=True):
    """How brokers of a zone share what they read from the store, by the listener `internal`."""

    timeout_ms: int = 1_000
    """A broker that is not answered by then reads the store itself."""
    connections: int = 4
    """To each other broker at most."""
    served_connections: int = 256


class Housekeeping(_Section, frozen=True):
    """Retention, garbage collection and checkpoints."""

    interval_ms: int = 5_000
    lease_ms: int = 30_000
    dead_object_grace_ms: int = 60_000
    orphan_interval_ms: int = 600_000
    producer_expiry_ms: int = 86_400_000
    checkpoint_bytes: int = 16 * MIB


class Groups(_Section, frozen=True):
    """Consumer groups. The limits are Kafka's, where Kafka has one."""

    initial_rebalance_delay_ms: int = 3_000
    """How long a new group waits for more members before its first assignment; 0 for not at all."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    new_member_timeout_ms: int = 300_000
    max_members: int = 10_000
    consumer_session_timeout_ms: int = 45_000
    """For members of KIP-848 groups, which do not bring a time-out of their own."""
    consumer_heartbeat_interval_ms: int = 5_000
    offset_metadata_bytes: int = 4_096
    offset_retention_ms: int = 604_800_000
    """Offsets of a group that has been empty for so long are forgotten, and so is the group."""
    check_interval_ms: int = 5_000
    """How often a coordinator looks for groups that have none, and for what has expired."""


class Spark(_Section, frozen=True):
    """Where settling jobs run."""

    master: str = "local[2]"
    remote: str = ""
    """A Spark Connect server, `sc://HOST:PORT`; if given, `master` does not count."""
    conf: dict[str, str] = {}
    job_timeout_ms: int = 600_000


class Lake(_Section, frozen=True):
    """Settling: topics become tables."""

    enabled: bool = True
    """Whether `headwater up` runs a compactor."""
    interval_ms: int = 1_000
    """How often the compactor looks for topics whose turn has come."""
    lease_ms: int = 30_000
    freshness_ms: int = 30_000
    """How far a topic's table may lag behind its log, unless the topic says otherwise."""
    file_bytes: int = 48 * MIB
    """WAL bytes that go into one segment at most, and into one task."""
    job_bytes: int = 1024 * MIB
    merge_files: int = 8
    """So many small segments of a table are merged into one."""
    small_file_bytes: int = 8 * MIB
    keep_versions: int = 50
    """Versions of a table that can be read back."""
    version_age_ms: int = 0
    """Versions older than this go too, save for the newest; 0 if only their number counts."""
    tag_hours: int = 120
    """For so many hours Iceberg keeps the last version of every hour, as a tag; 0 for no tags."""
    expire_interval_ms: int = 600_000
    """How often the versions of tables that nothing is added to are looked at."""
    orphan_interval_ms: int = 600_000
    followers: tuple[str, ...] = ("iceberg", "delta")
    catalogs: dict[str, dict[str, str]] = {}
    """Further Iceberg catalogs by name, each with pyiceberg's properties (`type`, `uri`, …)."""
    readers: dict[str, str] = {}
    """What the REST catalog tells readers of tables, by Iceberg's names (`s3.endpoint`, …), over what it tells by
    itself: where an S3 server is. Credentials are told only if they stand here."""
    spark: Spark = Spark()


class Settings(_Section, frozen=True):
    """One process's settings."""

    data: str = "./headwater-data"
    """Where an embedded cluster keeps ledger and objects, unless `ledger` and `objects` say otherwise."""
    ledger: str = ""
    """Where the order lies, as a URL; see `docs/ledgers.md`. By default a file under `data`."""
    objects: str = ""
    zone: str = "local"
    zones: str = ""
    """With `headwater up`: zones that its brokers are dealt to, one after the other, comma separated."""
    node: int = 1
    brokers: int = 1
    kafka: str = "127.0.0.1:9092"
    """Listeners, comma separated: `HOST:PORT` or `NAME=HOST:PORT`."""
    advertise: str = ""
    """What clients are told, per listener name: `NAME=HOST:PORT,…`; by default where it listens."""
    internal: str = ""
    """Where other brokers of the zone ask for WAL objects, `HOST:PORT`, or nowhere. `advertise` may name INTERNAL."""
    internal_secret_file: str = ""
    """What all brokers know and nobody else, at least 16 characters; needed beyond loopback, unless by mutual TLS."""
    http: str = "127.0.0.1:8080"
    auto_create_topics: bool = True
    default_partitions: int = 1
    log_level: str = "info"
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
    lake: Lake = Lake()
    security: Security = Security()

    @property
    def ledger_url(self) -> str:
        return self.ledger or f"sqlite://{Path(self.data).absolute()}/ledger.db"

    @property
    def objects_url(self) -> str:
        return self.objects or (Path(self.data).absolute() / "objects").as_uri()

    @property
    def default_profile(self) -> str:
        """A local directory answers in milliseconds; a cloud's store is paid by the request."""
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
    for name, value in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENV_PREFIX) and not name.startswith(f"{ENV_PREFIX}TEST_"):
            _put(tree, name.removeprefix(ENV_PREFIX).lower().split("__"), value)
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
    for section in (settings.limits, settings.quotas, settings.cache, settings.housekeeping, settings.peers):
        for name in section.__struct_fields__:
            if getattr(section, name) <= 0:
                raise ConfigError(f"settings: {name} must be above 0")
    for profile in (settings.wal.cost, settings.wal.latency):
        times = (profile.min_interval_ms, profile.gather_ms, profile.hedge_ms)
        if profile.object_bytes <= 0 or profile.flushes <= 0 or min(times) < 0:
            raise ConfigError("settings: a wal profile needs object_bytes and flushes above 0, and no negative times")
    settings.object_store.check()
    _check_lake(settings.lake)
    _check_groups(settings.groups)
    check_security(settings.security, _protected(settings))
    brownout = settings.brownout
    if min(brownout.interval_ms, brownout.floor_ms, brownout.factor, brownout.after_ms, brownout.back_ms) <= 0:
        raise ConfigError("settings: numbers of brownout must be above 0")
    if settings.wal.hold_ms < 0:
        raise ConfigError("settings: hold_ms must not be negative")
    if not 1 <= settings.brokers <= 64 or settings.node < 0:
        raise ConfigError("settings: brokers must be 1 to 64 and node not negative")
    if not 1 <= settings.default_partitions <= settings.limits.partitions_per_topic:
        raise ConfigError("settings: default_partitions is out of range")
    for zone in (settings.zone, *parse_zones(settings.zones)):
        if not zone or zone != zone.strip() or set(zone) & set("/,"):
            raise ConfigError("settings: zone must be a plain name, and zones such names with commas between")
    if INTERNAL in parse_listeners(settings.kafka):
        raise ConfigError(f"settings: no listener for clients can be called {INTERNAL}")
    parse_listeners(settings.advertise or settings.kafka)
    if settings.internal:
        parse_address(settings.internal)
    parse_address(settings.http)


def _check_groups(groups: Groups) -> None:
    for name in groups.__struct_fields__:
        if getattr(groups, name) <= 0 and name != "initial_rebalance_delay_ms":
            raise ConfigError(f"settings: groups.{name} must be above 0")
    if groups.initial_rebalance_delay_ms < 0 or groups.min_session_timeout_ms > groups.max_session_timeout_ms:
        raise ConfigError("settings: groups wants no negative delay, and session time-outs in their order")


def _check_lake(lake: Lake) -> None:
    numbers = (
        "interval_ms",
        "lease_ms",
        "freshness_ms",
        "file_bytes",
        "job_bytes",
        "small_file_bytes",
        "keep_versions",
    )
    for name in numbers:
        if getattr(lake, name) <= 0:
            raise ConfigError(f"settings: lake.{name} must be above 0")
    times = (lake.spark.job_timeout_ms, lake.orphan_interval_ms, lake.expire_interval_ms)
    if lake.merge_files < 2 or min(times) <= 0:
        raise ConfigError("settings: lake.merge_files must be at least 2, and times above 0")
    if min(lake.version_age_ms, lake.tag_hours) < 0:
        raise ConfigError("settings: lake.version_age_ms and lake.tag_hours must not be negative")
    unknown = set(lake.followers) - {"iceberg", "delta"}
    if unknown:
        raise ConfigError(f"settings: lake.followers knows iceberg and delta, not {sorted(unknown)[0]}")
    clash = set(lake.catalogs) & {"iceberg", "delta"}
    if clash:
        raise ConfigError(f"settings: a catalog of lake.catalogs cannot be called {sorted(clash)[0]}")


def _protected(settings: Settings) -> list[str]:
    """The listeners whose protection is to be checked."""
    names = list(parse_listeners(settings.kafka))
    if not settings.internal:
        return names
    if settings.security.listener(INTERNAL).protocol not in ("PLAINTEXT", "SSL"):
        raise ConfigError(f"settings: the listener {INTERNAL} knows PLAINTEXT and SSL only")
    return [*names, INTERNAL]


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, also `[::1]:PORT`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


def parse_zones(text: str) -> list[str]:
    """`ZONE,ZONE,…`, or nothing."""
    return [zone.strip() for zone in text.split(",")] if text.strip() else []


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """`NAME=HOST:PORT,…`; one listener without a name is called PLAINTEXT."""
    listeners: dict[str, tuple[str, int]] = {}
    for part in text.split(","):
        name, _equals, address = part.strip().rpartition("=")
        name = name or "PLAINTEXT"
        if name in listeners:
            raise ConfigError(f"two listeners are called {name!r}")
        listeners[name] = parse_address(address)
    return listeners
