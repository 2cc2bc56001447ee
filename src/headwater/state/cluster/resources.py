"""Configs of brokers, groups and subscriptions to clients' metrics, and client quotas. They are state of domain 0."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from headwater.state.commands.cluster import AlterQuota, AlterResource
from headwater.state.results import Done, Reason, Refused, Result

ALL_BROKERS = ""
"""The name under which configs are set for all brokers."""
MAX_RESOURCES = 100_000
MAX_QUOTAS = 100_000
MAX_CONFIGS_EACH = 1_000


class ConfigResource(enum.IntEnum):
    """The kinds of things that have configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""What a quota applies to: (kind, name) sorted by kind. The name is `None` for the default of a kind."""

ResourceRow: TypeAlias = tuple[int, str, dict[str, str]]
QuotaRow: TypeAlias = tuple[Entity, dict[str, str]]


class Resources:
    """Configs by resource, and quotas by entity. A resource without configs has no entry."""

    def __init__(self) -> None:
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[Entity, dict[str, str]] = {}
        """Values are decimal numbers as text, because `apply` uses no floats."""
        self.quota_version = 0
        """Rises with every change of `quotas`. It is not part of the state."""

    def __repr__(self) -> str:
        return f"<Resources: {len(self._configs)} with configs, {len(self.quotas)} with quotas>"

    def of(self, kind: ConfigResource, name: str) -> Mapping[str, str]:
        """The configs that are set for a resource."""
        return self._configs.get((kind, name), {})

    @property
    def common(self) -> Mapping[str, str]:
        """The configs that are set for all brokers. Some of them are defaults of topic configs."""
        return self.of(ConfigResource.BROKER, ALL_BROKERS)

    def names(self, kind: ConfigResource) -> list[str]:
        """The resources of a kind that have configs, sorted."""
        return sorted(name for of_kind, name in self._configs if of_kind == kind)

    def alter(self, command: AlterResource) -> Result:
        """Set and remove configs of a resource."""
        key = (command.kind, command.name)
        configs = _changed(self._configs.get(key), command.put, command.remove)
        if len(configs) > MAX_CONFIGS_EACH or (key not in self._configs and len(self._configs) >= MAX_RESOURCES):
            return Refused(Reason.INVALID, "there are too many configs")
        self._configs.pop(key, None)
        if configs:
            self._configs[key] = configs
        return Done()

    def alter_quota(self, command: AlterQuota) -> Result:
        """Set and remove quotas of an entity."""
        limits = _changed(self.quotas.get(command.entity), command.put, command.remove)
        if len(limits) > MAX_CONFIGS_EACH or (command.entity not in self.quotas and len(self.quotas) >= MAX_QUOTAS):
            return Refused(Reason.INVALID, "there are too many quotas")
        self.quota_version += 1
        self.quotas.pop(command.entity, None)
        if limits:
            self.quotas[command.entity] = limits
        return Done()

    def image(self) -> tuple[list[ResourceRow], list[QuotaRow]]:
        """Configs and quotas as plain data, for a checkpoint."""
        configs = [(kind, name, configs) for (kind, name), configs in self._configs.items()]
        return configs, list(self.quotas.items())

    def restore(self, configs: list[ResourceRow], quotas: list[QuotaRow]) -> None:
        """The inverse of `image`."""
        self._configs = {(kind, name): dict(of_one) for kind, name, of_one in configs}
        self.quotas = {entity: dict(limits) for entity, limits in quotas}
        self.quota_version += 1


def _changed(before: Mapping[str, str] | None, put: Mapping[str, str], remove: tuple[str, ...]) -> dict[str, str]:
    after = {name: value for name, value in (before or {}).items() if name not in remove}
    return {**after, **put}
