"""`headwater topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    fail,
    put,
    put_done,
    put_json,
    put_table,
    run,
    unique_pairs,
)
from headwater.cli.connecting import connecting, open_client
from headwater.errors import ConfigError

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
ConfigsOption = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A topic config; repeatable.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    topic = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)
    for command in (create, list_, describe, alter, delete):
        topic.command(command.__name__.rstrip("_"))(connecting(command))
    app.add_typer(topic, name="topic")


def create(
    name: NameArgument,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; by default what the broker is set to.")
    ] = None,
    config: ConfigsOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a topic."""
    from headwater.client.model import NewTopic

    async def main() -> None:
        configs = unique_pairs(config or (), "--config")
        async with open_client(bootstrap) as client:
            await client.create_topics([NewTopic(name, partitions or -1, configs=configs)])

    run(main())
    put_done(output, "topic", name, "created")


def list_(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT) -> None:
    """List all topics."""
    from headwater.client.model import Topic

    async def main() -> list[Topic]:
        async with open_client(bootstrap) as client:
            return await client.list_topics()

    topics = run(main())
    if output is Output.JSON:
        put_json(
            [
                {"name": t.name, "id": _text(t.id), "partitions": len(t.partitions), "internal": t.internal}
                for t in topics
            ]
        )
    elif topics:
        put_table(["NAME", "PARTITIONS", "ID"], [(t.name, len(t.partitions), _text(t.id)) for t in topics])


def describe(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Describe a topic: its partitions with their offsets, and its configs."""
    document = run(_description(bootstrap, name))
    if output is Output.JSON:
        put_json(document)
        return
    put(f"topic {document['name']}, id {document['id']}\n\n".encode())
    put_table(
        ["PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "START", "END"],
        [
            (p["partition"], p["leader"], _joined(p["replicas"]), _joined(p["in_sync"]), p["start"], p["end"])
            for p in document["partitions"]
        ],
    )
    changed = [c for c in document["configs"] if c["source"] != "default"]
    if changed:
        put(b"\n")
        put_table(["CONFIG", "VALUE", "SOURCE"], [(c["name"], c["value"], c["source"]) for c in changed])


async def _description(bootstrap: str, name: str) -> dict[str, Any]:
    from headwater.client.model import EARLIEST, LATEST

    async with open_client(bootstrap) as client:
        (topic,) = await client.describe_topics([name])
        starts = await client.list_offsets(name, dict.fromkeys(topic.led, EARLIEST))
        ends = await client.list_offsets(name, dict.fromkeys(topic.led, LATEST))
        configs = await client.describe_configs(name)
    return {
        "name": topic.name,
        "id": _text(topic.id),
        "internal": topic.internal,
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                "replicas": p.replicas,
                "in_sync": p.in_sync,
                "start": starts[p.index].offset if p.index in starts else None,
                "end": ends[p.index].offset if p.index in ends else None,
            }
            for p in topic.partitions
        ],
        "configs": [
            {
                "name": c.name,
                "value": c.value,
                "source": c.source.name.lower().replace("_", " "),
                "read_only": c.read_only,
            }
            for c in configs
        ],
    }


def alter(
    name: NameArgument,
    config: ConfigsOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Only ever more.")] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change a topic's configs, or give it more partitions."""

    if not config and not delete_config and partitions is None:
        fail(ConfigError("nothing to change: give --config, --delete-config or --partitions"))

    async def main() -> None:
        configs = unique_pairs(config or (), "--config")
        async with open_client(bootstrap) as client:
            if configs or delete_config:
                await client.incremental_alter_configs(name, configs, delete_config or ())
            if partitions is not None:
                await client.create_partitions(name, partitions)

    run(main())
    put_done(output, "topic", name, "altered")


def delete(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a topic and all that is in it."""

    async def main() -> None:
        async with open_client(bootstrap) as client:
            await client.delete_topics([name])

    run(main())
    put_done(output, "topic", name, "deleted")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _joined(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
