"""`headwater txn`: list, describe and abort transactions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    AgeOption,
    BootstrapOption,
    Output,
    OutputOption,
    fail,
    parse_duration,
    put,
    put_done,
    put_json,
    put_list,
    put_table,
    run,
)
from headwater.cli.connecting import connecting, open_client
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.client.model import Transaction

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    txn = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)
    for command in (list_, describe, abort):
        txn.command(command.__name__.rstrip("_"))(connecting(command))
    app.add_typer(txn, name="txn")


def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Empty, Ongoing (open), CompleteCommit or CompleteAbort; repeatable."
        ),
    ] = None,
    older_than: AgeOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """List transactional ids, with their open or last transaction. With an age: those that are open for longer."""
    try:
        age_ms = None if older_than is None else parse_duration(older_than)
    except ConfigError as error:
        fail(error)

    async def main() -> list[dict[str, Any]]:
        async with open_client(bootstrap) as client:
            found = await client.list_transactions(state or (), older_than_ms=age_ms)
            return [_document(transaction, client.clock.wall_ms()) for transaction in found]

    documents = run(main())
    if output is Output.JSON:
        put_json(documents)
    else:
        put_list(
            ["ID", "STATE", "PRODUCER", "EPOCH", "AGE", "PARTITIONS"],
            [
                (d["id"], d["state"], d["producer"], d["epoch"], _age(d), len(d["partitions"]) if d["open"] else "-")
                for d in documents
            ],
            "transactions",
        )


def describe(
    id: IdArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT
) -> None:
    """Describe a transactional id: its producer, its open or its last transaction, the partitions of an open one."""

    async def main() -> dict[str, Any]:
        async with open_client(bootstrap) as client:
            return _document(await client.describe_transaction(id), client.clock.wall_ms())

    document = run(main())
    if output is Output.JSON:
        put_json(document)
        return
    age = f", open for {_age(document)}" if document["open"] else ""
    put(f"transactional id {id}, {document['state']}{age}\n".encode())
    put(f"producer {document['producer']}, epoch {document['epoch']}\n".encode())
    put(f"time-out {document['timeout_ms'] / 1000:g} s\n".encode())
    if document["partitions"]:
        put(b"\n")
        put_table(["TOPIC", "PARTITION"], [(p["topic"], p["partition"]) for p in document["partitions"]])


def abort(
    id: IdArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Abort without a question.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Abort the open transaction of a transactional id. Its producer is fenced: it has to start again."""

    async def look() -> tuple[Transaction, dict[str, Any]]:
        async with open_client(bootstrap) as client:
            found = await client.describe_transaction(id)
            return found, _document(found, client.clock.wall_ms())

    async def end(found: Transaction) -> None:
        async with open_client(bootstrap) as client:
            await client.abort_transaction(found)

    found, document = run(look())
    if not found.open:
        fail(ConfigError(f"transactional id {id!r} has no open transaction; its state is {found.state}"))
    if not yes:
        size = len(found.partitions)
        _confirm(f"The transaction of {id}, open for {_age(document)}, has {size} partitions. Abort it?")
    run(end(found))
    put_done(output, "transaction", id, "aborted")


def _confirm(question: str) -> None:
    """Ask in a terminal. Elsewhere nobody can answer."""
    if not _in_terminal():
        fail(ConfigError("nobody confirms that: run the command in a terminal, or with --yes"))
    typer.confirm(question, abort=True, err=True)


def _in_terminal() -> bool:
    return sys.stdin.isatty()


def _document(found: Transaction, now_ms: int) -> dict[str, Any]:
    return {
        "id": found.id,
        "state": found.state,
        "open": found.open,
        "producer": found.producer.id,
        "epoch": found.producer.epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms if found.started_ms >= 0 else None,
        "age_seconds": max(0, now_ms - found.started_ms) / 1000 if found.open else None,
        "partitions": [{"topic": topic, "partition": index} for topic, index in found.partitions],
    }


def _age(document: dict[str, Any]) -> str:
    return f"{document['age_seconds']:.0f}s" if document["open"] else "-"
