"""`headwater acl`: add, list and remove access rules."""

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
    put_json,
    put_list,
    run,
)
from headwater.cli.connecting import connecting, open_client
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.client.access import Rule

_ANY, _MATCH, _LITERAL, _PREFIXED, _DENY, _ALLOW = 1, 2, 3, 4, 2, 3
COLUMNS = ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"]

PrincipalOption = Annotated[
    list[str] | None, typer.Option("--principal", metavar="User:NAME", help="Principal of the rule; repeatable.")
]
OperationOption = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help="read, write, describe, alter-configs, all, …; repeatable."),
]
TopicOption = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Repeatable; `*` for all.")]
GroupOption = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="Repeatable; `*` for all.")]
TransactionOption = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="NAME", help="Repeatable; `*` for all.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster as a whole.")]
PrefixOption = Annotated[bool, typer.Option("--prefix", help="Apply to all names that begin with the given ones.")]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Address of the client; by default all.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    acl = typer.Typer(help="Add, list and remove access rules.", no_args_is_help=True)
    for command in (add, list_, remove):
        acl.command(command.__name__.rstrip("_"))(connecting(command))
    app.add_typer(acl, name="acl")


def add(
    principal: PrincipalOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    prefix: PrefixOption = False,
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny instead of allow. A rule that denies wins over all that allow.")
    ] = False,
    host: HostOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add rules: one for each principal, operation and resource."""
    from headwater.client.access import Rule

    try:
        things = _things(topic, group, transactional_id, cluster)
        if not principal or not operation or not things:
            raise ConfigError("a rule needs --principal, --operation and a resource: --topic, --group, --cluster, …")
        rules = [
            Rule(kind, name, _PREFIXED if prefix and name != "kafka-cluster" else _LITERAL, who, host or "*", what,
                 _DENY if deny else _ALLOW)
            for who in principal
            for what in map(_operation, operation)
            for kind, name in things
        ]  # fmt: skip
    except ConfigError as error:
        fail(error)

    async def main() -> None:
        async with open_client(bootstrap) as client:
            await client.create_acls(rules)

    run(main())
    _show(output, rules, "added")


def list_(
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME")] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME")] = None,
    matching: Annotated[
        bool, typer.Option("--matching", help="All rules that apply to the name, not only those that contain it.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """List all rules, or those of a principal or a resource."""
    try:
        wanted = _one_filter(principal, None, _things([topic] if topic else None, [group] if group else None), matching)
    except ConfigError as error:
        fail(error)

    async def main() -> list[Rule]:
        async with open_client(bootstrap) as client:
            return await client.describe_acls(wanted)

    _show(output, run(main()), None)


def remove(
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME")] = None,
    operation: Annotated[str | None, typer.Option("--operation", metavar="NAME")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME")] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME")] = None,
    transactional_id: Annotated[str | None, typer.Option("--transactional-id", metavar="NAME")] = None,
    cluster: ClusterOption = False,
    everything: Annotated[bool, typer.Option("--all", help="All rules.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove the rules that match all given options, and list them."""
    try:
        things = _things(
            [topic] if topic else None,
            [group] if group else None,
            [transactional_id] if transactional_id else None,
            cluster,
        )
        if not everything and not (principal or operation or things):
            raise ConfigError("name the rules by --principal, --operation, --topic, …; or give --all")
        wanted = _one_filter(principal, operation, things, False)
    except ConfigError as error:
        fail(error)

    async def main() -> list[Rule]:
        async with open_client(bootstrap) as client:
            return await client.delete_acls(wanted)

    _show(output, run(main()), "removed")


# --- words and numbers -----------------------------------------------------------------------------------


def _things(
    topics: list[str] | None,
    groups: list[str] | None = None,
    transactions: list[str] | None = None,
    cluster: bool = False,
) -> list[tuple[int, str]]:
    from headwater.state.cluster.access import THE_CLUSTER, AclResource

    found = [(int(AclResource.TOPIC), name) for name in topics or ()]
    found += [(int(AclResource.GROUP), name) for name in groups or ()]
    found += [(int(AclResource.TRANSACTIONAL_ID), name) for name in transactions or ()]
    return [*found, *([(int(AclResource.CLUSTER), THE_CLUSTER)] if cluster else [])]


def _one_filter(principal: str | None, operation: str | None, things: list[tuple[int, str]], matching: bool) -> Rule:
    from headwater.client.access import Rule

    if len(things) > 1:
        raise ConfigError("give one resource at a time")
    kind, name = things[0] if things else (_ANY, None)
    what = _operation(operation) if operation else _ANY
    return Rule(kind, name, _MATCH if matching else _ANY, principal, None, what, _ANY)


def _operation(word: str) -> int:
    from headwater.state.cluster.access import Operation

    known = {o.name.lower().replace("_", "-"): o for o in Operation if o not in (Operation.UNKNOWN, Operation.ANY)}
    found = known.get(word.lower().replace("_", "-"))
    if found is None:
        raise ConfigError(f"--operation {word!r} must be one of {', '.join(known)}")
    return int(found)


def _row(rule: Rule) -> dict[str, Any]:
    from headwater.state.cluster.access import AclResource, Operation, Pattern, Permission

    return {
        "principal": rule.principal,
        "permission": Permission(rule.permission).name.lower(),
        "operation": Operation(rule.operation).name.lower().replace("_", "-"),
        "resource": AclResource(rule.kind).name.lower().replace("_", "-"),
        "name": rule.name,
        "pattern": Pattern(rule.pattern).name.lower(),
        "host": rule.host,
    }


def _show(output: Output, rules: list[Rule], what: str | None) -> None:
    rows = [_row(rule) for rule in rules]
    if output is Output.JSON:
        put_json(rows)
        return
    if rows or what is None:
        put_list(COLUMNS, [list(row.values()) for row in rows], "rules")
    if what is not None:
        put(f"{len(rows)} {'rule' if len(rows) == 1 else 'rules'} {what}\n".encode())
