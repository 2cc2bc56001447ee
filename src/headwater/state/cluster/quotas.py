"""The part of the state for configs of brokers, groups and metric subscriptions, and for client quotas."""

from __future__ import annotations

import msgspec

from headwater.state.cluster.domain import ClusterDomain
from headwater.state.cluster.resources import QuotaRow, ResourceRow
from headwater.state.commands.cluster import AlterQuota, AlterResource
from headwater.state.machine import Part
from headwater.state.results import Result


def _alter_resource(state: ClusterDomain, epoch: int, command: AlterResource) -> Result:
    result = state.resources.alter(command)
    state.roll("resource", command.kind, command.name, sorted(command.put.items()), command.remove)
    state.changed()
    return result


def _alter_quota(state: ClusterDomain, epoch: int, command: AlterQuota) -> Result:
    result = state.resources.alter_quota(command)
    state.roll("quota", command.entity, sorted(command.put.items()), command.remove)
    state.changed()
    return result


class ResourcesImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Configs and quotas inside a checkpoint."""

    configs: list[ResourceRow]
    quotas: list[QuotaRow]


def _unpack(state: ClusterDomain, image: ResourcesImage) -> None:
    state.resources.restore(image.configs, image.quotas)


PART: Part[ClusterDomain, ResourcesImage] = Part(
    name="resources",
    commands={AlterResource: _alter_resource, AlterQuota: _alter_quota},
    format=1,
    image=ResourcesImage,
    pack=lambda state: ResourcesImage(*state.resources.image()),
    unpack=_unpack,
    empty=lambda: ResourcesImage([], []),
)
