"""Configs of topics: their values and where these come from; setting and resetting them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, patch
from litestar.params import JSONBody, PathParameter

from headwater.configs.brokers import DYNAMIC_DEFAULT, Row
from headwater.configs.described import OF_TOPIC, topic_rows
from headwater.gateway.admin import topics as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, paged
from headwater.gateway.parameters import TopicName, ValidateOnly
from headwater.gateway.services import TheCall
from headwater.state.cluster.access import Operation

ConfigName = Annotated[str, PathParameter(description="The name of the config.")]
_SOURCES = {OF_TOPIC: "topic", DYNAMIC_DEFAULT: "cluster"}


class ConfigLine(msgspec.Struct, frozen=True):
    """A config of a topic."""

    name: str
    """The name of the config."""
    value: str
    """The value that applies."""
    source: str
    """Where the value comes from: `topic` (set for this topic), `cluster` (set for all brokers) or `default`."""
    type: str
    """The type of the value: `boolean`, `string`, `int`, `long`, `double` or `list`."""
    meaning: str
    """What the config does."""


class ConfigChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configs to set and to reset. All are changed, or none."""

    set: dict[str, str] = {}
    """New values by name."""
    reset: list[str] = []
    """Names of configs that get their defaults back."""


class OwnConfigs(msgspec.Struct, frozen=True):
    """The configs that are set for a topic."""

    configs: dict[str, str]
    """Values by name. All other configs have their defaults."""


@get("/v1/topics/{name:str}/configs", operation_id="listTopicConfigs", tags=["topics"])
async def list_topic_configs(
    call: TheCall, name: TopicName, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[ConfigLine]:
    """All configs of a topic, by name, with their values. The caller needs the right to DESCRIBE_CONFIGS."""
    topic = await admin.find(call, name, Operation.DESCRIBE_CONFIGS)
    own = call.services
    rows = sorted(topic_rows(topic.configs, own.state.resources), key=_name)
    page, then = paged("configs", rows, _name, limit=limit, cursor=cursor, most=own.own.page_items)
    return Listing([_line(row) for row in page], then)


@patch("/v1/topics/{name:str}/configs", operation_id="alterTopicConfigs", tags=["topics"])
async def alter_topic_configs(
    call: TheCall, name: TopicName, data: JSONBody[ConfigChange], validate_only: ValidateOnly = False
) -> OwnConfigs:
    """Set and reset configs of a topic, all or none. The caller needs the right to ALTER_CONFIGS.

    The answer has what is set for the topic afterwards, or with `validate_only` what would be set.
    """
    return OwnConfigs(dict(await admin.alter(call, name, data.set, data.reset, dry=validate_only)))


@delete("/v1/topics/{name:str}/configs/{config:str}", operation_id="resetTopicConfig", tags=["topics"])
async def reset_topic_config(call: TheCall, name: TopicName, config: ConfigName) -> None:
    """Reset a config of a topic to its default. The caller needs the right to ALTER_CONFIGS."""
    await admin.alter(call, name, {}, [config], dry=False)


def _name(row: Row) -> str:
    return row.key.name


def _line(row: Row) -> ConfigLine:
    source = _SOURCES.get(row.source, "default")
    return ConfigLine(row.key.name, row.value, source, row.key.kind.name.lower(), row.key.meaning)


ROUTES = (list_topic_configs, alter_topic_configs, reset_topic_config)
