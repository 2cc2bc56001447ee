"""Schemas are found and kept: by id for ever, by subject for a while; a registry that is away is left alone."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import BadSchema, RegistryUnavailable
from headwater.lake import finding
from headwater.lake.answers import RETRY_SECONDS
from headwater.lake.finding import BELIEVED_SECONDS, SchemaFinder
from headwater.lake.registries import Registered
from headwater.schemas.typing import KnownSchema
from tests.support.hands import Hands

PROMISES = ("T7",)

LONG = KnownSchema(("subject:s", "5"), "AVRO", '"long"', ())


class Fake:
    """A registry with one schema that counts questions."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.away = False
        self.found: KnownSchema | None = LONG

    def _answer(self, question: object) -> None:
        self.asked.append(question)
        if self.away:
            raise RegistryUnavailable("it is away")

    async def schema(self, name: str) -> KnownSchema | None:
        self._answer(name)
        return self.found

    async def version(self, subject: str, number: int = -1) -> Registered | None:
        self._answer((subject, number))
        return Registered(subject, 3, 5, self.found) if self.found is not None else None

    async def uses(self, schema_id: int) -> list[tuple[str, int]]:
        self._answer(schema_id)
        return [("s", 3)]


def test_what_is_kept() -> None:
    async def story() -> None:
        fake, clock = Fake(), Hands()
        finder = SchemaFinder(fake, clock, near=False)
        first = await finder.find("5")
        assert first is not None and first.id == 5
        by_subject = await finder.find("subject:s")
        assert by_subject is not None and by_subject.id == 5 and by_subject.parsed is first.parsed
        assert (await finder.version("s"))[0].version == 3  # type: ignore[index]
        assert await finder.uses(5) == [("s", 3)]
        assert await finder.writing(first) is await finder.writing(by_subject)
        asked = list(fake.asked)
        for _ in range(2):
            await finder.find("5"), await finder.find("subject:s"), await finder.version("s"), await finder.uses(5)
        assert fake.asked == asked
        clock.now += BELIEVED_SECONDS
        fake.found = None
        assert await finder.find("5") is not None and await finder.find("subject:s") is None
        assert await finder.find("subject:s") is None and await finder.find("6") is None
        assert fake.asked == [*asked, "subject:s", "6"]

    asyncio.run(story())


def test_a_near_registry_is_always_asked() -> None:
    async def story() -> None:
        fake = Fake()
        finder = SchemaFinder(fake, Hands(), near=True)
        for _ in range(3):
            assert await finder.find("5") is not None
        assert len(fake.asked) == 3

    asyncio.run(story())


def test_a_registry_that_is_away_and_schemas_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        fake, clock = Fake(), Hands()
        finder = SchemaFinder(fake, clock, near=False)
        fake.away = True
        for name in ("5", "6"):
            with pytest.raises(RegistryUnavailable, match="it is away"):
                await finder.find(name)
        assert fake.asked == ["5"]
        fake.away = False
        clock.now += RETRY_SECONDS
        assert await finder.find("5") is not None
        for flawed in (KnownSchema(("7",), "AVRO", "{", ()), KnownSchema(("7",), "XML", "", ())):
            fake.found = flawed
            with pytest.raises(BadSchema):
                await SchemaFinder(fake, clock, near=True).find("7")
        monkeypatch.setattr(finding, "KEPT_SCHEMAS", 1)
        for text in ('"int"', '"string"'):
            fake.found = KnownSchema((), "AVRO", text, ())
            found = await finder.find(text)
            assert found is not None and found.id is None
        assert "1 parsed" in repr(finder)

    asyncio.run(story())
