"""Finds schemas by the names that records, topics and callers have for them, parsed and kept for a while.

All that read or write single records by a schema find it here: the gateway, `headwater produce` and `consume`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from headwater.clock import Clock
from headwater.errors import BadSchema
from headwater.lake.answers import Answers
from headwater.lake.registries import Registered, Subjects
from headwater.replica.schema_sources import LATEST, parse_stored
from headwater.schemas.parsing import Parsed, SchemaKind, Source
from headwater.schemas.payloads import Usable, Writing
from headwater.schemas.typing import SUBJECT, KnownSchema
from headwater.threads import Offload, inline

KEPT_SCHEMAS = 1_000
KEPT_CHARACTERS = 8_000_000
"""Parsed schemas that are kept, and the length of their texts."""
BELIEVED_SECONDS = 5.0
"""How long answers of another registry count that may change: the newest version, and that there is none."""

T = TypeVar("T")


class SchemaFinder:
    """Schemas of a registry, parsed."""

    def __init__(self, registry: Subjects, clock: Clock, offload: Offload = inline, *, near: bool) -> None:
        """`near`: the registry is in the memory of this process, so its answers are not kept. `offload` parses."""
        self._registry = registry
        self._offload = offload
        self._near = near
        self._answers = Answers(clock)
        self._parsed: OrderedDict[tuple[str, str, tuple[tuple[str, str], ...]], Parsed] = OrderedDict()
        self._characters = 0
        self._writings: OrderedDict[tuple[int, str, str], Writing] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SchemaFinder in {self._registry!r}, {len(self._parsed)} parsed>"

    async def find(self, name: str) -> Usable | None:
        """The schema with an id, with a GUID, or the newest one of `subject:NAME`. None if there is none.

        Raises `RegistryUnavailable`, or `BadSchema` if it cannot be used.
        """

        async def ask() -> KnownSchema | None:
            return await self._registry.schema(name)

        found = await self._asked(("schema", name), ask, fixed=not name.startswith(SUBJECT))
        if found is None:
            return None
        own = next((int(one) for one in (name, *found.names) if one.isdecimal()), None)
        return Usable(await self.parsed(found), own)

    async def version(self, subject: str, number: int = LATEST) -> tuple[Registered, Usable] | None:
        """A version of a subject, or its newest one. None if there is none. Raises as `find` does."""

        async def ask() -> Registered | None:
            return await self._registry.version(subject, number)

        found = await self._asked(("version", subject, number), ask, fixed=False)
        return (found, Usable(await self.parsed(found.schema), found.id)) if found is not None else None

    async def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema. Raises `RegistryUnavailable`."""

        async def ask() -> list[tuple[str, int]]:
            return await self._registry.uses(schema_id)

        return await self._asked(("uses", schema_id), ask, fixed=False)

    async def parsed(self, schema: KnownSchema) -> Parsed:
        """A schema, parsed. Raises `BadSchema`."""
        key = (schema.kind, schema.text, schema.references)
        found = self._parsed.get(key)
        if found is not None:
            self._parsed.move_to_end(key)
            return found
        if schema.kind not in SchemaKind.__members__:
            raise BadSchema(f"there are no schemas of kind {schema.kind[:100]!r}")
        found = await self._offload(parse_stored, Source(SchemaKind(schema.kind), schema.text, schema.references))
        if key not in self._parsed and _length(key) <= KEPT_CHARACTERS:
            self._parsed[key] = found
            self._characters += _length(key)
            while len(self._parsed) > KEPT_SCHEMAS or self._characters > KEPT_CHARACTERS:
                gone, _ = self._parsed.popitem(last=False)
                self._characters -= _length(gone)
        return found

    async def writing(self, schema: Usable, message: str = "") -> Writing:
        """What encodes by a schema. Raises `BadValue` if the schema has no such message, or no id."""
        key = (schema.id or 0, schema.parsed.canonical, message)
        found = self._writings.get(key)
        if found is None:
            found = await self._offload(Writing, schema, message)
            self._writings[key] = found
        self._writings.move_to_end(key)
        while len(self._writings) > KEPT_SCHEMAS:
            self._writings.popitem(last=False)
        return found

    async def _asked(self, question: Hashable, ask: Callable[[], Awaitable[T]], *, fixed: bool) -> T:
        """The answer to a question. `fixed`: a schema that was found is the same for ever."""
        found = self._answers.fresh(question)
        if found is not None:
            return found.answer  # type: ignore[return-value]  # it is the answer to the same question
        with self._answers.asking():
            answer = await ask()
        if not self._near:
            self._answers.keep(question, answer, float("inf") if fixed and answer is not None else BELIEVED_SECONDS)
        return answer


def _length(key: tuple[str, str, tuple[tuple[str, str], ...]]) -> int:
    return len(key[1]) + sum(len(text) for _, text in key[2])
