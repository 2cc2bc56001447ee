"""What tests of handlers share: nodes to call, and the few calls that nearly every test needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.settings.settings import Settings
from tests.support.batches import Rec
from tests.support.nodes import Caller, cluster

NOW = int(time.time() * 1000)
PRODUCE, FETCH, CREATE, DESCRIBE_CONFIGS = 0, 1, 19, 32
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def run(test: Callable[..., Awaitable[None]], count: int = 1, settings: Settings | None = None) -> None:
    """Run a test over so many brokers."""

    async def main() -> None:
        async with cluster(count, settings) as callers:
            async with asyncio.timeout(30):
                await test(*callers)

    asyncio.run(main())


async def create(node: Caller, name: str = "t", partitions: int = 1, **configs: str) -> None:
    """A topic; in the names of configs an underscore stands for a dot."""
    wanted = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": wanted}
    [answer] = (await node(CREATE, 7, topics=[topic])).topics
    assert answer.error_code is ErrorCode.none, answer.error_message


async def produce(node: Caller, data: bytes, topic: str = "t", partition: int = 0) -> Any:
    """A partition's answer."""
    parts = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
    response = await node(PRODUCE, 9, acks=-1, timeout=10_000, topic_data=parts)
    return response.responses[0].partition_responses[0]


async def fetch(node: Caller, offset: int, topic: str = "t", partition: int = 0) -> Any:
    """A partition's answer, without waiting."""
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    response = await node(FETCH, 11, topics=[{"topic": topic, "partitions": [wanted]}], **limits)
    return response.responses[0].partitions[0]


async def configs_of(node: Caller, kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    """A resource's configs by name."""
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    response = await node(DESCRIBE_CONFIGS, 4, resources=wanted, include_synonyms=True, include_documentation=True)
    [result] = response.results
    assert result.error_code is ErrorCode.none, result.error_message
    return {config.name: config for config in result.configs}


def recs(*contents: bytes) -> list[Rec]:
    """Records of just now."""
    return [Rec(content, timestamp=NOW + i) for i, content in enumerate(contents)]
