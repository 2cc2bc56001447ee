"""What `apply` makes of schemas: subjects, versions, ids, deletion, references, settings and modes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headwater.state.cluster import schemas
from headwater.state.cluster.schemas import NO_SETTINGS, Schemas, size_of
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import SetLevel
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.commands.schemas import (
    GLOBAL,
    DeleteSchemas,
    RegisterSchema,
    SchemaContent,
    SchemaMode,
    SchemaReference,
    SchemaSettings,
    Seen,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.machine import LEVELS, TYPED_LEVEL
from headwater.state.records import decode
from headwater.state.results import Done, Reason, Refused, Result
from headwater.types import Position
from tests.support.promise import promise
from tests.support.scribe import START_MS, Scribe

PROMISES = ("T6",)


def content(text: str, *references: SchemaReference) -> SchemaContent:
    return SchemaContent("AVRO", text, references, "")


class Story:
    """A cluster at the level of schemas."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.scribe = Scribe(self.state)
        self.scribe.do(0, TakeEpoch("1/a", 1, "z", (), TYPED_LEVEL, "b"))
        self.do(SetLevel(TYPED_LEVEL, LEVELS[TYPED_LEVEL]))

    @property
    def own(self) -> Schemas:
        return self.state.schemas

    def do(self, command: Any, clock_ms: int = START_MS) -> Result:
        return self.scribe.do(1, command, clock_ms)

    def register(
        self,
        subject: str,
        text: str,
        *references: SchemaReference,
        schema_id: int = 0,
        version: int = 0,
        seen: Seen | None = None,
    ) -> Result:
        said = content(text, *references)
        guid = uuid.uuid5(uuid.NAMESPACE_OID, repr(said))
        return self.do(RegisterSchema(subject, seen or self.own.seen(subject), said, guid, schema_id, version))

    def delete(self, subject: str, *versions: int, permanent: bool = False) -> Result:
        return self.do(DeleteSchemas(subject, self.own.seen(subject), versions, permanent))

    def versions(self, subject: str) -> dict[int, int]:
        """Ids of versions; negative for deleted ones."""
        found = self.own.subjects[subject].versions.values()
        return {v.version: -v.id if v.deleted else v.id for v in found}

    def check_restored(self) -> None:
        image = self.state.image()
        restored, again = ClusterState(), ClusterState()
        restored.restore(image)
        for position, record in enumerate(self.scribe.records, 1):
            again.apply(Position(position), decode(record))
        assert image == restored.image() == again.image()
        check_derived(restored.schemas)
        check_derived(self.own)


def check_derived(own: Schemas) -> None:
    """Every index agrees with the subjects and schemas."""
    uses: dict[int, set[tuple[str, int]]] = {}
    for subject in own.subjects.values():
        assert not subject.empty and list(subject.versions) == sorted(subject.versions)
        assert subject.revision <= own.last_revision
        for version in subject.versions.values():
            uses.setdefault(version.id, set()).add((subject.name, version.version))
    assert set(uses) == set(own.schemas)
    assert all(0 < found <= own.last_id for found in (*uses, *own.retired))
    assert not set(own.schemas) & set(own.retired)
    assert {i: {(s, v.version) for s, v in own.uses(i)} for i in own.schemas} == uses
    assert own.total_bytes == sum(size_of(schema.content) for schema in own.schemas.values())
    for schema in own.schemas.values():
        assert schema.id in own.ids_of(schema.guid, schema.content.kind)
        for reference in schema.content.references:
            target = own.subjects[reference.subject].versions[reference.version]
            assert target.id == reference.id, "a reference always leads to the schema that it led to"
            assert schema.id in own.referrers(reference.subject, reference.version, deleted=True)


def reason(result: Result) -> Reason:
    assert isinstance(result, Refused), result
    return result.reason


@promise("T6")
def test_the_same_schema_has_one_id() -> None:
    """Over all subjects; registering it again under its subject adds no version."""
    story = Story()
    assert story.register("a", "x") == Done(1)
    assert story.register("a", "y") == Done(2)
    assert story.register("b", "y") == Done(2)
    assert story.register("a", "x") == Done(1)
    assert (story.versions("a"), story.versions("b")) == ({1: 1, 2: 2}, {1: 2})
    assert [(s, v.version) for s, v in story.own.uses(2)] == [("a", 2), ("b", 1)]
    found = story.own.schemas[2]
    assert (found.content.text, found.created_ms, story.own.by_guid(found.guid)) == ("y", START_MS, found)
    assert story.own.by_guid(uuid.UUID(int=0)) is None
    story.check_restored()


@promise("T6")
def test_equal_texts_of_two_kinds_are_two_schemas() -> None:
    """Also if their GUIDs are equal, as those of Confluent's registry are."""
    story = Story()
    guid = uuid.UUID(int=5)
    for i, kind in enumerate(("AVRO", "JSON", "AVRO"), 1):
        said = SchemaContent(kind, "{}", (), "")
        subject = f"s{i}"
        assert story.do(RegisterSchema(subject, story.own.seen(subject), said, guid, 0, 0)) == Done((1, 2, 1)[i - 1])
    found = story.own.by_guid(guid)
    assert found is not None and found.id == 1
    story.check_restored()


@promise("T6")
def test_a_stale_look_is_refused() -> None:
    """If the subject or the global settings have changed since, and only then."""
    story = Story()
    none = story.own.seen("a")
    assert story.register("a", "x") == Done(1)
    assert reason(story.register("a", "y", seen=none)) is Reason.STALE
    seen = story.own.seen("a")
    assert story.register("b", "z") == Done(2)
    assert story.register("a", "y", seen=seen) == Done(3)
    seen = story.own.seen("a")
    story.do(SetSchemaSettings(GLOBAL, story.own.seen(GLOBAL), SchemaSettings("NONE", None)))
    for command in (
        DeleteSchemas("a", seen, (1,), False),
        SetSchemaMode("a", seen, SchemaMode.READONLY),
        SetSchemaSettings("a", seen, NO_SETTINGS),
    ):
        assert reason(story.do(command)) is Reason.STALE
    assert story.versions("a") == {1: 1, 2: 3}
    story.check_restored()


@promise("T6")
def test_a_subject_that_was_removed_has_new_revisions() -> None:
    """A look from before does not fit what was created since."""
    story = Story()
    story.register("a", "x")
    seen = story.own.seen("a")
    assert (story.delete("a", 1), story.delete("a", 1, permanent=True)) == (Done(1), Done(1))
    assert "a" not in story.own.subjects and not story.own.schemas
    assert story.register("a", "x") == Done(2), "no id is used twice"
    assert story.own.seen("a") != seen
    assert story.versions("a") == {1: 2}
    story.check_restored()


@promise("T6")
def test_deletion_has_two_steps() -> None:
    """A deleted version is there by its id; a permanent deletion removes it."""
    story = Story()
    for text in "xyz":
        story.register("a", text)
    assert reason(story.delete("a", 2, permanent=True)) is Reason.INVALID
    assert reason(story.delete("a", 2, 9)) is Reason.UNKNOWN
    assert story.versions("a") == {1: 1, 2: 2, 3: 3}, "all or none"
    assert story.delete("a", 2) == Done(1)
    assert reason(story.delete("a", 2)) is Reason.INVALID
    assert story.own.schemas[2].content.text == "y"
    assert story.delete("a", 1, 3) == Done(2)
    assert not story.own.subjects["a"].live
    assert story.delete("a", 2, permanent=True) == Done(1)
    assert (story.versions("a"), sorted(story.own.schemas)) == ({1: -1, 3: -3}, [1, 3])
    assert reason(story.delete("b", 1)) is Reason.UNKNOWN
    assert reason(story.delete("a")) is Reason.UNKNOWN
    story.check_restored()


@promise("T6")
def test_a_deleted_version_that_is_registered_again() -> None:
    """It gets a new number and its old id, and the deleted one goes away."""
    story = Story()
    story.register("a", "x")
    story.register("a", "y")
    story.delete("a", 2)
    assert story.register("a", "y") == Done(2)
    assert story.versions("a") == {1: 1, 3: 2}
    story.check_restored()


@promise("T6")
def test_references_keep_what_they_name() -> None:
    """A live schema keeps its references from deletion, a deleted one from permanent deletion."""
    story = Story()
    story.register("base", "x")
    to = SchemaReference("x.avsc", "base", 1, 1)
    assert story.register("a", "uses x", to) == Done(2)
    assert story.own.referrers("base", 1) == [2]
    assert reason(story.delete("base", 1)) is Reason.INVALID
    story.delete("a", 1)
    assert (story.own.referrers("base", 1), story.own.referrers("base", 1, deleted=True)) == ([], [2])
    assert story.delete("base", 1) == Done(1)
    assert reason(story.delete("base", 1, permanent=True)) is Reason.INVALID
    story.register("base", "x")
    assert story.versions("base") == {1: -1, 2: 1}, "what something refers to stays"
    story.delete("a", 1, permanent=True)
    assert story.delete("base", 1, permanent=True) == Done(1)
    assert story.versions("base") == {2: 1}
    story.check_restored()


@promise("T6")
def test_references_inside_a_subject() -> None:
    """They hold one version back, and not the whole subject."""
    story = Story()
    story.register("a", "x")
    story.register("a", "uses x", SchemaReference("x.avsc", "a", 1, 1))
    assert reason(story.delete("a", 1)) is Reason.INVALID
    assert story.delete("a", 1, 2) == Done(2)
    assert reason(story.delete("a", 1, permanent=True)) is Reason.INVALID
    assert story.delete("a", 1, 2, permanent=True) == Done(2)
    assert not story.own.subjects and not story.own.schemas
    story.check_restored()


@promise("T6")
@pytest.mark.parametrize(
    "reference",
    [
        SchemaReference("x", "base", 2, 1),
        SchemaReference("x", "none", 1, 1),
        SchemaReference("x", "base", 1, 7),
        SchemaReference("x", "gone", 1, 2),
    ],
    ids=repr,
)
def test_references_that_changed_meanwhile(reference: SchemaReference) -> None:
    """The caller looks again."""
    story = Story()
    story.register("base", "x")
    story.register("gone", "y")
    story.delete("gone", 1)
    assert reason(story.register("a", "z", reference)) is Reason.STALE
    assert "a" not in story.own.subjects and story.own.last_id == 2
    story.check_restored()


@promise("T6")
def test_imports_choose_ids_and_versions() -> None:
    """An id never stands for two schemas; a schema may have several ids."""
    story = Story()
    assert story.register("a", "x", schema_id=100, version=5) == Done(100)
    assert story.register("a", "w", schema_id=90, version=2) == Done(90)
    assert story.versions("a") == {2: 90, 5: 100}
    assert reason(story.register("a", "y", schema_id=100, version=6)) is Reason.EXISTS
    assert reason(story.register("a", "y", schema_id=101, version=5)) is Reason.EXISTS
    assert story.register("a", "x", schema_id=100, version=5) == Done(100)
    assert story.register("b", "x", schema_id=70, version=1) == Done(70)
    found = story.own.by_guid(story.own.schemas[100].guid)
    assert found is not None and (found.id, story.own.ids_of(found.guid, "AVRO")) == (70, (70, 100))
    assert story.register("c", "x") == Done(70)
    assert story.register("c", "y") == Done(101)
    story.delete("b", 1)
    story.delete("c", 1)
    story.delete("b", 1, permanent=True)
    story.delete("c", 1, permanent=True)
    assert reason(story.register("b", "z", schema_id=70, version=1)) is Reason.EXISTS
    story.check_restored()
    assert story.register("b", "x", schema_id=70, version=1) == Done(70)
    story.check_restored()


@promise("T6")
def test_settings_and_modes() -> None:
    """Of a subject and global. They are there without versions, and go with the last one."""
    story = Story()
    full, import_ = SchemaSettings("FULL", True), SchemaMode.IMPORT

    def put(subject: str) -> None:
        assert isinstance(story.do(SetSchemaSettings(subject, story.own.seen(subject), full)), Done)
        assert isinstance(story.do(SetSchemaMode(subject, story.own.seen(subject), import_)), Done)

    put(GLOBAL)
    put("a")
    assert (story.own.settings, story.own.mode) == (full, import_)
    assert (story.own.subjects["a"].settings, story.own.subjects["a"].mode) == (full, import_)
    story.check_restored()
    story.do(SetSchemaSettings("a", story.own.seen("a"), NO_SETTINGS))
    assert story.own.subjects["a"].mode is import_
    story.do(SetSchemaMode("a", story.own.seen("a"), None))
    assert not story.own.subjects
    story.register("b", "x")
    put("b")
    story.delete("b", 1)
    assert (story.own.subjects["b"].settings, story.own.subjects["b"].mode) == (full, import_)
    story.delete("b", 1, permanent=True)
    assert not story.own.subjects
    story.do(SetSchemaMode(GLOBAL, story.own.seen(GLOBAL), None))
    story.do(SetSchemaSettings(GLOBAL, story.own.seen(GLOBAL), NO_SETTINGS))
    assert (story.own.settings, story.own.mode) == (NO_SETTINGS, None)
    story.check_restored()


@promise("T6")
def test_what_is_not_valid_changes_nothing() -> None:
    """Names, sizes and numbers have limits."""
    story = Story()
    before = story.own.last_revision
    long = "n" * (schemas.MAX_NAME + 1)
    many = tuple(SchemaReference(str(i), "a", 1, 1) for i in range(schemas.MAX_REFERENCES + 1))
    assert reason(story.register("", "x")) is Reason.INVALID
    assert reason(story.register(long, "x")) is Reason.INVALID
    assert reason(story.register("a", "x" * schemas.MAX_CONTENT_BYTES)) is Reason.INVALID
    assert reason(story.register("a", "x", *many)) is Reason.INVALID
    assert reason(story.register("a", "x", SchemaReference(long, "a", 1, 1))) is Reason.INVALID
    assert reason(story.register("a", "x", schema_id=schemas.MAX_ID + 1)) is Reason.INVALID
    assert reason(story.register("a", "x", version=-1)) is Reason.INVALID
    assert reason(story.do(SetSchemaMode(long, Seen(0, 0), None))) is Reason.INVALID
    assert story.own.last_revision == before and not story.own.subjects
    story.check_restored()


@promise("T6")
def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On subjects, versions, schemas, bytes and ids."""
    story = Story()
    story.register("a", "x")
    story.register("b", "x")
    for name, value, subject in (
        ("MAX_SUBJECTS", 2, "c"),
        ("MAX_VERSIONS", 1, "a"),
        ("MAX_SCHEMAS", 1, "a"),
        ("MAX_TOTAL_BYTES", 9, "a"),
        ("MAX_ID", 1, "a"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(schemas, name, value)
            assert reason(story.register(subject, "y")) is Reason.FULL
            assert story.register("a", "x") == Done(1), "what is there stays there"
    monkeypatch.setattr(schemas, "MAX_SUBJECTS", 2)
    assert reason(story.do(SetSchemaMode("c", story.own.seen("c"), SchemaMode.IMPORT))) is Reason.FULL
    assert (sorted(story.own.subjects), story.own.last_id) == (["a", "b"], 1)
