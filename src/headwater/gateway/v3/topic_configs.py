"""Configs of topics."""

from __future__ import annotations

from litestar import delete, get, post, put
from litestar.params import JSONBody

from headwater.configs.brokers import Row
from headwater.configs.described import topic_rows
from headwater.gateway.admin import topics as admin
from headwater.gateway.paging import paged
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
from headwater.gateway.v3.frame import ConfigName, Frame, ListOf, PageToken, TheFrame, TopicName
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic

_CONFIGS = "/clusters/{cluster_id:str}/topics/{topic_name:str}/configs"
_LIST = "KafkaTopicConfigList"
TOPICS_OF_A_PART = 200
"""Topics whose configs are in one part of the listing of all topics."""


@get(_CONFIGS, operation_id="v3ListTopicConfigs", tags=["REST Proxy"])
async def list_topic_configs(frame: TheFrame, topic_name: TopicName) -> ListOf[ConfigData]:
    """All configs of a topic, by name."""
    topic, rows = await _rows(frame, topic_name)
    return frame.listed(_LIST, ["topics", topic_name, "configs"], rows, name_of, lambda row: _config(frame, topic, row))


@get(
    "/clusters/{cluster_id:str}/topics/-/configs",
    operation_id="v3ListConfigsOfAllTopics",
    tags=["REST Proxy"],
)
async def list_all_topic_configs(frame: TheFrame, page_token: PageToken = "") -> ListOf[ConfigData]:
    """The configs of all topics for which the caller has the right to DESCRIBE_CONFIGS."""
    own = frame.services
    await own.catch_up()
    names = sorted(
        name
        for name, topic in own.state.names.items()
        if topic.ready and frame.call.may(Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, name)
    )
    size = TOPICS_OF_A_PART
    some, then = paged(_LIST, names, str, limit=size, cursor=page_token, most=size)
    found = [
        _config(frame, topic, row)
        for topic in (own.state.names[name] for name in some)
        for row in sorted(topic_rows(topic.configs, own.state.resources), key=name_of)
    ]
    return ListOf(_LIST, frame.list_metadata(["topics", "-", "configs"], {"page_token": then} if then else {}), found)


@get(f"{_CONFIGS}/{{name:str}}", operation_id="v3GetTopicConfig", tags=["REST Proxy"])
async def get_topic_config(frame: TheFrame, topic_name: TopicName, name: ConfigName) -> ConfigData:
    """A config of a topic."""
    topic, rows = await _rows(frame, topic_name)
    return _config(frame, topic, the_config(rows, name))


@put(f"{_CONFIGS}/{{name:str}}", operation_id="v3SetTopicConfig", tags=["REST Proxy"], status_code=204)
async def set_topic_config(frame: TheFrame, topic_name: TopicName, name: ConfigName, data: JSONBody[NewValue]) -> None:
    """Set a config of a topic."""
    with kafka_errors():
        await admin.alter(frame.call, topic_name, {name: value_of(name, data)}, [], dry=False)


@delete(f"{_CONFIGS}/{{name:str}}", operation_id="v3ResetTopicConfig", tags=["REST Proxy"])
async def reset_topic_config(frame: TheFrame, topic_name: TopicName, name: ConfigName) -> None:
    """Reset a config of a topic to its default."""
    with kafka_errors():
        await admin.alter(frame.call, topic_name, {}, [name], dry=False)


@post(f"{_CONFIGS}:alter", operation_id="v3AlterTopicConfigs", tags=["REST Proxy"], status_code=204)
async def alter_topic_configs(frame: TheFrame, topic_name: TopicName, data: JSONBody[Alterations]) -> None:
    """Set and reset configs of a topic, all or none."""
    with kafka_errors():
        given, reset = edits_of(data)
        await admin.alter(frame.call, topic_name, given, reset, dry=data.validate_only)


async def _rows(frame: Frame, name: str) -> tuple[Topic, list[Row]]:
    with kafka_errors():
        topic = await admin.find(frame.call, name, Operation.DESCRIBE_CONFIGS)
    return topic, sorted(topic_rows(topic.configs, frame.services.state.resources), key=name_of)


def _config(frame: Frame, topic: Topic, row: Row) -> ConfigData:
    return config_data(frame, "KafkaTopicConfig", row, ("topics", topic.name, "configs"), topic=topic.name)


ROUTES = (
    list_topic_configs,
    list_all_topic_configs,
    get_topic_config,
    set_topic_config,
    reset_topic_config,
    alter_topic_configs,
)
