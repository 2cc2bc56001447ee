"""Changes of the schema registry: a look, a decision, and a command that names what was seen.

If something was changed between the look and the command, `apply` refuses the command, and all is done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headwater.errors import Conflict, NotReady, SchemaReason, SchemaRefused
from headwater.replica.patience import catch_up
from headwater.replica.replica import Replica
from headwater.replica.schema_errors import bad_schema, no_subject, no_version, not_permitted, still_referenced
from headwater.replica.schema_sources import LATEST, Draft, Ready, Sources, formatted, parse_stored, ready_of
from headwater.schemas.compatibility import Former, Level, explained
from headwater.schemas.parsing import Parsed
from headwater.state.cluster.schemas import MAX_NAME, NO_SETTINGS, Schema, Schemas, Subject, Version
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.schemas import (
    GLOBAL,
    DeleteSchemas,
    RegisterSchema,
    SchemaMode,
    SchemasCommand,
    SchemaSettings,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.results import Done, Reason, Refused, Result
from headwater.threads import Offload, inline

T = TypeVar("T")
TRIES = 20
"""How often a change is tried that others overtake."""
CATCH_UP_SECONDS = 2.0
DEFAULT_COMPATIBILITY = Level.BACKWARD
READ_ONLY = (SchemaMode.READONLY, SchemaMode.READONLY_OVERRIDE)
ID_STEP = 1_000_000
"""How far above the largest id another one may be chosen. What is between them is lost."""
FORMS = ("serialized", "resolved")
RESERVED = ("__GLOBAL", "__EMPTY")
"""Names that no subject has, because clients use them for other things."""


class Registry:
    """The schema registry, as one process reads and changes it."""

    def __init__(self, cluster: Replica[ClusterState], offload: Offload = inline) -> None:
        """`offload` runs what takes long: parsing and comparing schemas."""
        self._cluster = cluster
        self._offload = offload
        self._sources = Sources(cluster.state.schemas)

    def __repr__(self) -> str:
        return f"<Registry: {self.schemas!r}>"

    @property
    def schemas(self) -> Schemas:
        """All subjects and schemas, as far as this process has read the ledger."""
        return self._cluster.state.schemas

    # --- looks -------------------------------------------------------------------------------------

    def mode(self, subject: str) -> SchemaMode:
        """The mode that applies to a subject."""
        own, general = self.schemas.subjects.get(subject), self.schemas.mode or SchemaMode.READWRITE
        if general is SchemaMode.READONLY_OVERRIDE or own is None or own.mode is None:
            return general
        return own.mode

    def settings(self, subject: str) -> SchemaSettings:
        """The settings that apply to a subject."""
        own, general = self.schemas.subjects.get(subject), self.schemas.settings
        mine = own.settings if own is not None else NO_SETTINGS
        return SchemaSettings(
            mine.compatibility or general.compatibility or DEFAULT_COMPATIBILITY,
            mine.normalize if mine.normalize is not None else general.normalize,
        )

    def subject(self, name: str, deleted: bool = False) -> Subject:
        """A subject with at least one version; with `deleted`, deleted versions count. Raises if there is none."""
        found = self.schemas.subjects.get(name)
        if found is None or not (found.versions if deleted else found.live):
            raise no_subject(name)
        return found

    def version(self, name: str, number: int, deleted: bool = False) -> tuple[Version, Schema]:
        """A version of a subject, or its newest one. Raises if there is none."""
        versions = self.subject(name, deleted).versions.values()
        found = [v for v in versions if (deleted or not v.deleted) and number in (LATEST, v.version)]
        if not found:
            raise no_version(number)
        return found[-1], self.schemas.schemas[found[-1].id]

    async def find(self, name: str, draft: Draft, normalize: bool = False, deleted: bool = False) -> Version | None:
        """The version of a subject that has a schema; None if there is none."""
        subject = self.subject(name, deleted)
        ready = await self._ready(name, draft, normalize)
        ids = self.schemas.ids_of(ready.guid, ready.content.kind)
        found = [v for v in subject.versions.values() if v.id in ids and (deleted or not v.deleted)]
        return found[-1] if found else None

    async def check(self, name: str, draft: Draft, versions: Sequence[Version], normalize: bool = False) -> list[str]:
        """Why a schema is not compatible with some versions of a subject, by the level of the subject."""
        ready = await self._ready(name, draft, normalize)
        return await self._violations(name, ready, versions)

    async def formatted(self, schema: Schema, form: str) -> str:
        """The text of a schema in the form that a client asks for."""
        if form not in FORMS:
            return schema.content.text
        return await self._offload(formatted, await self.parsed(schema), schema.content.text, form)

    # --- changes -----------------------------------------------------------------------------------

    async def register(self, name: str, draft: Draft, normalize: bool = False) -> tuple[Version, Schema]:
        """Register a schema under a subject. A schema that the subject has already keeps its version."""
        check_subject(name)

        async def attempt() -> tuple[RegisterSchema, Callable[[Done], tuple[Version, Schema]]]:
            mode = self.mode(name)
            self._check_writable(name)
            if draft.id and mode is not SchemaMode.IMPORT:
                raise not_permitted(f"Subject {name} is not in import mode")
            if not draft.id and mode is not SchemaMode.READWRITE:
                raise not_permitted(f"Subject {name} is not in read-write mode")
            seen = self.schemas.seen(name)
            ready = await self._ready(name, draft, normalize)
            if draft.id > self.schemas.last_id + ID_STEP:
                raise not_permitted(
                    f"Id {draft.id} is more than {ID_STEP} above {self.schemas.last_id}, the largest one: the ids "
                    "between them would be lost"
                )
            known = self._known(name, ready, draft)
            if known is None and mode is not SchemaMode.IMPORT:
                await self._check_new(name, ready, draft)
            command = RegisterSchema(name, seen, ready.content, ready.guid, draft.id, draft.version)
            return command, lambda done: self._registered(name, done.value, draft.version)

        return await self._change(attempt)

    async def delete_subject(self, name: str, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject; they can still be read by their ids. Then, permanently, remove them."""

        async def attempt() -> tuple[DeleteSchemas, Callable[[Done], list[int]]]:
            self._check_writable(name)
            subject = self.subject(name, deleted=True)
            numbers = [v.version for v in (subject.versions.values() if permanent else subject.live)]
            self._check_needed(name, numbers, permanent)
            if permanent and subject.live:
                raise SchemaRefused(
                    SchemaReason.SUBJECT_NOT_DELETED,
                    f"Subject '{name}' was not deleted first before being permanently deleted",
                )
            if not permanent and not subject.live:
                raise SchemaRefused(
                    SchemaReason.SUBJECT_DELETED,
                    f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently",
                )
            return DeleteSchemas(name, self.schemas.seen(name), tuple(numbers), permanent), lambda _: numbers

        return await self._change(attempt)

    async def delete_version(self, name: str, number: int, permanent: bool = False) -> int:
        """Delete a version of a subject, or its newest one. Returns its number."""

        async def attempt() -> tuple[DeleteSchemas, Callable[[Done], int]]:
            self._check_writable(name)
            subject = self.subject(name, deleted=True)
            chosen = number
            if number == LATEST:
                usable = list(subject.versions.values()) if permanent else subject.live
                chosen = usable[-1].version if usable else next(reversed(subject.versions))
            found = subject.versions.get(chosen)
            if found is None:
                raise no_version(chosen)
            if found.deleted and not permanent:
                raise SchemaRefused(
                    SchemaReason.VERSION_DELETED,
                    f"Subject '{name}' Version {chosen} was soft deleted. Set permanent=true to delete permanently",
                )
            self._check_needed(name, [chosen], permanent)
            if permanent and not found.deleted:
                raise SchemaRefused(
                    SchemaReason.VERSION_NOT_DELETED,
                    f"Subject '{name}' Version {chosen} was not deleted first before being permanently deleted",
                )
            return DeleteSchemas(name, self.schemas.seen(name), (chosen,), permanent), lambda _: chosen

        return await self._change(attempt)

    async def set_mode(self, name: str, mode: SchemaMode | None, force: bool = False) -> None:
        """Set the mode of a subject, or the global one (`GLOBAL`). None: the subject has no mode of its own."""
        if name != GLOBAL:
            check_subject(name)

        async def attempt() -> tuple[SetSchemaMode, Callable[[Done], None]]:
            if mode is SchemaMode.IMPORT and self.mode(name) is not SchemaMode.IMPORT and not force:
                subjects = self.schemas.subjects
                chosen = list(subjects.values()) if name == GLOBAL else [subjects[name]] if name in subjects else []
                if any(subject.live for subject in chosen):
                    raise not_permitted("Cannot import since found existing subjects")
            return SetSchemaMode(name, self.schemas.seen(name), mode), lambda _: None

        await self._change(attempt)

    async def set_settings(self, name: str, change: Callable[[SchemaSettings], SchemaSettings]) -> SchemaSettings:
        """Change the settings of a subject, or the global ones (`GLOBAL`). Returns the new ones."""
        if name != GLOBAL:
            check_subject(name)

        async def attempt() -> tuple[SetSchemaSettings, Callable[[Done], SchemaSettings]]:
            self._check_writable(name)
            own = self.schemas.subjects.get(name)
            before = own.settings if own is not None else NO_SETTINGS
            after = change(self.schemas.settings if name == GLOBAL else before)
            return SetSchemaSettings(name, self.schemas.seen(name), after), lambda _: after

        return await self._change(attempt)

    # --- pieces ------------------------------------------------------------------------------------

    async def _change(self, attempt: Callable[[], Awaitable[tuple[SchemasCommand, Callable[[Done], T]]]]) -> T:
        """Try a change until nothing comes between the look and the command."""
        await catch_up(CATCH_UP_SECONDS, self._cluster)
        for _ in range(TRIES):
            command, outcome = await attempt()
            [result] = await self._cluster.submit([command])
            if isinstance(result, Done):
                return outcome(result)
            if not isinstance(result, Refused) or result.reason is not Reason.STALE:
                raise _refusal(command, result)
        raise Conflict("others change the same subject all the time: try again")

    async def _ready(self, name: str, draft: Draft, normalize: bool) -> Ready:
        """A draft, parsed."""
        source, references = self._sources.request_of(draft)
        subject = self.schemas.subjects.get(name)
        live = subject.live if subject is not None else []
        before = self.schemas.schemas[live[-1].id].content if live and not draft.id else None
        extra = self._sources.extra_for(draft, before)
        wanted = normalize or bool(self.settings(name).normalize)
        return await self._offload(ready_of, source, references, extra, wanted)

    def _known(self, name: str, ready: Ready, draft: Draft) -> Version | None:
        """The version of a subject that is this schema already."""
        subject = self.schemas.subjects.get(name)
        ids = self.schemas.ids_of(ready.guid, ready.content.kind)
        live = subject.live if subject is not None else []
        return next((v for v in live if v.id in ids and draft.version in (0, v.version)), None)

    async def _check_new(self, name: str, ready: Ready, draft: Draft) -> None:
        """Raise unless a schema may become the next version of a subject."""
        subject = self.schemas.subjects.get(name)
        following = max(subject.versions, default=0) + 1 if subject is not None else 1
        if draft.version not in (0, following):
            raise bad_schema("Version is not one more than previous version")
        flaws = await self._violations(name, ready, subject.live if subject is not None else [])
        if flaws:
            raise SchemaRefused(
                SchemaReason.INCOMPATIBLE,
                f'Schema being registered is incompatible with an earlier schema for subject "{name}", details: '
                f"[{', '.join(flaws)}]",
            )

    async def _violations(self, name: str, ready: Ready, versions: Sequence[Version]) -> list[str]:
        level = Level(self.settings(name).compatibility or DEFAULT_COMPATIBILITY)
        if level is Level.NONE or not versions:
            return []
        chosen = versions if level.endswith("_TRANSITIVE") else versions[-1:]
        former = [await self._former(version) for version in chosen]
        return await self._offload(explained, level, ready.parsed, former)

    async def _former(self, version: Version) -> Former:
        schema = self.schemas.schemas[version.id]
        return Former(version.version, schema.content.text, await self.parsed(schema))

    async def parsed_draft(self, draft: Draft) -> Parsed:
        """A schema as a caller gives it, parsed. Raises if it is not valid."""
        source, references = self._sources.request_of(draft)
        return (await self._offload(ready_of, source, references, "", False)).parsed

    async def parsed(self, schema: Schema) -> Parsed:
        """A stored schema, parsed."""
        parsed = self._sources.kept(schema.guid)
        if parsed is None:
            parsed = await self._offload(parse_stored, self._sources.source_of(schema.content))
            self._sources.keep(schema.guid, len(schema.content.text), parsed)
        return parsed

    def _registered(self, name: str, schema_id: int, number: int) -> tuple[Version, Schema]:
        subject = self.schemas.subjects.get(name)
        for version in reversed(subject.versions.values() if subject is not None else ()):
            if version.id == schema_id and number in (0, version.version):
                return version, self.schemas.schemas[schema_id]
        raise Conflict(f"the schema was registered under subject {name!r}, and was deleted at once")

    def _check_needed(self, name: str, versions: Sequence[int], permanent: bool) -> None:
        """Raise if schemas refer to versions that are about to be deleted."""
        for number in versions:
            if self.schemas.is_needed(name, number, versions, permanent=permanent):
                raise still_referenced(name, number)

    def _check_writable(self, name: str) -> None:
        if self.mode(name) in READ_ONLY:
            raise not_permitted(f"Subject {name} is in read-only mode" if name else "The registry is in read-only mode")


def check_subject(name: str) -> None:
    """Raise unless a name can be that of a subject."""
    if not 0 < len(name) <= MAX_NAME or name in RESERVED or not name.isprintable():
        raise SchemaRefused(SchemaReason.BAD_SUBJECT, f"The specified subject '{name[:100]}' is not a valid.")
    if name.startswith(":"):
        raise SchemaRefused(
            SchemaReason.BAD_SUBJECT,
            f"Subject '{name[:100]}' names a context: this registry has the default context only",
        )


def _refusal(command: SchemasCommand, result: Result) -> Exception:
    if not isinstance(result, Refused) or result.reason is Reason.FENCED:
        return NotReady(f"not carried out: {result}")
    if isinstance(command, DeleteSchemas) and result.reason is Reason.INVALID:  # a schema refers to it since the look
        return SchemaRefused(SchemaReason.REFERENCED, f"One or more references exist to the schema: {result.detail}.")
    if isinstance(command, RegisterSchema) and result.reason is Reason.INVALID:
        return SchemaRefused(SchemaReason.TOO_LARGE, result.detail)
    return not_permitted(result.detail)
