"""Brokers. Every broker serves every partition, and none keeps any data."""

from __future__ import annotations

import msgspec
from litestar import get

from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.v3.frame import BrokerId, Frame, ListOf, Metadata, Related, TheFrame
from headwater.settings.settings import INTERNAL
from headwater.settings.zones import rack_of
from headwater.state.cluster.domain import Process
from headwater.state.cluster.state import ClusterState


class BrokerData(msgspec.Struct, frozen=True):
    """A broker."""

    kind: str
    """Always `KafkaBroker`."""
    metadata: Metadata
    """The links of the broker."""
    cluster_id: str
    """The id of the cluster."""
    broker_id: int
    """The number of the broker."""
    host: str | None
    """The host of the broker's first listener."""
    port: int | None
    """The port of the broker's first listener."""
    rack: str | None
    """The zone of the broker."""
    configs: Related
    """The configs of the broker."""
    partition_replicas: Related
    """The partitions for which clients are sent to this broker. This listing is not served."""


def brokers(state: ClusterState) -> list[Process]:
    """The brokers by number."""
    return sorted(state.serving(), key=lambda process: process.node)


def leaders(state: ClusterState) -> list[int]:
    """The numbers of the brokers that clients are sent to."""
    everybody = brokers(state)
    return [p.node for p in everybody if state.in_rotation(p)] or [p.node for p in everybody]


def broker_of(frame: Frame, broker_id: int) -> Process:
    """A broker by its number."""
    found = next((p for p in brokers(frame.services.state) if p.node == broker_id), None)
    if found is None:
        raise Refusal(NOT_FOUND, f"Broker {broker_id} cannot be found.")
    return found


@get("/clusters/{cluster_id:str}/brokers", operation_id="v3ListBrokers", tags=["REST Proxy"])
async def list_brokers(frame: TheFrame) -> ListOf[BrokerData]:
    """The brokers."""
    await frame.services.catch_up()
    found = brokers(frame.services.state)
    return frame.listed("KafkaBrokerList", ["brokers"], found, lambda p: p.node, lambda p: _broker(frame, p))


@get("/clusters/{cluster_id:str}/brokers/{broker_id:int}", operation_id="v3GetBroker", tags=["REST Proxy"])
async def get_broker(frame: TheFrame, broker_id: BrokerId) -> BrokerData:
    """A broker."""
    await frame.services.catch_up()
    return _broker(frame, broker_of(frame, broker_id))


def _broker(frame: Frame, process: Process) -> BrokerData:
    first = next((listener for listener in process.listeners if listener.name != INTERNAL), None)
    return BrokerData(
        "KafkaBroker",
        frame.metadata("brokers", process.node),
        frame.cluster_id,
        process.node,
        first.host if first else None,
        first.port if first else None,
        rack_of(process.zone) or None,
        frame.related("brokers", process.node, "configs"),
        frame.related("brokers", process.node, "partition-replicas"),
    )


ROUTES = (list_brokers, get_broker)
