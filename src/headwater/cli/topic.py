"""`headwater topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import sys
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
    put_list,
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
        int | None, typer.Option(min=1, help="Number of partitions; by default that of the broker.")
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


def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also list Kafka's internal topics.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """List all topics."""
    from headwater.client.model import Topic

    async def main() -> list[Topic]:
        async with open_client(bootstrap) as client:
            return await client.list_topics(internal=internal)

    topics = run(main())
    if output is Output.JSON:
        put_json(
            [
                {"name": t.name, "id": _text(t.id), "partitions": len(t.partitions), "internal": t.internal}
                for t in topics
            ]
        )
    else:
        put_list(["NAME", "PARTITIONS", "ID"], [(t.name, len(t.partitions), _text(t.id)) for t in topics], "topics")


def describe(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Describe a topic: its partitions with their offsets, records that cannot be read, and its configs."""
    from headwater.log.damage import way_on

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
    if document["link"]:
        link = document["link"]
        why = f" ({link['reason']})" if link["reason"] else ""
        put(f"\nlink {link['link']} copies {link['source']}: {link['phase']}{why}\n".encode())
    if document["retention"]:
        put(f"\nretention: {document['retention']}\n".encode())
    if document["damage"]:
        put(b"\ndamaged records, which cannot be read:\n")
        put_table(
            ["PARTITION", "FIRST", "LAST", "OBJECT", "REASON", "GROUPS THAT WAIT", "CLIENTS THAT WAIT"],
            [
                (
                    d["partition"],
                    d["first_offset"],
                    d["last_offset"],
                    d["object"],
                    d["reason"],
                    ", ".join(d["groups"]) or "-",
                    ", ".join(d["clients"]) or "-",
                )
                for d in document["damage"]
            ],
        )
        first = document["damage"][0]
        put(f"\nto do: {way_on(name, first['partition'], first['last_offset'])}\n".encode())
    changed = [c for c in document["configs"] if c["source"] != "default"]
    if changed:
        put(b"\n")
        put_table(["CONFIG", "VALUE", "SOURCE"], [(c["name"], c["value"], c["source"]) for c in changed])


async def _description(bootstrap: str, name: str) -> dict[str, Any]:
    import msgspec

    from headwater.client.model import DAMAGE, EARLIEST, LATEST, LINK, RETENTION_NOTICE

    async with open_client(bootstrap) as client:
        (topic,) = await client.describe_topics([name])
        starts = await client.list_offsets(name, dict.fromkeys(topic.led, EARLIEST))
        ends = await client.list_offsets(name, dict.fromkeys(topic.led, LATEST))
        shown = await client.describe_configs(name)
        configs = [config for config in shown if config.name not in (DAMAGE, LINK, RETENTION_NOTICE)]
        damage = await client.damaged_offsets(name)
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
        "link": next((msgspec.json.decode(c.value or "null") for c in shown if c.name == LINK), None),
        "retention": next((c.value for c in shown if c.name == RETENTION_NOTICE), None),
        "damage": [msgspec.structs.asdict(one) for one in damage],
    }


def alter(
    name: NameArgument,
    config: ConfigsOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Reset to the default; repeatable."),
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="New number of partitions; it can only grow.")] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change the configs of a topic, or add partitions."""

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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a topic with its records. The command asks before that."""
    if not yes:
        _confirm(name)

    async def main() -> None:
        async with open_client(bootstrap) as client:
            await client.delete_topics([name])

    run(main())
    put_done(output, "topic", name, "deleted")


def _confirm(name: str) -> None:
    """Ask at a terminal. Elsewhere nobody can answer."""
    if not sys.stdin.isatty():
        fail(ConfigError(f"topic {name!r} would be deleted with all its records: say so with --yes"))
    if not typer.confirm(f"Delete the topic {name!r} with all its records?", err=True):
        fail(ConfigError(f"topic {name!r} was not deleted"))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _joined(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
