"""Whatever is registered, deleted and imported, ids keep their meaning and references lead somewhere."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.state.commands.schemas import (
    GLOBAL,
    SchemaContent,
    SchemaMode,
    SchemaReference,
    SchemaSettings,
    Seen,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.results import Done
from tests.unit.state.cluster.test_schemas import Story, check_derived

PROMISES = ("T6",)

subjects = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["w", "x", "y"])
numbers = st.integers(0, 5)


class Registry(RuleBasedStateMachine):
    """Commands of several callers, some of them stale, against what every caller may rely on."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.meanings: dict[int, SchemaContent] = {}
        """What each id has ever stood for."""
        self.stale = Seen(0, 0)

    @rule(subject=subjects, text=texts, refers=st.none() | st.tuples(subjects, numbers))
    def register(self, subject: str, text: str, refers: tuple[str, int] | None) -> None:
        references = []
        if refers is not None:
            found = self.story.own.subjects.get(refers[0])
            version = found.versions.get(refers[1]) if found is not None else None
            references.append(SchemaReference("r", *refers, version.id if version is not None else 1))
        before = self.story.own.last_id
        result = self.story.register(subject, text, *references)
        if isinstance(result, Done):
            assert result.value <= before + 1
            live = [v.id for v in self.story.own.subjects[subject].live]
            assert result.value in live

    @rule(subject=subjects, text=texts, schema=st.integers(1, 9), version=st.integers(1, 5))
    def bring_in(self, subject: str, text: str, schema: int, version: int) -> None:
        result = self.story.register(subject, text, schema_id=schema, version=version)
        if isinstance(result, Done):
            assert self.story.versions(subject)[version] == schema

    @rule(subject=subjects, versions=st.lists(numbers, min_size=1, max_size=3), permanent=st.booleans())
    def delete(self, subject: str, versions: list[int], permanent: bool) -> None:
        self.story.delete(subject, *versions, permanent=permanent)

    @rule(subject=subjects)
    def delete_all(self, subject: str) -> None:
        found = self.story.own.subjects.get(subject)
        live = [v.version for v in found.live] if found is not None else []
        if live:
            self.story.delete(subject, *live)
            self.story.delete(subject, *live, permanent=True)

    @rule(subject=subjects | st.just(GLOBAL), mode=st.none() | st.sampled_from(SchemaMode))
    def set_mode(self, subject: str, mode: SchemaMode | None) -> None:
        self.story.do(SetSchemaMode(subject, self.story.own.seen(subject), mode))

    @rule(subject=subjects | st.just(GLOBAL), normalize=st.none() | st.booleans())
    def set_settings(self, subject: str, normalize: bool | None) -> None:
        self.story.do(SetSchemaSettings(subject, self.story.own.seen(subject), SchemaSettings(None, normalize)))

    @rule(subject=subjects, text=texts)
    def late(self, subject: str, text: str) -> None:
        """A look that may be old: nothing happens unless it is still true."""
        image = self.story.own.seen(subject)
        result = self.story.register(subject, text, seen=self.stale)
        assert not isinstance(result, Done) or image == self.stale
        self.stale = self.story.own.seen(subject)

    @invariant()
    def holds(self) -> None:
        own = self.story.own
        check_derived(own)
        for schema in own.schemas.values():
            assert self.meanings.setdefault(schema.id, schema.content) == schema.content

    def teardown(self) -> None:
        self.story.check_restored()


TestRegistry = Registry.TestCase
TestRegistry.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
