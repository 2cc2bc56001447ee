"""A broker's settings under Kafka's names. Some can be changed while brokers run.

Those are stored in the ledger, for one broker or, under the empty name, for all brokers. A value for one broker takes
precedence. Defaults of topic configs can be set for all brokers only, because every broker serves every topic. All
other settings come from the broker's file, environment and flags, and are shown read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.configs import groups as group_configs
from headwater.configs import inert
from headwater.configs import topics as topic_configs
from headwater.configs.keys import INT_MAX, Kind, checked_by, number
from headwater.configs.keys import ConfigKey as Key
from headwater.errors import BadInput, ConfigError
from headwater.settings.settings import INTERNAL, Settings, parse_listeners
from headwater.settings.zones import rack_of
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource, Resources

if TYPE_CHECKING:
    from collections.abc import Callable

DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5
"""The source of a value, in Kafka's numbers."""

MAX_CONNECTIONS, MAX_PER_ADDRESS, MAX_RATE = "max.connections", "max.connections.per.ip", "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class Row:
    """A config and its current value."""

    key: Key
    value: str
    sources: tuple[tuple[str, str, int], ...]
    """(name, value, source). The first one applies; without any the value is the default."""
    read_only: bool

    @property
    def source(self) -> int:
        """Where the value comes from."""
        return self.sources[0][2] if self.sources else DEFAULT


_LIMITS = [
    Key(MAX_CONNECTIONS, Kind.INT, "", number(1, INT_MAX), "How many connections a broker accepts."),
    Key(MAX_PER_ADDRESS, Kind.INT, "", number(0, INT_MAX), "How many connections a broker accepts from one address."),
    Key(MAX_RATE, Kind.INT, "", number(1, INT_MAX), "How many new connections a broker accepts per second."),
]
PER_BROKER: Mapping[str, Key] = {**{key.name: key for key in _LIMITS}, **inert.DYNAMIC}
"""What can be set for one broker."""
DYNAMIC: Mapping[str, Key] = {
    **PER_BROKER,
    **{
        name: replace(key, name=name, synonym="", doc=f"Default of `{key.name}`. {key.doc}")
        for name, key in topic_configs.DEFAULTS.items()
    },
}
"""What can be set for all brokers."""


def _flag(value: bool) -> str:
    return str(value).lower()


def _uris(listeners: str) -> str:
    known = parse_listeners(listeners)
    return ",".join(f"{name}://{host}:{port}" for name, (host, port) in known.items() if name != INTERNAL)


_STATIC: list[tuple[str, Kind, Callable[[Settings], object], str]] = [
    ("advertised.listeners", Kind.LIST, lambda s: _uris(s.advertise or s.kafka), "The addresses that clients use."),
    ("auto.create.topics.enable", Kind.BOOLEAN, lambda s: _flag(s.auto_create_topics),
     "Whether a topic that a client asks for is created."),
    ("broker.id", Kind.INT, lambda s: s.node, "This broker's number."),
    ("broker.rack", Kind.STRING, lambda s: rack_of(s.zone), "This broker's zone."),
    ("connections.max.idle.ms", Kind.LONG, lambda s: s.limits.idle_ms,
     "After which time an idle connection is closed."),
    ("default.replication.factor", Kind.INT, lambda s: 1, "Object storage replicates."),
    ("delete.topic.enable", Kind.BOOLEAN, lambda s: "true", "Topics can be deleted."),
    ("fetch.max.bytes", Kind.INT, lambda s: s.limits.fetch_response_bytes, "The largest answer to a fetch."),
    ("listeners", Kind.LIST, lambda s: _uris(s.kafka), "The addresses on which the broker listens."),
    ("log.dirs", Kind.STRING, lambda s: s.objects_url, "The URL of the object store."),
    (MAX_CONNECTIONS, Kind.INT, lambda s: s.limits.connections, ""),
    (MAX_PER_ADDRESS, Kind.INT, lambda s: s.limits.connections_per_address, ""),
    (MAX_RATE, Kind.INT, lambda s: s.limits.connections_per_second, ""),
    ("max.incremental.fetch.session.cache.slots", Kind.INT, lambda s: s.limits.fetch_sessions,
     "How many fetch sessions the broker keeps."),
    ("node.id", Kind.INT, lambda s: s.node, "This broker's number."),
    ("num.partitions", Kind.INT, lambda s: s.default_partitions, "The default number of partitions."),
    ("process.roles", Kind.LIST, lambda s: "broker", "There are no controllers."),
    ("producer.id.expiration.ms", Kind.INT, lambda s: s.housekeeping.producer_expiry_ms,
     "How long a silent producer is remembered."),
    ("queued.max.request.bytes", Kind.LONG, lambda s: s.limits.broker_inflight_bytes,
     "Bytes of requests under way at once."),
    ("quota.window.num", Kind.INT, lambda s: s.quotas.samples, "How many samples a rate is measured over."),
    ("quota.window.size.seconds", Kind.INT, lambda s: max(1, s.quotas.sample_ms // 1000), "How long a sample is."),
    ("socket.request.max.bytes", Kind.INT, lambda s: s.limits.frame_bytes, "The largest request."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT,
     lambda s: s.transactions.check_interval_ms, "How often transactions past their time-outs are aborted."),
    ("transaction.max.timeout.ms", Kind.INT, lambda s: s.transactions.max_timeout_ms,
     "The longest time-out of a transaction."),
    ("transaction.two.phase.commit.enable", Kind.BOOLEAN, lambda s: "false", "Two-phase commit is not served."),
    ("transactional.id.expiration.ms", Kind.INT, lambda s: s.transactions.id_expiry_ms,
     "How long an unused transactional id is remembered."),
    ("telemetry.max.bytes", Kind.INT, lambda s: s.quotas.telemetry_bytes, "The largest push of a client's metrics."),
]  # fmt: skip
_UNSET = Settings()


def _group_defaults() -> list[Key]:
    """Broker configs with the defaults of groups. They cannot be changed."""
    return [
        Key(key.synonym, key.kind, key.default, key.check, key.doc)
        for key in group_configs.KEYS.values()
        if key.synonym not in group_configs.KEYS
    ]


def rows(settings: Settings, resources: Resources) -> list[Row]:
    """All configs of a broker."""
    found: dict[str, Row] = {}
    for key in _group_defaults():
        found[key.name] = Row(key, key.default, ((key.name, key.default, DEFAULT),), True)
    for name in topic_configs.DEFAULTS:
        key = DYNAMIC[name]
        sources = [*_dynamic(name, settings.node, resources), (name, key.default, DEFAULT)]
        found[name] = Row(key, sources[0][1], tuple(sources), False)
    for name, key in inert.STATIC.items():
        found[name] = Row(key, key.default, ((name, key.default, DEFAULT),), True)
    for name, key in inert.DYNAMIC.items():
        sources = [*_dynamic(name, settings.node, resources), (name, key.default, DEFAULT)]
        found[name] = Row(key, sources[0][1], tuple(sources), False)
    for name, kind, get, doc in _STATIC:
        value, unset = str(get(settings)), str(get(_UNSET))
        sources = [(name, value, STATIC if value != unset else DEFAULT)]
        key = DYNAMIC.get(name) or Key(name, kind, unset, str, doc)
        if name in DYNAMIC:
            sources = [*_dynamic(name, settings.node, resources), *sources]
        found[name] = Row(key, sources[0][1], tuple(sources), name not in DYNAMIC)
    return sorted(found.values(), key=lambda row: row.key.name)


def common_rows(resources: Resources) -> list[Row]:
    """The configs that are set for all brokers."""
    return [
        Row(DYNAMIC[name], source[1], (source,), False)
        for name in sorted(resources.common)
        if name in DYNAMIC
        for source in common_sources(name, resources)
    ]


def common_sources(name: str, resources: Resources) -> list[tuple[str, str, int]]:
    """The source of a config that is set for all brokers, as (name, value, source); empty if it is not set."""
    value = resources.common.get(name)
    return [] if value is None else [(name, DYNAMIC[name].shown or value, DYNAMIC_DEFAULT)]


def _dynamic(name: str, node: int, resources: Resources) -> list[tuple[str, str, int]]:
    own = resources.of(ConfigResource.BROKER, str(node)).get(name)
    return [*([(name, own, DYNAMIC_BROKER)] if own is not None else []), *common_sources(name, resources)]


def checked(broker: str, name: str, value: str) -> str:
    """Check a value that is set while brokers run, for one broker or for all. Returns its canonical form."""
    if name in DYNAMIC and name not in PER_BROKER and broker != ALL_BROKERS:
        raise BadInput(f"{name} is a default of topics, which all brokers serve. Set it for all brokers.")
    if name not in DYNAMIC:
        if name in {known for known, *_ in _STATIC} | {key.name for key in _group_defaults()} | inert.STATIC.keys():
            raise BadInput(f"Cannot update these configs dynamically: [{name}]")
        raise ConfigError(f"Unknown broker config name: {name}")
    try:
        return checked_by(DYNAMIC, "broker", name, value)
    except ConfigError as error:
        raise BadInput(str(error)) from None


def limit(settings: Settings, resources: Resources, name: str) -> int:
    """The current value of a number that can be changed while brokers run."""
    for _, value, _source in _dynamic(name, settings.node, resources):
        return int(value)
    return int(str(next(get(settings) for known, _, get, _ in _STATIC if known == name)))
