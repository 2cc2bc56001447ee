"""A broker's settings under the names that Kafka has for them. Some can be changed while brokers run.

The latter are kept in the ledger, for one broker or, under the empty name, for all of them; what is set for one counts
more. All else comes from a broker's file, environment and flags, and is shown read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.config import INTERNAL, Settings, parse_listeners
from headwater.errors import BadInput, ConfigError
from headwater.metadata import group_configs, topic_configs
from headwater.metadata.config_keys import INT_MAX, Kind, checked_by, number
from headwater.metadata.config_keys import ConfigKey as Key
from headwater.metadata.resources import ResourceKind, Resources

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_BROKERS = ""
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5
"""Where a value comes from, in Kafka's numbers."""

MAX_CONNECTIONS, MAX_PER_ADDRESS, MAX_RATE = "max.connections", "max.connections.per.ip", "max.connection.creation.rate"


class NotDynamic(BadInput):
    """A config that a running broker cannot change, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Row:
    """A config as it is."""

    key: Key
    value: str
    sources: tuple[tuple[str, str, int], ...]
    """(name, value, source), the one that counts first."""
    read_only: bool


_DYNAMIC = [
    Key(MAX_CONNECTIONS, Kind.INT, "", number(1, INT_MAX), "How many connections a broker takes."),
    Key(MAX_PER_ADDRESS, Kind.INT, "", number(0, INT_MAX), "How many connections a broker takes from one address."),
    Key(MAX_RATE, Kind.INT, "", number(1, INT_MAX), "How many new connections a broker takes in a second."),
]
DYNAMIC: Mapping[str, Key] = {key.name: key for key in _DYNAMIC}


def _flag(value: bool) -> str:
    return str(value).lower()


def _uris(listeners: str) -> str:
    known = parse_listeners(listeners)
    return ",".join(f"{name}://{host}:{port}" for name, (host, port) in known.items() if name != INTERNAL)


_STATIC: list[tuple[str, Kind, Callable[[Settings], object], str]] = [
    ("advertised.listeners", Kind.LIST, lambda s: _uris(s.advertise or s.kafka), "What clients are told."),
    ("auto.create.topics.enable", Kind.BOOLEAN, lambda s: _flag(s.auto_create_topics),
     "Whether a topic that a client asks for is created."),
    ("broker.id", Kind.INT, lambda s: s.node, "This broker's number."),
    ("broker.rack", Kind.STRING, lambda s: s.zone, "This broker's zone."),
    ("default.replication.factor", Kind.INT, lambda s: 1, "Object storage replicates."),
    ("delete.topic.enable", Kind.BOOLEAN, lambda s: "true", "Topics can be deleted."),
    ("fetch.max.bytes", Kind.INT, lambda s: s.limits.fetch_response_bytes, "The largest answer to a fetch."),
    ("listeners", Kind.LIST, lambda s: _uris(s.kafka), "Where it listens."),
    ("log.dirs", Kind.STRING, lambda s: s.objects_url, "Where the objects lie."),
    (MAX_CONNECTIONS, Kind.INT, lambda s: s.limits.connections, ""),
    (MAX_PER_ADDRESS, Kind.INT, lambda s: s.limits.connections_per_address, ""),
    (MAX_RATE, Kind.INT, lambda s: s.limits.connections_per_second, ""),
    ("max.incremental.fetch.session.cache.slots", Kind.INT, lambda s: s.limits.fetch_sessions,
     "How many fetch sessions it keeps."),
    ("node.id", Kind.INT, lambda s: s.node, "This broker's number."),
    ("num.partitions", Kind.INT, lambda s: s.default_partitions, "Partitions of a topic that does not say."),
    ("process.roles", Kind.LIST, lambda s: "broker", "There are no controllers."),
    ("producer.id.expiration.ms", Kind.INT, lambda s: s.housekeeping.producer_expiry_ms,
     "How long a silent producer is remembered."),
    ("queued.max.request.bytes", Kind.LONG, lambda s: s.limits.broker_inflight_bytes,
     "Bytes of requests under way at once."),
    ("quota.window.num", Kind.INT, lambda s: s.quotas.samples, "How many samples a rate is measured over."),
    ("quota.window.size.seconds", Kind.INT, lambda s: max(1, s.quotas.sample_ms // 1000), "How long a sample is."),
    ("socket.request.max.bytes", Kind.INT, lambda s: s.limits.frame_bytes, "The largest request."),
    ("telemetry.max.bytes", Kind.INT, lambda s: s.quotas.telemetry_bytes, "The largest push of a client's metrics."),
]  # fmt: skip
_UNSET = Settings()


def _defaults() -> list[tuple[str, Key]]:
    """Broker configs that hold the defaults of topics and groups: they are what the code says."""
    keys = [*topic_configs.KEYS.values(), *group_configs.KEYS.values()]
    return [(key.synonym, key) for key in keys if key.synonym and key.synonym not in group_configs.KEYS]


def rows(settings: Settings, resources: Resources) -> list[Row]:
    """Everything that a broker has a name for."""
    found: dict[str, Row] = {}
    facts = topic_configs.facts(settings)
    for synonym, key in _defaults():
        value = facts.get(key.name, key.default)
        named = Key(synonym, key.kind, value, key.check, key.doc)
        found[synonym] = Row(named, value, ((synonym, value, DEFAULT),), True)
    for name, kind, get, doc in _STATIC:
        value, unset = str(get(settings)), str(get(_UNSET))
        sources = [(name, value, STATIC if value != unset else DEFAULT)]
        key = DYNAMIC.get(name) or Key(name, kind, unset, str, doc)
        if name in DYNAMIC:
            sources = [*_dynamic(name, settings.node, resources), *sources]
        found[name] = Row(key, sources[0][1], tuple(sources), name not in DYNAMIC)
    return sorted(found.values(), key=lambda row: row.key.name)


def common_rows(resources: Resources) -> list[Row]:
    """What is set for all brokers."""
    common = resources.of(ResourceKind.BROKER, ALL_BROKERS)
    return [
        Row(DYNAMIC[name], value, ((name, value, DYNAMIC_DEFAULT),), False)
        for name, value in sorted(common.items())
        if name in DYNAMIC
    ]


def _dynamic(name: str, node: int, resources: Resources) -> list[tuple[str, str, int]]:
    found = []
    for resource, source in ((str(node), DYNAMIC_BROKER), (ALL_BROKERS, DYNAMIC_DEFAULT)):
        value = resources.of(ResourceKind.BROKER, resource).get(name)
        if value is not None:
            found.append((name, value, source))
    return found


def checked(name: str, value: str) -> str:
    """A value for a config that can be changed while brokers run."""
    if name not in DYNAMIC:
        if name in {known for known, *_ in _STATIC} | {known for known, _ in _defaults()}:
            raise NotDynamic(f"Cannot update these configs dynamically: [{name}]")
        raise ConfigError(f"Unknown broker config name: {name}")
    try:
        return checked_by(DYNAMIC, "broker", name, value)
    except ConfigError as error:
        raise NotDynamic(str(error)) from None


def limit(settings: Settings, resources: Resources, name: str) -> int:
    """A number that can be changed while brokers run, as it is now."""
    for _, value, _source in _dynamic(name, settings.node, resources):
        return int(value)
    return int(str(next(get(settings) for known, _, get, _ in _STATIC if known == name)))
