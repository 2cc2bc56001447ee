"""`headwater schema`: the schema registry. It takes --data or --config, like `table`; no gateway has to run."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headwater.cli.common import Output, OutputOption, fail, put, put_done, put_json, put_list
from headwater.cli.errors import INPUT
from headwater.cli.table_common import ConfigOption, DataOption, ask
from headwater.errors import BadInput

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.replica.schema_sources import Draft
    from headwater.replica.schemas import Registry
    from headwater.state.cluster.schemas import Schema, Version

T = TypeVar("T")
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject.")]
ScopeArgument = Annotated[str, typer.Argument(metavar="[SUBJECT]", help="The subject. Without it: all subjects.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The file with the schema; - for standard input.")]
KindOption = Annotated[
    str, typer.Option("--kind", help="AVRO, PROTOBUF or JSON. By default by the name: .proto, .json, others are Avro.")
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="NAME=SUBJECT[:VERSION]", help="What the schema refers to by NAME; repeatable."
    ),
]
NormalizeOption = Annotated[bool, typer.Option("--normalize", help="Compare and store the normalized schema.")]
VersionOption = Annotated[int, typer.Option("--version", min=-1, help="The version. By default the newest one.")]
DeletedOption = Annotated[bool, typer.Option("--deleted", help="Also what is deleted, and not permanently deleted.")]
PermanentOption = Annotated[
    bool, typer.Option("--permanent", help="Remove what is deleted already. Its records cannot be decoded afterwards.")
]
_KINDS = {".proto": "PROTOBUF", ".json": "JSON"}


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    schema = typer.Typer(help="Schemas of keys and values: the schema registry.", no_args_is_help=True)
    for command in (list_, show, register_, check, delete, mode, compat):
        schema.command(command.__name__.rstrip("_"))(command)
    app.add_typer(schema, name="schema")


def list_(
    deleted: DeletedOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List all subjects."""

    async def look(registry: Registry) -> list[dict[str, Any]]:
        found = []
        for name in sorted(registry.schemas.subjects):
            subject = registry.schemas.subjects[name]
            versions = list(subject.versions.values()) if deleted else subject.live
            if versions:
                newest = versions[-1]
                found.append(
                    {
                        "subject": name,
                        "kind": registry.schemas.schemas[newest.id].content.kind,
                        "versions": [version.version for version in versions],
                        "id": newest.id,
                        "compatibility": registry.settings(name).compatibility,
                        "mode": registry.mode(name),
                    }
                )
        return found

    rows = _ask(data, config, look)
    if output is Output.JSON:
        put_json(rows)
    else:
        put_list(
            ["SUBJECT", "KIND", "VERSIONS", "NEWEST", "ID", "COMPATIBILITY", "MODE"],
            [
                (r["subject"], r["kind"], len(r["versions"]), r["versions"][-1], r["id"], r["compatibility"], r["mode"])
                for r in rows
            ],
            "subjects",
        )


def show(
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="The subject.")] = "",
    version: VersionOption = -1,
    schema_id: Annotated[int | None, typer.Option("--id", help="The id of the schema, instead of a subject.")] = None,
    deleted: DeletedOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print a schema: the newest version of a subject, another version, or the schema with an id."""
    if bool(subject) is (schema_id is not None):
        fail(BadInput("give a subject or --id"))

    async def look(registry: Registry) -> tuple[Version | None, Schema]:
        from headwater.replica.schema_errors import no_schema

        if schema_id is None:
            return registry.version(subject, version, deleted)
        found = registry.schemas.schemas.get(schema_id)
        if found is None:
            raise no_schema(schema_id)
        return None, found

    found, schema = _ask(data, config, look)
    content = schema.content
    if output is Output.TEXT:
        put(f"{content.text.rstrip()}\n".encode())
        return
    references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in content.references]
    told: dict[str, Any] = {"id": schema.id, "guid": str(schema.guid), "kind": content.kind, "schema": content.text}
    told["references"] = references
    if found is not None:
        told.update(subject=subject, version=found.version, deleted=found.deleted)
    put_json(told)


def register_(
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = "",
    reference: ReferenceOption = None,
    normalize: NormalizeOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Register a schema as the next version of a subject, if it is compatible. Prints its id."""
    draft = _draft(file, kind, reference or [])
    version, schema = _ask(data, config, lambda registry: registry.register(subject, draft, normalize), member=True)
    if output is Output.JSON:
        put_json({"subject": subject, "version": version.version, "id": schema.id, "guid": str(schema.guid)})
    else:
        put(f"subject {subject}, version {version.version}: id {schema.id}\n".encode())


def check(
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = "",
    reference: ReferenceOption = None,
    normalize: NormalizeOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check whether a schema could be registered. If not, say why and exit with 1."""
    draft = _draft(file, kind, reference or [])

    async def look(registry: Registry) -> list[str]:
        own = registry.schemas.subjects.get(subject)
        return await registry.check(subject, draft, own.live if own is not None else [], normalize)

    flaws = _ask(data, config, look)
    if output is Output.JSON:
        put_json({"compatible": not flaws, "messages": flaws})
    else:
        put(("".join(f"{flaw}\n" for flaw in flaws) or "compatible\n").encode())
    if flaws:
        raise typer.Exit(INPUT)


def delete(
    subject: SubjectArgument,
    version: Annotated[int | None, typer.Option("--version", min=-1, help="Only this version; -1: the newest.")] = None,
    permanent: PermanentOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a subject or one of its versions. The schemas can still be read by their ids, until --permanent."""

    async def change(registry: Registry) -> list[int]:
        if version is None:
            return await registry.delete_subject(subject, permanent)
        return [await registry.delete_version(subject, version, permanent)]

    gone = _ask(data, config, change, member=True)
    if output is Output.JSON:
        put_json({"subject": subject, "deleted": gone})
    else:
        put(f"subject {subject}: deleted {', '.join(map(str, gone))}\n".encode())


def mode(
    subject: ScopeArgument = "",
    set_: Annotated[
        str, typer.Option("--set", help="READWRITE, READONLY, READONLY_OVERRIDE or IMPORT; `default` removes it.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Switch to IMPORT although there are schemas.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show or set the mode: what may be changed."""
    from headwater.state.commands.schemas import SchemaMode

    wanted = set_.upper()
    if wanted not in ("", "DEFAULT", *SchemaMode.__members__):
        fail(BadInput(f"{set_!r} is not a mode: {', '.join(SchemaMode.__members__)}"))

    async def change(registry: Registry) -> str:
        if wanted:
            await registry.set_mode(subject, SchemaMode[wanted] if wanted != "DEFAULT" else None, force)
        return registry.mode(subject)

    _put_value(output, "mode", subject, _ask(data, config, change, member=bool(wanted)), changed=bool(wanted))


def compat(
    subject: ScopeArgument = "",
    set_: Annotated[
        str,
        typer.Option("--set", help="NONE, BACKWARD, FORWARD, FULL, or with _TRANSITIVE; `default` removes it."),
    ] = "",
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show or set the compatibility level: which schemas may follow."""
    from headwater.schemas.compatibility import Level
    from headwater.state.commands.schemas import SchemaSettings

    wanted = set_.upper()
    if wanted not in ("", "DEFAULT", *Level.__members__):
        fail(BadInput(f"{set_!r} is not a compatibility level: {', '.join(Level.__members__)}"))

    async def change(registry: Registry) -> str:
        level = None if wanted == "DEFAULT" else wanted
        if wanted:
            await registry.set_settings(subject, lambda before: SchemaSettings(level, before.normalize))
        return registry.settings(subject).compatibility or ""

    told = _ask(data, config, change, member=bool(wanted))
    _put_value(output, "compatibility", subject, told, changed=bool(wanted))


def _put_value(output: Output, what: str, subject: str, value: str, *, changed: bool) -> None:
    if changed and output is Output.TEXT:
        put_done(output, what, subject or "of all subjects", f"is {value}")
    elif output is Output.JSON:
        put_json({"subject": subject or None, what: value})
    else:
        put(f"{value}\n".encode())


def _draft(file: str, kind: str, references: list[str]) -> Draft:
    """The schema of a file."""
    from headwater.replica.schema_sources import LATEST, Draft, Reference

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(BadInput(f"{file} cannot be read: {error}"))
    found = []
    for given in references:
        name, equals, target = given.partition("=")
        subject, _, version = target.rpartition(":") if target.rpartition(":")[2].isdigit() else (target, "", "")
        if not name or not equals or not subject:
            fail(BadInput(f"--reference {given!r} is not NAME=SUBJECT or NAME=SUBJECT:VERSION"))
        found.append(Reference(name, subject, int(version) if version else LATEST))
    return Draft(kind.upper() or _KINDS.get(Path(file).suffix, "AVRO"), text, tuple(found))


def _ask(data: str | None, config: str | None, work: Callable[[Registry], Awaitable[T]], *, member: bool = False) -> T:
    """Work with the registry. A member of the cluster may change it."""

    async def main(found: LedgerSession) -> T:
        from headwater.replica.schemas import Registry

        return await work(Registry(found.cluster))

    return ask(data, config, main, member=member)
