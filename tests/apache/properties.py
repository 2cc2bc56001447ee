"""Properties of a server of Apache Kafka as Headwater's settings, and as configs that are set while brokers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.configs.brokers import DYNAMIC

Settings = dict[str, Any]


def _flag(text: str) -> bool:
    return text == "true"


ADMIN = "plain-admin"
ADMIN_LISTENER = "ADMIN"
USERS = {ADMIN: "plain-admin-secret", "plain-user1": "plain-user1-secret"}
"""Users of the tests, with their passwords."""
SETTINGS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "allow.everyone.if.no.acl.found": ("security.allow_without_acls", _flag),
    "authorizer.class.name": ("security.acls", bool),
    "auto.create.topics.enable": ("auto_create_topics", _flag),
    "broker.rack": ("zone", str),
    "connections.max.idle.ms": ("limits.idle_ms", int),
    "group.consumer.assignment.interval.ms": ("groups.consumer_assignment_interval_ms", int),
    "group.consumer.heartbeat.interval.ms": ("groups.consumer_heartbeat_interval_ms", int),
    "group.consumer.max.size": ("groups.max_members", int),
    "group.consumer.session.timeout.ms": ("groups.consumer_session_timeout_ms", int),
    "group.initial.rebalance.delay.ms": ("groups.initial_rebalance_delay_ms", int),
    "group.max.session.timeout.ms": ("groups.max_session_timeout_ms", int),
    "group.max.size": ("groups.max_members", int),
    "group.min.session.timeout.ms": ("groups.min_session_timeout_ms", int),
    "num.partitions": ("default_partitions", int),
    "offset.metadata.max.bytes": ("groups.offset_metadata_bytes", int),
    "producer.id.expiration.check.interval.ms": ("housekeeping.interval_ms", int),
    "producer.id.expiration.ms": ("housekeeping.producer_expiry_ms", int),
    "socket.request.max.bytes": ("limits.frame_bytes", int),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ("transactions.check_interval_ms", int),
    "transaction.max.timeout.ms": ("transactions.max_timeout_ms", int),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ("housekeeping.interval_ms", int),
    "transactional.id.expiration.ms": ("transactions.id_expiry_ms", int),
}
"""Where a property is a setting, and how its value is read. Other properties are about what Headwater does not have."""


def settings_of(properties: Mapping[str, str]) -> Settings:
    """The tree of settings that these properties stand for."""
    tree: Settings = {}
    for name, text in properties.items():
        if name not in SETTINGS:
            continue
        path, read = SETTINGS[name]
        *sections, last = path.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = read(text)
    return tree


def secured(tree: Settings, listener: str, protocol: str, properties: Mapping[str, str]) -> list[str]:
    """Add to a tree how its listener is protected. Where users log in, rules count, as in the tests' Kafka.

    Returns the listeners: where rules count and users do not log in, there is another one for who sets the rules.
    """
    security = tree.setdefault("security", {})
    listeners = security["listeners"] = {listener: {"protocol": protocol}}
    if protocol.startswith("SASL"):
        listeners[listener]["mechanisms"] = properties.get("sasl.enabled.mechanisms", "PLAIN")
        security["acls"] = True
    elif security.get("acls"):
        listeners[ADMIN_LISTENER] = {"protocol": "SASL_PLAINTEXT", "mechanisms": "PLAIN"}
    if security.get("acls"):
        security["super_users"] = f"User:{ADMIN}"
    return list(listeners)


def dynamic_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are set for all brokers while they run."""
    return {name: text for name, text in properties.items() if name in DYNAMIC}
