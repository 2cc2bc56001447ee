"""`headwater ingest`: tables of another Kafka's topics, by one command."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import fail, parse_duration, serve_forever, unique_pairs
from headwater.cli.link import (
    GroupsOption,
    NamesOption,
    OptionOption,
    PatternOption,
    SecurityOption,
    SourceOption,
    spec_of,
)
from headwater.errors import ConfigError, HeadwaterError

if TYPE_CHECKING:
    from headwater.settings.settings import Settings
    from headwater.state.commands.links import LinkSpec

NAME = "ingest"
"""The name of the link, unless another one is given."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ingest")(ingest)


def ingest(
    source: SourceOption,
    topics: NamesOption = None,
    pattern: PatternOption = None,
    groups: GroupsOption = None,
    security: SecurityOption = None,
    option: OptionOption = None,
    name: Annotated[str, typer.Option("--name", metavar="LINK", help="Name of the link.")] = NAME,
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Directory of ledger and objects.")] = None,
    objects: Annotated[
        str | None, typer.Option("--objects", metavar="URL", help="Bucket or directory for the tables.")
    ] = None,
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            "--catalog",
            metavar="NAME.PROPERTY=VALUE",
            help="An Iceberg catalog to keep the tables in, by pyiceberg's properties; repeatable.",
        ),
    ] = None,
    freshness: Annotated[
        str | None, typer.Option("--freshness", metavar="DURATION", help="How far tables may lag, such as 30s.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Address of health pages and metrics.")
    ] = None,
    gateway_http: Annotated[
        str | None, typer.Option("--gateway-http", metavar="HOST:PORT", help="Address of SQL and the REST catalog.")
    ] = None,
    kafka: Annotated[
        str, typer.Option("--kafka", metavar="HOST:PORT", help="Address for Kafka clients; by default any free port.")
    ] = "127.0.0.1:0",
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="File with settings, TOML.")] = None,
) -> None:
    """Keep Iceberg and Delta tables of topics in another Kafka, exactly once, until it is stopped.

    Started again with the same directory it goes on where it was, also after a crash.
    """
    from headwater.settings.settings import load

    try:
        spec = from_here(spec_of(name, source, topics, pattern, groups, security, option))
        flags: dict[str, object] = {"data": data, "objects": objects, "kafka": kafka, "http": http}
        flags |= {"gateway.http": gateway_http, "lake.enabled": True, "gateway.enabled": True}
        flags["lake.freshness_ms"] = None if freshness is None else parse_duration(freshness)
        flags["lake.catalogs"] = catalogs_of(catalog or ()) or None
        settings = listing(load(config, flags=flags), spec)
    except HeadwaterError as error:
        fail(error)
    serve_forever(serve(settings, spec))


def from_here(spec: LinkSpec) -> LinkSpec:
    """A link whose files have absolute paths: they were named by the one who starts the command, here."""
    import msgspec

    from headwater.client.references import FILES

    security = {name: str(Path(at).absolute()) if name in FILES else at for name, at in spec.security.items()}
    return msgspec.structs.replace(spec, security=security)


def listing(settings: Settings, spec: LinkSpec) -> Settings:
    """Settings that let links name the files and variables of this one."""
    import msgspec

    from headwater.client.references import FILES, VARIABLES

    own, given = settings.links, spec.security
    files = (*own.secret_directories, *(given[name] for name in FILES if name in given))
    variables = (*own.secret_variables, *(given[name] for name in VARIABLES if name in given))
    links = msgspec.structs.replace(own, secret_directories=files, secret_variables=variables)
    return msgspec.structs.replace(settings, links=links)


async def serve(settings: Settings, spec: LinkSpec) -> None:
    """Create the link, or change it to what is asked for now, and run a whole cluster until a signal stops it."""
    from headwater.app.up.supervisor import up

    await up(settings, "ingest", partial(put_link, settings, spec))


async def put_link(settings: Settings, spec: LinkSpec) -> None:
    """Store the link in the ledger, which is created if it is not there."""
    from headwater.app.directories import prepare
    from headwater.app.session import ledger_session
    from headwater.replica.levels import settle_level
    from headwater.replica.link_changes import LinkChanges, check_spec

    check_spec(spec)
    prepare(settings)
    async with ledger_session(settings, member=True, create=True) as here:
        await settle_level(here.cluster, here.domains)
        await LinkChanges.of(here.domains, settings.links).ensure(spec)


def catalogs_of(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Properties of catalogs, by the names of the catalogs."""
    found: dict[str, dict[str, str]] = {}
    for name, value in unique_pairs(given, "--catalog").items():
        catalog, dot, key = name.partition(".")
        if not dot or not catalog or not key:
            raise ConfigError(f"--catalog {name!r} does not have the form NAME.PROPERTY=VALUE")
        found.setdefault(catalog, {})[key] = value
    return found
