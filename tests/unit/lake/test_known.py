"""Schemas that a registry was asked for: kept for a while, within limits; a silent registry is left alone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.virtual import VirtualClock, run
from headwater.errors import RegistryUnavailable
from headwater.lake import answers, known
from headwater.lake.known import KnownSchemas
from headwater.schemas.typing import KnownSchema
from tests.support.promise import promise

PROMISES = ("T6",)

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


class Answering:
    """A registry that has some schemas, or does not answer."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.asked: list[str] = []
        self.away = False

    async def schema(self, name: str) -> KnownSchema | None:
        self.asked.append(name)
        if self.away:
            raise RegistryUnavailable("it is away")
        return KnownSchema((name,), "AVRO", f"text of {name}", ()) if name in self.names else None


def told(story: Callable[[Answering, KnownSchemas], Coroutine[Any, Any, None]]) -> None:
    registry = Answering("1", "2", "subject:s")
    run(story(registry, KnownSchemas(registry, VirtualClock())))


def names(schemas: KnownSchemas, topic: uuid.UUID = ONE) -> tuple[list[str], tuple[str, ...]]:
    found, absent = schemas.of(topic)
    return [schema.names[0] for schema in found], absent


@promise("T6")
def test_what_records_of_a_topic_name() -> None:
    """What may change is asked for again after a while, and nothing else."""

    async def story(registry: Answering, schemas: KnownSchemas) -> None:
        assert await schemas.learn(ONE, ["1", "9"]) and await schemas.learn(ONE, [])
        assert names(schemas) == (["1"], ("9",)) and names(schemas, OTHER) == ([], ())
        await schemas.refresh(ONE, ("auto", "subject:s"))
        assert names(schemas) == (["1", "subject:s"], ("9",)) and registry.asked == ["1", "9", "subject:s"]
        await schemas.refresh(ONE, ("auto", "subject:s"))
        assert len(registry.asked) == 3
        await asyncio.sleep(known.NEWEST_SECONDS)
        await schemas.refresh(ONE, ("auto", "subject:s"))
        assert registry.asked[3:] == ["subject:s"]
        registry.names.add("9")
        await asyncio.sleep(known.ABSENT_SECONDS)
        await schemas.refresh(ONE, ("auto",))
        assert names(schemas) == (["1", "9", "subject:s"], ()) and sorted(registry.asked[4:]) == ["9", "subject:s"]
        schemas.forget([OTHER])
        assert names(schemas) == ([], ()) and "4 schemas" not in repr(schemas)

    told(story)


@promise("T6")
def test_a_registry_that_does_not_answer() -> None:
    """It is asked again after some seconds, not by every caller."""

    async def story(registry: Answering, schemas: KnownSchemas) -> None:
        registry.away = True
        assert not await schemas.learn(ONE, ["1"]) and schemas.unreachable == "it is away" and schemas.resting
        assert not await schemas.learn(ONE, ["1"]) and len(registry.asked) == 1
        registry.away = False
        await asyncio.sleep(answers.RETRY_SECONDS)
        assert not schemas.resting and await schemas.learn(ONE, ["1"]) and not schemas.unreachable
        assert names(schemas) == (["1"], ())

    told(story)


@promise("T6")
def test_a_registry_that_takes_its_time() -> None:
    """Who waits does not wait for long. What was answered until then is known."""

    class Slow(Answering):
        async def schema(self, name: str) -> KnownSchema | None:
            await asyncio.sleep(3.0 if name == "2" else 0.1)
            return await super().schema(name)

    async def main() -> None:
        schemas = KnownSchemas(Slow("1", "2"), VirtualClock(), wait_seconds=1.0)
        assert not await schemas.learn(ONE, ["1", "2"])
        assert names(schemas) == (["1"], ()) and "longer than 1.0 s" in schemas.unreachable and schemas.resting

    run(main())


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were asked for longest ago are forgotten."""
    monkeypatch.setattr(known, "KEPT_PER_TOPIC", 3)
    monkeypatch.setattr(answers, "KEPT_CHARACTERS", 2 * len("text of 1"))

    async def story(registry: Answering, schemas: KnownSchemas) -> None:
        registry.names |= {"3", "4"}
        for name in ("1", "2", "3", "8", "9"):
            await schemas.learn(ONE, [name])
        assert names(schemas) == (["3"], ("8", "9"))
        assert await schemas.learn(OTHER, ["1"]) and names(schemas, OTHER) == (["1"], ()) and len(registry.asked) == 6
        monkeypatch.setattr(answers, "KEPT_ANSWERS", 1)
        await schemas.learn(ONE, ["4"])
        assert names(schemas) == (["4"], ())

    told(story)
