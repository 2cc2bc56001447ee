"""`headwater group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
)
from headwater.cli.connecting import connecting, open_client
from headwater.cli.consume import bounds, parse_origin
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.client.client import Client
    from headwater.client.model import DamagedOffsets

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The group.")]
TopicOption = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic of the offsets.")]
PartitionsOption = Annotated[
    list[int] | None, typer.Option("--partition", min=0, help="Only this partition; repeatable.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    group = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)
    for name, command in (
        ("list", list_),
        ("describe", describe),
        ("reset", reset),
        ("delete-offsets", delete_offsets),
        ("delete", delete),
    ):
        group.command(name)(connecting(command))
    app.add_typer(group, name="group")


def list_(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT) -> None:
    """List all groups."""
    from headwater.client.model import GroupListing

    async def main() -> list[GroupListing]:
        async with open_client(bootstrap) as client:
            return await client.list_groups()

    groups = run(main())
    if output is Output.JSON:
        put_json([{"name": g.name, "state": g.state, "type": g.kind, "protocol": g.protocol_type} for g in groups])
    else:
        put_list(["NAME", "STATE", "TYPE"], [(g.name, g.state, g.kind) for g in groups], "groups")


def describe(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT
) -> None:
    """Describe a group: its members, committed offsets and lag, and where it waits at records that cannot be read."""
    document = run(_description(bootstrap, name))
    if output is Output.JSON:
        put_json(document)
        return
    put(f"group {document['name']}, {document['state']}, {len(document['members'])} members\n".encode())
    if document["members"]:
        put(b"\n")
        put_table(
            ["MEMBER", "INSTANCE", "CLIENT", "HOST"],
            [(m["id"], m["instance"] or "-", m["client"], m["host"]) for m in document["members"]],
        )
    if document["offsets"]:
        put(b"\n")
        put_table(
            ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"],
            [(o["topic"], o["partition"], o["committed"], o["end"], o["lag"]) for o in document["offsets"]],
        )
    for o in document["offsets"]:
        if o["damage"]:
            put(_wait(name, o).encode())


def _wait(group: str, offset: dict[str, Any]) -> str:
    """Why a group does not go on at a committed offset, and what to do."""
    from headwater.log.damage import way_on

    damage = offset["damage"]
    where = f"{offset['topic']}-{offset['partition']} at offset {offset['committed']}"
    return (
        f"\nthe group waits in {where}: the records up to {damage['last_offset']} cannot be read "
        f"({damage['object']}: {damage['reason']})\n"
        f"to do: {way_on(offset['topic'], offset['partition'], damage['last_offset'], group)}\n"
    )


async def _description(bootstrap: str, name: str) -> dict[str, Any]:
    from headwater.client.model import LATEST

    damage: dict[str, list[DamagedOffsets]] = {}
    async with open_client(bootstrap) as client:
        group = await client.describe_group(name)
        committed = await client.committed_offsets(name)
        ends: dict[tuple[str, int], int] = {}
        for topic in sorted({topic for topic, _ in committed}):
            wanted = [partition for of, partition in committed if of == topic]
            found = await client.list_offsets(topic, dict.fromkeys(wanted, LATEST))
            ends.update({(topic, partition): offset.offset for partition, offset in found.items()})
            if any(committed[(topic, partition)] < ends[(topic, partition)] for partition in wanted):
                damage[topic] = await _damage_of(client, topic)
    return {
        "name": group.name,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [{"id": m.id, "instance": m.instance, "client": m.client_id, "host": m.host} for m in group.members],
        "offsets": [
            {
                "topic": topic,
                "partition": partition,
                "committed": offset,
                "end": ends[(topic, partition)],
                "lag": max(0, ends[(topic, partition)] - offset),
                "damage": next(
                    (
                        {"last_offset": one.last_offset, "object": one.object, "reason": one.reason}
                        for one in damage.get(topic, ())
                        if one.partition == partition and one.first_offset <= offset <= one.last_offset
                    ),
                    None,
                ),
            }
            for (topic, partition), offset in sorted(committed.items())
        ],
    }


async def _damage_of(client: Client, topic: str) -> list[DamagedOffsets]:
    """The damaged offsets of a topic; none if the caller may not see them."""
    from kio.schema.errors import ErrorCode

    from headwater.client.errors import KafkaError

    try:
        return await client.damaged_offsets(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.topic_authorization_failed:
            raise
        return []


def reset(
    name: NameArgument,
    topic: TopicOption,
    to: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", help="beginning, end, OFFSET, or a time: ISO 8601 or @milliseconds."),
    ],
    partition: PartitionsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the offsets that would be committed.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Set the committed offsets of a group without members."""

    async def main() -> dict[int, int]:
        async with open_client(bootstrap) as client:
            offsets = await _places(client, topic, to, partition)
            if not dry_run:
                await client.commit_offsets(name, {(topic, index): offset for index, offset in offsets.items()})
            return offsets

    offsets = run(main())
    if output is Output.JSON:
        put_json([{"topic": topic, "partition": index, "offset": offset} for index, offset in offsets.items()])
    else:
        put_table(["TOPIC", "PARTITION", "OFFSET"], [(topic, index, offset) for index, offset in offsets.items()])


async def _places(client: Client, topic: str, to: str, partitions: list[int] | None) -> dict[int, int]:
    """The new offsets of the chosen partitions, inside their logs."""
    (described,) = await client.describe_topics([topic])
    wanted = partitions or [partition.index for partition in described.partitions]
    places, _ends = await bounds(client, topic, wanted, parse_origin(to, "--to"))
    return places


def delete_offsets(
    name: NameArgument,
    topic: TopicOption,
    partition: PartitionsOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete the committed offsets of a group for a topic."""

    async def main() -> None:
        async with open_client(bootstrap) as client:
            committed = await client.committed_offsets(name)
            wanted = [index for of, index in committed if of == topic and (not partition or index in partition)]
            if not wanted:
                fail(ConfigError(f"group {name} has no committed offsets for these partitions of topic {topic}"))
            await client.delete_offsets(name, topic, wanted)

    run(main())
    put_done(output, "group", name, "offsets deleted")


def delete(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT
) -> None:
    """Delete a group without members, and its offsets."""

    async def main() -> None:
        async with open_client(bootstrap) as client:
            await client.delete_group(name)

    run(main())
    put_done(output, "group", name, "deleted")
