"""`headwater cluster`: what a cluster consists of, and how it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    put,
    put_json,
    put_table,
    run,
)
from headwater.cli.connecting import connecting, open_client

if TYPE_CHECKING:
    from headwater.app.describing import ClusterFacts, MemberLine

DataOption = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Read a cluster's ledger instead of asking its brokers.")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="A cluster's settings: read its ledger instead.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    cluster = typer.Typer(help="What a cluster consists of.", no_args_is_help=True)
    cluster.callback()(_group)
    cluster.command("describe")(connecting(describe))
    app.add_typer(cluster, name="cluster")


def _group() -> None:
    """What a cluster consists of."""


def describe(
    data: DataOption = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell brokers, zones, topics and groups; with --config or --data also epochs, health, ledger and leases."""

    async def main() -> ClusterFacts:
        if data or config:
            from headwater.app.describing import describe as look
            from headwater.config import load

            return await look(load(config, flags={"data": data}))
        return await _asked(bootstrap)

    facts = run(main())
    if output is Output.JSON:
        put_json(facts)
    else:
        _put_text(facts)


async def _asked(bootstrap: str) -> ClusterFacts:
    """What brokers tell by Kafka's protocol."""
    from headwater.app.describing import ClusterFacts, MemberLine

    async with open_client(bootstrap) as client:
        cluster = await client.cluster()
        topics = await client.list_topics()
        groups = await client.list_groups()
    return ClusterFacts(
        cluster_id=cluster.id or "",
        controller=cluster.controller if cluster.controller >= 0 else None,
        brokers=[
            MemberLine(node=broker.node, zone=broker.rack or "", addresses={"": f"{broker.host}:{broker.port}"})
            for broker in cluster.brokers
        ],
        processes=[],
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        groups=len(groups),
    )


def _put_text(facts: ClusterFacts) -> None:
    """Lines about the whole, then a table for each kind of thing."""
    whole: list[tuple[str, object]] = [
        ("cluster", facts.cluster_id),
        ("ledger", facts.ledger),
        ("objects", facts.objects),
    ]
    whole += [("controller", facts.controller), ("topics", facts.topics), ("partitions", facts.partitions)]
    whole += [("groups", facts.groups)]
    put("".join(f"{name + ':':<12}{value}\n" for name, value in whole if value is not None).encode())
    _put_members(facts.brokers)
    if facts.processes:
        _put_members(facts.processes)
    if facts.domains:
        put(b"\n")
        rows = [(d.domain, d.position, _or_dash(d.checkpoint), _or_dash(d.older_checkpoint)) for d in facts.domains]
        put_table(["DOMAIN", "POSITION", "CHECKPOINT", "OLDER"], rows)
    if facts.leases:
        put(b"\n")
        leases = [(x.name, x.domain, x.holder, _or_dash(x.node), x.runs_out_in_ms) for x in facts.leases]
        put_table(["LEASE", "DOMAIN", "EPOCH", "NODE", "RUNS-OUT-IN-MS"], leases)


def _put_members(members: Iterable[MemberLine]) -> None:
    put(b"\n")
    columns = ["NODE", "ROLE", "ZONE", "EPOCH", "VERSION", "STATE", "PUBLISH-US", "FETCH-US", "ADDRESSES"]
    rows = []
    for m in members:
        addresses = ",".join(f"{name}={address}" if name else address for name, address in m.addresses.items())
        plain = (m.node, m.role, m.zone, m.epoch, m.version, _state(m), m.publish_us, m.fetch_us, addresses)
        rows.append([_or_dash(cell) for cell in plain])
    put_table(columns, rows)


def _state(member: MemberLine) -> str | None:
    """How a process does, in a word."""
    if member.beating is None:
        return None
    if not member.beating:
        return "silent"
    return "degraded" if member.degraded else "well"


def _or_dash(value: object) -> object:
    return "-" if value is None or value == "" else value
