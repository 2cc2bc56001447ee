"""`headwater cluster`: the parts of a cluster and their health."""

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
    from headwater.app.describing import ClusterFacts
    from headwater.replica.described import MemberLine

DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Read the ledger of this data directory instead of asking brokers."),
]
UPGRADE_PAUSE_SECONDS = 1.0
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="Read the ledger that these settings name instead of asking brokers."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    cluster = typer.Typer(help="Show the parts of a cluster.", no_args_is_help=True)
    cluster.callback()(_group)
    cluster.command("describe")(connecting(describe))
    cluster.command("upgrade")(connecting(upgrade))
    app.add_typer(cluster, name="cluster")


def _group() -> None:
    """What a cluster consists of."""


def describe(
    data: DataOption = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show brokers, zones, topics and groups; with --config or --data also epochs, health, ledger and leases."""

    async def main() -> ClusterFacts:
        if data or config:
            from headwater.app.describing import describe as look
            from headwater.settings.settings import load

            return await look(load(config, flags={"data": data}))
        return await _asked(bootstrap)

    facts = run(main())
    if output is Output.JSON:
        put_json(facts)
    else:
        _put_text(facts)


def upgrade(
    level: Annotated[
        int | None, typer.Option(min=1, help="The level to raise to; by default the newest that a broker knows.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for processes of older builds.")] = 600,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Raise the cluster's feature level, once every process knows it. There is no way back."""
    run(_upgrade(bootstrap, level, timeout))


async def _upgrade(bootstrap: str, wanted: int | None, timeout: float) -> None:
    """Ask again until no process is in the way, or the time is over."""
    import asyncio

    from kio.schema.errors import ErrorCode

    from headwater.client.errors import KafkaError
    from headwater.errors import ConfigError, NotReady

    async with open_client(bootstrap) as client:
        before = await client.levels()
        if not before:
            raise ConfigError("these brokers have no feature level: they are not Headwater's")
        level, target = min(b.level for b in before), wanted or max(b.newest for b in before)
        if level >= target:
            put(f"the cluster is at level {level}; no broker knows a newer one\n".encode())
            return
        reason = ""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        await client.raise_level(target)
                        break
                    except KafkaError as error:
                        if error.code is not ErrorCode.invalid_update_version:
                            raise
                        if str(error) != reason:
                            reason = str(error)
                            put(f"waiting: {reason}\n".encode())
                    await asyncio.sleep(UPGRADE_PAUSE_SECONDS)
                while any(broker.level < target for broker in await client.levels()):
                    await asyncio.sleep(UPGRADE_PAUSE_SECONDS)
        except TimeoutError:
            raise NotReady(f"the level was not raised to {target} within {timeout:g} s: {reason}") from None
        put(f"the cluster is at level {target} now; it was at {level}\n".encode())


async def _asked(bootstrap: str) -> ClusterFacts:
    """What brokers answer by Kafka's protocol."""
    from headwater.app.describing import ClusterFacts
    from headwater.replica.described import MemberLine

    async with open_client(bootstrap) as client:
        cluster = await client.cluster()
        topics = await client.list_topics()
        groups = await client.list_groups()
        levels = await client.levels()
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
        level=min((broker.level for broker in levels), default=None),
        known_level=min((broker.newest for broker in levels), default=None),
    )


def _put_text(facts: ClusterFacts) -> None:
    """Lines about the cluster, then a table for each kind of part."""
    whole: list[tuple[str, object]] = [
        ("cluster", facts.cluster_id),
        ("ledger", facts.ledger),
        ("objects", facts.objects),
    ]
    whole += [("controller", facts.controller), ("topics", facts.topics), ("partitions", facts.partitions)]
    whole += [("groups", facts.groups), ("level", _level(facts))]
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
    if facts.holds:
        put(b"\n")
        holds = [(x.epoch, x.domain, x.age_ms, "yes" if x.keeps else "no", x.versions) for x in facts.holds]
        put_table(["HOLD-OF-EPOCH", "DOMAIN", "AGE-MS", "KEEPS", "VERSIONS"], holds)


def _level(facts: ClusterFacts) -> str | None:
    """The cluster's feature level, and whether it can be raised."""
    if facts.level is None:
        return None
    newest = facts.known_level
    if newest is None or newest <= facts.level:
        return str(facts.level)
    return f"{facts.level} (all processes know {newest}: run `headwater cluster upgrade`)"


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
    """The health of a process in one word."""
    if member.beating is None:
        return None
    if not member.beating:
        return "silent"
    return "degraded" if member.degraded else "well"


def _or_dash(value: object) -> object:
    return "-" if value is None or value == "" else value
