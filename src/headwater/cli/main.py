"""`headwater`: all commands. Heavy modules are imported inside the commands, so that each starts fast."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    name="headwater",
    help="A streaming log that is a lakehouse.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, TOML.")]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Where ledger and objects lie.")]
KafkaOption = Annotated[str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Where clients connect.")]
InsecureOption = Annotated[
    bool | None,
    typer.Option("--insecure", help="Listen beyond loopback without authentication, on a network that is trusted."),
]
HttpOption = Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="Health and metrics.")]


def _serve(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@app.command()
def up(
    data: DataOption = None,
    kafka: KafkaOption = None,
    http: HttpOption = None,
    brokers: Annotated[int | None, typer.Option(help="How many brokers.")] = None,
    lake: Annotated[bool | None, typer.Option("--lake/--no-lake", help="Whether topics settle into tables.")] = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
) -> None:
    """Run everything on this machine: brokers, a compactor, their ledger and their objects."""
    from headwater.app.supervisor import up as run
    from headwater.config import load

    flags = {"data": data, "kafka": kafka, "http": http, "brokers": brokers, "lake.enabled": lake}
    flags["security.insecure"] = insecure
    _serve(run(load(config, flags=flags)))


@app.command()
def broker(
    data: DataOption = None,
    kafka: KafkaOption = None,
    http: HttpOption = None,
    node: Annotated[int | None, typer.Option(help="This broker's id.")] = None,
    advertise: Annotated[str | None, typer.Option(help="What clients are told: [NAME=]HOST:PORT.")] = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one broker of a cluster that shares a ledger and an object store."""
    from headwater.app.process import serve
    from headwater.config import load

    flags = {"data": data, "kafka": kafka, "http": http, "node": node, "advertise": advertise}
    flags["security.insecure"] = insecure
    environment: dict[str, str] | None = {} if supervised else None
    _serve(serve(load(config, environment, flags), supervised=supervised))


@app.command()
def compactor(
    data: DataOption = None,
    http: HttpOption = None,
    insecure: InsecureOption = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a compactor: it settles topics into tables on Spark."""
    from headwater.app.compactor import serve
    from headwater.config import load

    environment: dict[str, str] | None = {} if supervised else None
    _serve(
        serve(
            load(config, environment, {"data": data, "http": http, "security.insecure": insecure}),
            supervised=supervised,
        )
    )


@app.command(name="compile", hidden=True)
def compile_() -> None:
    """Compile the loops over records, so that no process has to do it later."""
    from headwater.log import kernels, segment, segment_encode

    kernels.compile_kernels()
    segment.compile_kernels()
    segment_encode.compile_encoder()


@app.command(hidden=True)
def checkpoint(
    ledger: Annotated[str, typer.Option()],
    objects: Annotated[str, typer.Option()],
    domain: Annotated[int, typer.Option()],
) -> None:
    """Write one domain's checkpoint and cut its ledger. Brokers run this as a child."""
    from headwater.app.checkpointing import run

    asyncio.run(run(ledger, objects, domain))


@app.command()
def doctor(
    data: DataOption = None,
    config: ConfigOption = None,
    output: Annotated[str, typer.Option(help="text or json")] = "text",
) -> None:
    """Check index, heads, ledger, checkpoint and objects against each other. Exit code 0 if all is well, else 6."""
    from headwater.app.doctor import examine
    from headwater.config import load

    report = asyncio.run(examine(load(config, flags={"data": data})))
    print(report.as_json() if output == "json" else report.as_text())
    if report.findings:
        raise typer.Exit(6)


def main() -> None:
    """The console script."""
    from headwater.cli import acl, cluster, common, consume, cost, group, metadata, produce, table, topic, user

    for module in (topic, produce, consume, group, table, metadata, user, acl, cluster, cost):
        module.register(app)
    _leave(common.call(app))


def _leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    Threads of the object store's library tell the event loop of each request that has ended, wanted or not. One that
    does so while the interpreter goes down aborts the process, and its exit code is lost.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it is gone, or it was closed
            stream.flush()
    os._exit(code)
