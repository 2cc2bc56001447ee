"""`headwater`: all commands. Heavy modules are imported inside the commands, so that each starts fast."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
from typing import Annotated, NoReturn

import typer

from headwater.cli import common
from headwater.cli.common import serve_forever
from headwater.cli.errors import HEALTH
from headwater.version import __version__

app = typer.Typer(
    name="headwater",
    help="A streaming log that is a lakehouse.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A streaming log that is a lakehouse."""


ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="File with settings, TOML.")]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Directory of ledger and objects.")]
KafkaOption = Annotated[str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Address for Kafka clients.")]
InsecureOption = Annotated[
    bool | None,
    typer.Option("--insecure", help="Allow listeners beyond loopback without authentication, on a trusted network."),
]
HttpOption = Annotated[
    str | None, typer.Option("--http", metavar="HOST:PORT", help="Address of health pages and metrics.")
]

GatewayOption = Annotated[
    str | None, typer.Option("--gateway-http", metavar="HOST:PORT", help="Address of the HTTP API and the catalog.")
]
FlightOption = Annotated[
    str | None, typer.Option("--gateway-flight", metavar="HOST:PORT", help="Address of Arrow Flight SQL.")
]


@app.command()
def up(
    data: DataOption = None,
    kafka: KafkaOption = None,
    http: HttpOption = None,
    brokers: Annotated[int | None, typer.Option(help="Number of brokers.")] = None,
    lake: Annotated[bool | None, typer.Option("--lake/--no-lake", help="Whether topics settle into tables.")] = None,
    gateway: Annotated[bool | None, typer.Option("--gateway/--no-gateway", help="Whether to run the HTTP API.")] = None,
    gateway_http: GatewayOption = None,
    gateway_flight: FlightOption = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
) -> None:
    """Run everything on this machine: brokers, a compactor, a gateway, their ledger and their objects."""
    from headwater.app.up.supervisor import up as run
    from headwater.settings.settings import load

    flags = {"data": data, "kafka": kafka, "http": http, "brokers": brokers, "lake.enabled": lake}
    flags |= {"gateway.enabled": gateway, "gateway.http": gateway_http, "gateway.flight": gateway_flight}
    flags["security.insecure"] = insecure
    serve_forever(run(load(config, flags=flags)))


@app.command()
def broker(
    data: DataOption = None,
    kafka: KafkaOption = None,
    http: HttpOption = None,
    node: Annotated[int | None, typer.Option(help="Number of this broker.")] = None,
    advertise: Annotated[str | None, typer.Option(help="Address that clients are given: [NAME=]HOST:PORT.")] = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one broker of a cluster that shares a ledger and an object store."""
    from headwater.app.process import serve
    from headwater.settings.settings import load

    flags = {"data": data, "kafka": kafka, "http": http, "node": node, "advertise": advertise}
    flags["security.insecure"] = insecure
    environment: dict[str, str] | None = {} if supervised else None
    serve_forever(serve(load(config, environment, flags), supervised=supervised))


@app.command()
def compactor(
    data: DataOption = None,
    http: HttpOption = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a compactor, which settles topics into tables on Spark."""
    from headwater.app.compactor import serve
    from headwater.settings.settings import load

    environment: dict[str, str] | None = {} if supervised else None
    serve_forever(
        serve(
            load(config, environment, {"data": data, "http": http, "security.insecure": insecure}),
            supervised=supervised,
        )
    )


@app.command()
def gateway(
    data: DataOption = None,
    http: HttpOption = None,
    gateway_http: GatewayOption = None,
    gateway_flight: FlightOption = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a gateway, which serves the HTTP API and the REST catalog. A cluster can have any number of them."""
    from headwater.app.gateway import serve
    from headwater.settings.settings import load

    flags = {"data": data, "http": http, "gateway.http": gateway_http, "security.insecure": insecure}
    flags["gateway.flight"] = gateway_flight
    environment: dict[str, str] | None = {} if supervised else None
    serve_forever(serve(load(config, environment, flags), supervised=supervised))


@app.command(name="compile", hidden=True)
def compile_(
    idle: Annotated[bool, typer.Option("--idle", help="Only while no other process works.")] = False,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Compile the loops over records and payloads and archive the classes of Spark, so that no process has to later."""
    from headwater.app import compiling
    from headwater.priority import run_when_idle

    if idle:
        run_when_idle()
    if supervised:
        compiling.end_with_input()
    if reason := compiling.make():
        typer.echo(f"there is no archive of Spark's classes, so it will start more slowly: {reason}", err=True)


@app.command(hidden=True)
def checkpoint(
    ledger: Annotated[str, typer.Option()],
    objects: Annotated[str, typer.Option()],
    domain: Annotated[int, typer.Option()],
) -> None:
    """Write a checkpoint of one domain and truncate its ledger. Brokers run this as a child process."""
    from headwater.app.ledgers.checkpointing import run

    asyncio.run(run(ledger, objects, domain))


@app.command()
def doctor(
    data: DataOption = None,
    config: ConfigOption = None,
    output: Annotated[str, typer.Option(help="text or json")] = "text",
    deep: Annotated[bool, typer.Option("--deep", help="Also read and decode every segment, with progress.")] = False,
) -> None:
    """Check index, heads, ledger, checkpoints and objects against each other. Exit code 6 if something is wrong."""
    from headwater.app.doctor.examining import examine
    from headwater.cli.common import Progress
    from headwater.settings.settings import load

    report = asyncio.run(examine(load(config, flags={"data": data}), deep=deep, tell=Progress() if deep else None))
    print(report.as_json() if output == "json" else report.as_text())
    if report.findings:
        raise typer.Exit(HEALTH)


def commands() -> typer.Typer:
    """The app with all commands."""
    from headwater.cli import (
        acl,
        backup,
        cluster,
        consume,
        cost,
        dlq,
        group,
        ingest,
        link,
        metadata,
        produce,
        schema,
        table,
        topic,
        txn,
    )
    from headwater.cli import user as users
    from headwater.cli.sql import command as sql

    for module in (topic, produce, consume, group, txn, table, metadata, backup, users, acl, cluster, cost, sql):
        module.register(app)
    for module in (link, ingest, schema, dlq):
        module.register(app)
    return app


def main() -> None:
    """The console script."""
    _leave(common.call(commands()))


def _leave(code: int) -> NoReturn:
    """Exit without shutting the interpreter down.

    Threads of the object store's library notify the event loop of each request that has ended, also of cancelled ones.
    A thread that does so while the interpreter shuts down aborts the process, and the exit code is lost.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or it is closed
            stream.flush()
    os._exit(code)
