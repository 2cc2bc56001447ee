"""Subjects, their versions, and schemas by id. They are state of domain 0."""

from __future__ import annotations

import uuid
from bisect import insort
from collections.abc import Container, Iterable, Iterator

import msgspec

from headwater.state.commands.schemas import (
    GLOBAL,
    DeleteSchemas,
    RegisterSchema,
    SchemaContent,
    SchemaMode,
    SchemaSettings,
    Seen,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.results import Done, Reason, Refused, Result

MAX_SUBJECTS = 100_000
MAX_VERSIONS = 10_000
"""The limit of versions of a subject, deleted ones included."""
MAX_SCHEMAS = 500_000
"""The limit of schemas, permanently deleted ones included: their ids are remembered."""
MAX_REFERENCES = 100
MAX_NAME = 1_024
"""The limit of characters of the name of a subject or of a reference."""
MAX_CONTENT_BYTES = 640 * 1024
"""The limit of one schema: its text, its references and its metadata. A record of the ledger must hold it."""
MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""The limit of all schemas together. Every process has them in memory."""
MAX_ID = 2**31 - 1
NO_SETTINGS = SchemaSettings(None, None)


class Schema(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A schema by its id."""

    id: int
    guid: uuid.UUID
    content: SchemaContent
    created_ms: int


class Version(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A version of a subject."""

    version: int
    id: int
    deleted: bool
    changed_ms: int
    """When it was registered, or deleted."""


class Subject(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A subject. It exists for clients if it has a version; settings may be there before."""

    name: str
    revision: int
    """Changes with every change of the subject. No revision is used twice."""
    versions: dict[int, Version]
    """By number, in ascending order."""
    settings: SchemaSettings
    mode: SchemaMode | None

    @property
    def live(self) -> list[Version]:
        """The versions that are not deleted."""
        return [version for version in self.versions.values() if not version.deleted]

    @property
    def empty(self) -> bool:
        """Whether nothing is known of the subject."""
        return not self.versions and self.mode is None and self.settings == NO_SETTINGS


class Schemas:
    """The schema registry."""

    def __init__(self) -> None:
        self.subjects: dict[str, Subject] = {}
        self.schemas: dict[int, Schema] = {}
        """By id. Each is a version of some subject, deleted or not."""
        self.retired: dict[int, uuid.UUID] = {}
        """The GUIDs of schemas that were deleted permanently, by id. No other schema ever gets such an id."""
        self.settings = NO_SETTINGS
        """The global settings."""
        self.mode: SchemaMode | None = None
        """The global mode."""
        self.revision = 0
        """Changes with every change of the global settings and mode."""
        self.last_revision = 0
        self.last_id = 0
        """The greatest id that was ever used."""
        self.total_bytes = 0
        """Of all contents. Derived."""
        self._ids: dict[uuid.UUID, list[int]] = {}
        """Ids by GUID, in ascending order. Derived."""
        self._uses: dict[int, dict[tuple[str, int], None]] = {}
        """By id, the versions that have it. Derived."""
        self._referrers: dict[tuple[str, int], dict[int, None]] = {}
        """By version of a subject, the ids of schemas that refer to it. Derived."""

    def __repr__(self) -> str:
        return f"<Schemas: {len(self.schemas)} in {len(self.subjects)} subjects>"

    # --- looks -------------------------------------------------------------------------------------

    def seen(self, subject: str) -> Seen:
        """What a command about a subject names."""
        found = self.subjects.get(subject)
        return Seen(found.revision if found is not None else 0, self.revision)

    def by_guid(self, guid: uuid.UUID) -> Schema | None:
        """The schema with a GUID. If it was imported under several ids, the one with the least id."""
        ids = self._ids.get(guid)
        return self.schemas[ids[0]] if ids else None

    def ids_of(self, guid: uuid.UUID, kind: str) -> tuple[int, ...]:
        """All ids under which a schema is known. Texts of two kinds may have the same GUID, as in other registries."""
        return tuple(i for i in self._ids.get(guid, ()) if self.schemas[i].content.kind == kind)

    def uses(self, schema: int) -> Iterator[tuple[str, Version]]:
        """The subjects and versions that have a schema, deleted ones included."""
        for subject, version in self._uses.get(schema, ()):
            yield subject, self.subjects[subject].versions[version]

    def referrers(self, subject: str, version: int, deleted: bool = False) -> list[int]:
        """The ids of schemas that refer to a version; with `deleted`, also those that are only in deleted versions."""
        found = self._referrers.get((subject, version), ())
        return sorted(i for i in found if deleted or any(not use.deleted for _, use in self.uses(i)))

    def is_needed(self, subject: str, version: int, going: Container[int], *, permanent: bool) -> bool:
        """Whether a schema refers to a version, other than from versions that are deleted with it."""
        return any(
            (permanent or not use.deleted) and not (name == subject and use.version in going)
            for schema in self._referrers.get((subject, version), ())
            for name, use in self.uses(schema)
        )

    # --- changes -----------------------------------------------------------------------------------

    def register(self, command: RegisterSchema, now_ms: int) -> Result:
        """See `RegisterSchema`."""
        flaw = _flaw_of(command) or self._stale(command.subject, command.seen)
        if flaw is not None:
            return flaw
        subject = self.subjects.get(command.subject)
        versions = subject.versions if subject is not None else {}
        known = self.ids_of(command.guid, command.content.kind)
        if command.id in self.schemas and command.id not in known:
            return Refused(Reason.EXISTS, f"id {command.id} is taken by another schema")
        if self.retired.get(command.id, command.guid) != command.guid:
            return Refused(Reason.EXISTS, f"id {command.id} was used for another schema, which is deleted")
        ids = (command.id,) if command.id else known
        for version in versions.values():
            if version.id in ids and not version.deleted and command.version in (0, version.version):
                return Done(version.id)
        number = command.version or max(versions, default=0) + 1
        if number in versions:
            return Refused(Reason.EXISTS, f"version {number} of {command.subject!r} exists already")
        full = self._full(command, subject, new=not known)
        if full:
            return Refused(Reason.FULL, full)
        for reference in command.content.references:
            found = self.subjects.get(reference.subject)
            target = found.versions.get(reference.version) if found is not None else None
            if target is None or target.deleted or target.id != reference.id:
                return Refused(Reason.STALE, f"version {reference.version} of {reference.subject!r} was deleted")
        chosen = command.id or (known[0] if known else self.last_id + 1)
        if chosen not in self.schemas:
            self._keep(Schema(chosen, command.guid, command.content, now_ms))
        self.last_id = max(self.last_id, chosen)
        subject = self._subject(command.subject)
        former = [
            old.version
            for old in subject.versions.values()
            if old.deleted and old.id == chosen and (subject.name, old.version) not in self._referrers
        ]
        self._add(subject, Version(number, chosen, False, now_ms))
        self._remove(subject, former)
        return Done(chosen)

    def delete(self, command: DeleteSchemas, now_ms: int) -> Result:
        """See `DeleteSchemas`."""
        stale = self._stale(command.subject, command.seen)
        if stale is not None:
            return stale
        subject = self.subjects.get(command.subject)
        versions = dict.fromkeys(command.versions)
        for number in versions:
            version = subject.versions.get(number) if subject is not None else None
            if version is None:
                return Refused(Reason.UNKNOWN, f"there is no version {number} of {command.subject!r}")
            if version.deleted is not command.permanent:
                detail = "is deleted already" if version.deleted else "is not deleted yet"
                return Refused(Reason.INVALID, f"version {number} of {command.subject!r} {detail}")
            if self.is_needed(command.subject, number, versions, permanent=command.permanent):
                return Refused(Reason.INVALID, f"schemas refer to version {number} of {command.subject!r}")
        if subject is None or not versions:
            return Refused(Reason.UNKNOWN, f"there is no subject {command.subject!r}")
        subject.revision = self._next_revision()
        if command.permanent:
            self._remove(subject, versions)
        else:
            for number in versions:
                old = subject.versions[number]
                subject.versions[number] = Version(number, old.id, True, now_ms)
        if not subject.versions:
            del self.subjects[subject.name]
        return Done(len(versions))

    def set_settings(self, command: SetSchemaSettings) -> Result:
        """See `SetSchemaSettings`."""
        return self._set(command.subject, command.seen, settings=command.settings)

    def set_mode(self, command: SetSchemaMode) -> Result:
        """See `SetSchemaMode`."""
        return self._set(command.subject, command.seen, mode=(command.mode,))

    def _set(
        self,
        name: str,
        seen: Seen,
        settings: SchemaSettings | None = None,
        mode: tuple[SchemaMode | None] | None = None,
    ) -> Result:
        refused = self._stale(name, seen)
        if refused is not None:
            return refused
        if len(name) > MAX_NAME or (settings is not None and len(settings.compatibility or "") > MAX_NAME):
            return Refused(Reason.INVALID, f"the name of a subject has {MAX_NAME} characters at most")
        if name == GLOBAL:
            self.settings = settings if settings is not None else self.settings
            self.mode = mode[0] if mode is not None else self.mode
            self.revision = self._next_revision()
            return Done(self.revision)
        if name not in self.subjects and len(self.subjects) >= MAX_SUBJECTS:
            return Refused(Reason.FULL, f"there are {MAX_SUBJECTS} subjects already")
        subject = self._subject(name)
        subject.settings = settings if settings is not None else subject.settings
        subject.mode = mode[0] if mode is not None else subject.mode
        if subject.empty:
            del self.subjects[name]
        return Done(self.last_revision)

    # --- pieces ------------------------------------------------------------------------------------

    def _stale(self, subject: str, seen: Seen) -> Refused | None:
        if self.seen(subject) == seen:
            return None
        return Refused(Reason.STALE, f"subject {subject!r} or the global settings were changed meanwhile")

    def _full(self, command: RegisterSchema, subject: Subject | None, new: bool) -> str:
        if subject is None and len(self.subjects) >= MAX_SUBJECTS:
            return f"there are {MAX_SUBJECTS} subjects already"
        if subject is not None and len(subject.versions) >= MAX_VERSIONS:
            return f"subject {subject.name!r} has {MAX_VERSIONS} versions already"
        if (new or command.id) and len(self.schemas) + len(self.retired) >= MAX_SCHEMAS:
            return f"there are {MAX_SCHEMAS} schemas already"
        if (new or command.id) and self.total_bytes + size_of(command.content) > MAX_TOTAL_BYTES:
            return f"all schemas together have {MAX_TOTAL_BYTES} bytes at most"
        if not command.id and new and self.last_id >= MAX_ID:
            return "there is no free id"
        return ""

    def _subject(self, name: str) -> Subject:
        """A subject that is about to be changed. It is created if need be, and gets a new revision."""
        found = self.subjects.get(name)
        if found is None:
            found = self.subjects[name] = Subject(name, 0, {}, NO_SETTINGS, None)
        found.revision = self._next_revision()
        return found

    def _add(self, subject: Subject, version: Version) -> None:
        last = next(reversed(subject.versions), 0)
        subject.versions[version.version] = version
        if version.version < last:  # imported
            subject.versions = dict(sorted(subject.versions.items()))
        self._uses.setdefault(version.id, {})[subject.name, version.version] = None

    def _remove(self, subject: Subject, numbers: Iterable[int]) -> None:
        """Remove versions, and schemas that no version has any more."""
        for number in numbers:
            version = subject.versions.pop(number)
            uses = self._uses[version.id]
            del uses[subject.name, number]
            if not uses:
                self._forget(version.id)

    def _keep(self, schema: Schema) -> None:
        self.schemas[schema.id] = schema
        self.retired.pop(schema.id, None)
        self.total_bytes += size_of(schema.content)
        insort(self._ids.setdefault(schema.guid, []), schema.id)
        for reference in schema.content.references:
            self._referrers.setdefault((reference.subject, reference.version), {})[schema.id] = None

    def _forget(self, schema_id: int) -> None:
        schema = self.schemas.pop(schema_id)
        self.retired[schema_id] = schema.guid
        self.total_bytes -= size_of(schema.content)
        del self._uses[schema_id]
        ids = self._ids[schema.guid]
        ids.remove(schema_id)
        if not ids:
            del self._ids[schema.guid]
        for target in {(reference.subject, reference.version) for reference in schema.content.references}:
            referrers = self._referrers[target]
            del referrers[schema_id]
            if not referrers:
                del self._referrers[target]

    def _next_revision(self) -> int:
        self.last_revision += 1
        return self.last_revision

    def restore(
        self, subjects: Iterable[Subject], schemas: Iterable[Schema], retired: Iterable[tuple[int, uuid.UUID]]
    ) -> None:
        """Take over subjects and schemas of a checkpoint, and derive the rest."""
        for kept in (self.subjects, self.schemas, self._ids, self._uses, self._referrers):
            kept.clear()
        self.total_bytes = 0
        self.retired = dict(retired)
        for schema in schemas:
            self._keep(schema)
        for subject in subjects:
            self.subjects[subject.name] = subject
            for version in subject.versions.values():
                self._uses.setdefault(version.id, {})[subject.name, version.version] = None


def size_of(content: SchemaContent) -> int:
    """The bytes of a schema that count against the limits."""
    texts = [content.kind, content.text, content.extra]
    texts.extend(text for reference in content.references for text in (reference.name, reference.subject))
    return sum(len(text.encode()) for text in texts)


def _flaw_of(command: RegisterSchema) -> Refused | None:
    """Why a command is invalid; None if it is valid."""
    content = command.content
    flaw = ""
    if not 0 < len(command.subject) <= MAX_NAME:
        flaw = f"the name of a subject has 1 to {MAX_NAME} characters"
    elif len(content.references) > MAX_REFERENCES:
        flaw = f"a schema has {MAX_REFERENCES} references at most"
    elif any(not 0 < len(reference.name) <= MAX_NAME for reference in content.references):
        flaw = f"the name of a reference has 1 to {MAX_NAME} characters"
    elif not content.kind or size_of(content) > MAX_CONTENT_BYTES:
        flaw = f"a schema has {MAX_CONTENT_BYTES} bytes at most, with its references and its metadata"
    elif not 0 <= command.id <= MAX_ID or not 0 <= command.version <= MAX_ID:
        flaw = "an id and a version are positive numbers of 31 bits"
    return Refused(Reason.INVALID, flaw) if flaw else None
