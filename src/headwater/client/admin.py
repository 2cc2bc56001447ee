"""Topics and configs: calls for operators.

If a call for several topics fails for some of them, it takes effect for the others. The error names all that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection
from headwater.client.errors import ProtocolError, Unreachable, check, describe, kafka_error
from headwater.client.model import DAMAGE, Config, ConfigSource, DamagedOffsets, NewTopic, Topic
from headwater.client.routing import Repeat, Router, topic_of
from headwater.errors import ConfigError

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1
_BROKER_TIMEOUT_MS = 20_000


def _check_all(answers: Iterable[tuple[str, ErrorCode, str | None]]) -> None:
    """Raise an error if something failed. Several failures become one error with the code of the first."""
    failures = [(what, code, message) for what, code, message in answers if code is not ErrorCode.none]
    if not failures:
        return
    what, code, message = failures[0]
    if len(failures) > 1:
        others = ", ".join(f"{other[0]} ({other[1].name.upper()})" for other in failures[1:])
        message = f"{(message or describe(code)).rstrip('.')}; also failed: {others}"
    raise kafka_error(code, what, message)


def _one_answer(answers: Sequence[Any]) -> Any:
    if len(answers) != 1:
        raise ProtocolError(f"{len(answers)} answers to a request for one item")
    return answers[0]


class AdminCalls(Router):
    """Calls about topics and configs."""

    async def _change(self, api_key: int, judge: Callable[[Any], None], repeat: Repeat, **fields: Any) -> Any:
        async def attempt() -> Any:
            connection = await self.controller()
            response = await connection.request(api_key, within=self.settings.request_s, **fields)
            judge(response)
            return response

        return await self.retrying(attempt, repeat=repeat)

    # --- topics --------------------------------------------------------------------------------------

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check whether they could be created."""

        def judge(response: Any) -> None:
            _check_all((f"topic {t.name!r}", t.error_code, t.error_message) for t in response.topics)

        wanted = [
            {
                "name": topic.name,
                "num_partitions": topic.partitions,
                "replication_factor": topic.replicas,
                "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
            }
            for topic in topics
        ]
        await self._change(
            CREATE_TOPICS,
            judge,
            Repeat.IF_NOT_DONE,
            topics=wanted,
            timeout=_BROKER_TIMEOUT_MS,
            validate_only=validate_only,
        )
        for topic in topics:
            self.forget(topic.name)

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with their records."""

        def judge(response: Any) -> None:
            _check_all(
                (f"topic {t.name!r}", t.error_code, getattr(t, "error_message", None)) for t in response.responses
            )

        await self._change(
            DELETE_TOPICS,
            judge,
            Repeat.IF_NOT_DONE,
            topics=[{"name": name, "topic_id": None} for name in names],
            topic_names=names,
            timeout=_BROKER_TIMEOUT_MS,
        )
        for name in names:
            self.forget(name)

    async def create_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, up to `count` in all."""

        def judge(response: Any) -> None:
            answer = _one_answer(response.results)
            check(answer.error_code, f"topic {name!r}", answer.error_message)

        await self._change(
            CREATE_PARTITIONS,
            judge,
            Repeat.IF_NOT_DONE,
            topics=[{"name": name, "count": count, "assignments": None}],
            timeout=_BROKER_TIMEOUT_MS,
            validate_only=False,
        )
        self.forget(name)

    async def list_topics(self, *, internal: bool = False) -> list[Topic]:
        """All topics, by name; without Kafka's internal topics unless they are asked for."""

        async def attempt() -> list[Topic]:
            answers = await self.load_metadata(None)
            return [topic_of(answer) for answer in answers if answer.error_code is ErrorCode.none]

        topics = [topic for topic in await self.retrying(attempt) if internal or not topic.internal]
        return sorted(topics, key=lambda topic: topic.name)

    async def describe_topics(self, names: Sequence[str]) -> list[Topic]:
        """Topics by name, with fresh metadata."""

        async def attempt() -> list[Topic]:
            answers = {answer.name: answer for answer in await self.load_metadata(list(names))}
            if set(answers) != set(names):
                raise ProtocolError(f"the answer to a request for {len(names)} topics has other topics")
            _check_all((f"topic {name!r}", answers[name].error_code, None) for name in names)
            return [topic_of(answers[name]) for name in names]

        return await self.retrying(attempt)

    # --- configs -------------------------------------------------------------------------------------

    async def damaged_offsets(self, topic: str) -> list[DamagedOffsets]:
        """The offsets of a topic that brokers found to be unreadable. Brokers that cannot be reached are left out."""
        found: dict[tuple[int, int], DamagedOffsets] = {}
        for broker in (await self.cluster()).brokers:
            try:
                connection = await self.connection_to(broker.host, broker.port)
                configs = await self.describe_configs(topic, [DAMAGE], connection)
            except Unreachable:
                continue
            for config in configs:
                for one in msgspec.json.decode(config.value or "[]", type=list[DamagedOffsets]):
                    before = found.get((one.partition, one.first_offset), one)
                    clients = sorted({*before.clients, *one.clients})
                    found[(one.partition, one.first_offset)] = msgspec.structs.replace(one, clients=clients)
        return [found[key] for key in sorted(found)]

    async def describe_configs(
        self, topic: str, names: Sequence[str] | None = None, asked: Connection | None = None
    ) -> list[Config]:
        """A topic's configs, all of them or the named ones, by name. By default any broker is asked."""

        async def attempt() -> list[Config]:
            connection = asked or await self.any_broker()
            response = await connection.request(
                DESCRIBE_CONFIGS,
                within=self.settings.request_s,
                resources=[{"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": names}],
                include_synonyms=False,
                include_documentation=True,
            )
            answer = _one_answer(response.results)
            check(answer.error_code, f"configs of topic {topic!r}", answer.error_message)
            return [
                Config(
                    row.name,
                    row.value,
                    ConfigSource(row.config_source),
                    row.read_only,
                    getattr(row, "documentation", None),
                )
                for row in answer.configs
            ]

        return sorted(await self.retrying(attempt), key=lambda config: config.name)

    async def incremental_alter_configs(
        self, topic: str, put: Mapping[str, str], remove: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """Set some configs of a topic and reset others to their defaults."""
        if both := put.keys() & set(remove):
            raise ConfigError(f"configs both set and removed: {', '.join(sorted(both))}")

        def judge(response: Any) -> None:
            answer = _one_answer(response.responses)
            check(answer.error_code, f"configs of topic {topic!r}", answer.error_message)

        changes = [{"name": n, "config_operation": _SET, "value": v} for n, v in put.items()]
        changes += [{"name": n, "config_operation": _DELETE, "value": None} for n in remove]
        await self._change(
            INCREMENTAL_ALTER_CONFIGS,
            judge,
            Repeat.ALWAYS,
            resources=[{"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": changes}],
            validate_only=validate_only,
        )
