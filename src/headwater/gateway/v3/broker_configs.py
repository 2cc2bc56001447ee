"""Configs of one broker, and of all brokers (`broker-configs`): those that the ledger has.

What a broker takes from its own settings is known to that broker only, so it is not listed here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec
from litestar import delete, get, post, put
from litestar.params import JSONBody

from headwater.configs import brokers as broker_configs
from headwater.configs.brokers import DEFAULT, STATIC, Row
from headwater.configs.changes import DELETE, SET, Edit, Rules, change_of
from headwater.errors import ConfigError, NotReady
from headwater.gateway.v3.brokers import broker_of
from headwater.gateway.v3.configs import (
    Alterations,
    ConfigData,
    NewValue,
    config_data,
    edits_of,
    name_of,
    the_config,
    value_of,
)
from headwater.gateway.v3.errors import kafka_errors
from headwater.gateway.v3.frame import BrokerId, ConfigName, Frame, ListOf, TheFrame
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource
from headwater.state.commands.cluster import AlterResource
from headwater.state.results import Done, Reason, Refused

_CLUSTER = "/clusters/{cluster_id:str}"
_OF_ALL = _CLUSTER + "/broker-configs"
_OF_ONE = _CLUSTER + "/brokers/{broker_id:int}/configs"


@get(_OF_ALL, operation_id="v3ListClusterConfigs", tags=["REST Proxy"])
async def list_cluster_configs(frame: TheFrame) -> ListOf[ConfigData]:
    """The configs that are set for all brokers."""
    rows = await _common(frame)
    return frame.listed("KafkaClusterConfigList", ["broker-configs"], rows, name_of, lambda row: _of_all(frame, row))


@get(f"{_OF_ALL}/{{name:str}}", operation_id="v3GetClusterConfig", tags=["REST Proxy"])
async def get_cluster_config(frame: TheFrame, name: ConfigName) -> ConfigData:
    """A config that is set for all brokers."""
    return _of_all(frame, the_config(await _common(frame), name))


@put(f"{_OF_ALL}/{{name:str}}", operation_id="v3SetClusterConfig", tags=["REST Proxy"], status_code=204)
async def set_cluster_config(frame: TheFrame, name: ConfigName, data: JSONBody[NewValue]) -> None:
    """Set a config for all brokers."""
    await _alter(frame, ALL_BROKERS, {name: value_of(name, data)}, [])


@delete(f"{_OF_ALL}/{{name:str}}", operation_id="v3ResetClusterConfig", tags=["REST Proxy"])
async def reset_cluster_config(frame: TheFrame, name: ConfigName) -> None:
    """Remove a config that is set for all brokers."""
    await _alter(frame, ALL_BROKERS, {}, [name])


@post(f"{_OF_ALL}:alter", operation_id="v3AlterClusterConfigs", tags=["REST Proxy"], status_code=204)
async def alter_cluster_configs(frame: TheFrame, data: JSONBody[Alterations]) -> None:
    """Set and remove configs of all brokers, all or none."""
    await _alter(frame, ALL_BROKERS, *edits_of(data), dry=data.validate_only)


@get(_OF_ONE, operation_id="v3ListBrokerConfigs", tags=["REST Proxy"])
async def list_broker_configs(frame: TheFrame, broker_id: BrokerId) -> ListOf[ConfigData]:
    """The configs of a broker that can be changed while it runs."""
    rows = await _own(frame, broker_id)
    path = ("brokers", broker_id, "configs")
    return frame.listed("KafkaBrokerConfigList", path, rows, name_of, lambda row: _of_one(frame, broker_id, row))


@get(f"{_OF_ONE}/{{name:str}}", operation_id="v3GetBrokerConfig", tags=["REST Proxy"])
async def get_broker_config(frame: TheFrame, broker_id: BrokerId, name: ConfigName) -> ConfigData:
    """A config of a broker."""
    return _of_one(frame, broker_id, the_config(await _own(frame, broker_id), name))


@put(f"{_OF_ONE}/{{name:str}}", operation_id="v3SetBrokerConfig", tags=["REST Proxy"], status_code=204)
async def set_broker_config(frame: TheFrame, broker_id: BrokerId, name: ConfigName, data: JSONBody[NewValue]) -> None:
    """Set a config of a broker."""
    await _alter(frame, _named(frame, broker_id), {name: value_of(name, data)}, [])


@delete(f"{_OF_ONE}/{{name:str}}", operation_id="v3ResetBrokerConfig", tags=["REST Proxy"])
async def reset_broker_config(frame: TheFrame, broker_id: BrokerId, name: ConfigName) -> None:
    """Remove a config that is set for a broker."""
    await _alter(frame, _named(frame, broker_id), {}, [name])


@post(f"{_OF_ONE}:alter", operation_id="v3AlterBrokerConfigs", tags=["REST Proxy"], status_code=204)
async def alter_broker_configs(frame: TheFrame, broker_id: BrokerId, data: JSONBody[Alterations]) -> None:
    """Set and remove configs of a broker, all or none."""
    await _alter(frame, _named(frame, broker_id), *edits_of(data), dry=data.validate_only)


async def _common(frame: Frame) -> list[Row]:
    frame.call.check(Operation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
    await frame.services.catch_up()
    return broker_configs.common_rows(frame.services.state.resources)


async def _own(frame: Frame, broker: int) -> list[Row]:
    """What the ledger says of a broker's configs, and the defaults of topics."""
    frame.call.check(Operation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
    own = frame.services
    await own.catch_up()
    broker_of(frame, broker)
    settings = msgspec.structs.replace(own.settings, node=broker)
    rows = broker_configs.rows(settings, own.state.resources)
    limits = broker_configs.PER_BROKER
    return [
        row
        for row in rows
        if row.key.name in broker_configs.DYNAMIC
        and (row.key.name not in limits or row.source not in (STATIC, DEFAULT))
    ]


def _named(frame: Frame, broker: int) -> str:
    return str(broker_of(frame, broker).node)


async def _alter(frame: Frame, name: str, given: Mapping[str, str], reset: Sequence[str], *, dry: bool = False) -> None:
    """Set and remove configs of one broker, or of all."""
    frame.call.check(Operation.ALTER_CONFIGS, AclResource.CLUSTER)
    own = frame.services
    own.check_contact()
    await own.catch_up()
    now = own.state.resources.of(ConfigResource.BROKER, name)
    rules = Rules(broker_configs.DYNAMIC, functools.partial(broker_configs.checked, name))
    edits = [*(Edit(config, SET, value) for config, value in given.items()), *(Edit(c, DELETE, "") for c in reset)]
    with kafka_errors():
        change = change_of(rules, now, edits)
        if dry or not (change.put or change.remove):
            return
        command = AlterResource(ConfigResource.BROKER, name, change.put, tuple(change.remove))
        [result] = await own.cluster.submit([command])
        if isinstance(result, Refused) and result.reason is not Reason.FENCED:
            raise ConfigError(result.detail)
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
    await own.topics.configure_all()


def _of_all(frame: Frame, row: Row) -> ConfigData:
    return config_data(frame, "KafkaClusterConfig", row, ("broker-configs",), of="BROKER")


def _of_one(frame: Frame, broker: int, row: Row) -> ConfigData:
    return config_data(frame, "KafkaBrokerConfig", row, ("brokers", broker, "configs"), broker=broker)


ROUTES = (
    list_cluster_configs,
    get_cluster_config,
    set_cluster_config,
    reset_cluster_config,
    alter_cluster_configs,
    list_broker_configs,
    get_broker_config,
    set_broker_config,
    reset_broker_config,
    alter_broker_configs,
)
