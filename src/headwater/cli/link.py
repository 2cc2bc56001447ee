"""`headwater link`: topics of another Kafka, copied into topics here. It takes --data or --config, like `table`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headwater.cli.common import (
    Output,
    OutputOption,
    fail,
    put,
    put_done,
    put_json,
    put_list,
    put_table,
    serve_forever,
    unique_pairs,
)
from headwater.cli.table_common import POLL_SECONDS, ConfigOption, DataOption, WaitOption, ask
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession
    from headwater.replica.link_changes import LinkChanges
    from headwater.replica.linked import LinkedLine, LinkFacts, LinkLine
    from headwater.state.commands.links import LinkSpec

T = TypeVar("T")
LinkArgument = Annotated[str, typer.Argument(metavar="LINK", help="The link.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic of the link; repeatable. By default all of them."),
]
SourceOption = Annotated[
    str, typer.Option("--source", metavar="HOST:PORT", help="Addresses of the source's brokers, separated by commas.")
]
NamesOption = Annotated[
    list[str] | None, typer.Option("--topics", metavar="NAMES", help="Topics to copy, separated by commas; repeatable.")
]
PatternOption = Annotated[
    list[str] | None,
    typer.Option("--pattern", metavar="REGEX", help="Copy all topics whose whole name matches; repeatable."),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option("--groups", metavar="REGEX", help="Copy the committed offsets of these groups, too; repeatable."),
]
SecurityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--security",
        metavar="NAME=VALUE",
        help="How to connect to the source, by librdkafka's names; repeatable. A secret is named by its file or its "
        "variable, which the settings in [links] must list: sasl.password.file=FILE, sasl.password.env=NAME.",
    ),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the link, see docs/guides/links.md; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    link = typer.Typer(help="Copy topics of another Kafka, with their offsets.", no_args_is_help=True)
    for command in (create, list_, describe, pause, resume, promote, delete, run):
        link.command(command.__name__.rstrip("_"))(command)
    app.add_typer(link, name="link")


def spec_of(
    name: str,
    source: str,
    topics: Sequence[str] | None,
    patterns: Sequence[str] | None,
    groups: Sequence[str] | None,
    security: Sequence[str] | None,
    options: Sequence[str] | None,
    *,
    paused: bool = False,
) -> LinkSpec:
    """The link that the options of a command describe. Raises if they are wrong in themselves."""
    from headwater.replica.link_changes import check_spec
    from headwater.state.commands.links import LinkSpec

    spec = LinkSpec(
        name=name,
        bootstrap=_listed([source]),
        security=unique_pairs(security or (), "--security"),
        topics=_listed(topics or ()),
        patterns=tuple(patterns or ()),
        groups=tuple(groups or ()),
        options=unique_pairs(options or (), "--option"),
        paused=paused,
    )
    check_spec(spec)
    return spec


def _listed(given: Sequence[str]) -> tuple[str, ...]:
    """What is given in lists with commas."""
    return tuple(word.strip() for words in given for word in words.split(",") if word.strip())


def create(
    name: LinkArgument,
    source: SourceOption,
    topics: NamesOption = None,
    pattern: PatternOption = None,
    groups: GroupsOption = None,
    security: SecurityOption = None,
    option: OptionOption = None,
    paused: Annotated[bool, typer.Option("--paused", help="Do not copy before `headwater link resume`.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a link. From then on link processes copy the topics, at the source's offsets."""
    try:
        spec = spec_of(name, source, topics, pattern, groups, security, option, paused=paused)
    except HeadwaterError as error:
        fail(error)
    _change(data, config, lambda links: links.create(spec))
    put_done(output, "link", name, "created")


def list_(data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all links."""

    async def look(found: LedgerSession) -> list[LinkLine]:
        from headwater.replica.linked import lines_of

        return lines_of(found.cluster.state)

    lines = ask(data, config, look)
    if output is Output.JSON:
        put_json(lines)
    else:
        put_list(
            ["LINK", "SOURCE", "STATE", "TOPICS", "STOPPED"],
            [(line.name, ",".join(line.source), line.state, line.linked, line.stopped) for line in lines],
            "links",
        )


def describe(
    name: LinkArgument, data: DataOption = None, config: ConfigOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Describe a link: its source, its topics, their states and how far each partition is copied."""

    async def look(found: LedgerSession) -> tuple[LinkFacts, dict[str, str]]:
        from headwater.app.reports import link_reasons
        from headwater.replica.described import role_of
        from headwater.replica.linked import facts_of

        state = found.cluster.state
        facts = facts_of(state, found.domains, name)
        if not any(role_of(process.name) == "link" for process in state.processes.values()):
            return facts, {"process": "no process copies links: start `headwater up` or `headwater link run`"}
        reasons = await link_reasons(found.settings, name)
        return facts, {"process": "its page /health says more"} if reasons is None else reasons

    facts, reasons = ask(data, config, look)
    if output is Output.JSON:
        put_json({**{field: getattr(facts, field) for field in facts.__struct_fields__}, "reasons": reasons})
        return
    whole = [("link", f"{facts.name}, {facts.state}"), ("source", ", ".join(facts.source))]
    whole += [("topics", ", ".join(facts.topics)), ("patterns", ", ".join(facts.patterns))]
    whole += [("groups", ", ".join(facts.groups))]
    whole += sorted({**facts.security, **facts.options}.items())
    if missing := sorted(set(facts.topics) - {found.source for found in facts.linked}):
        whole.append(("not linked", ", ".join(missing)))
    whole += [("reason", f"{part}: {reason}") for part, reason in sorted(reasons.items())]
    put("".join(f"{what + ':':<12} {value}\n" for what, value in whole if value).encode())
    if facts.linked:
        put(b"\n")
        put_table(
            ["TOPIC", "STATE", "PARTITIONS", "GENERATION", "OFFSETS", "LAG", "REASON"],
            [
                (t.topic, t.state, len(t.ends), t.generation, sum(t.ends) - sum(t.starts), _lag(t), t.reason)
                for t in facts.linked
            ],
        )


def _lag(topic: LinkedLine) -> object:
    """The lag of a topic; a dash if it has none, or if it is not known."""
    return "-" if topic.lag is None else topic.lag


def pause(
    name: LinkArgument,
    topic: TopicsOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop copying, of a whole link or of some of its topics. The topics stay read-only."""
    _change(data, config, lambda links: links.pause(name, topic or ()))
    put_done(output, "link", name, "paused")


def resume(
    name: LinkArgument,
    topic: TopicsOption = None,
    accept_gap: Annotated[
        bool | None,
        typer.Option(
            "--accept-gap/--no-accept-gap",
            help="Whether to go on at the source's first record where its retention has overtaken the link.",
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy again: a link or topics that were paused, or topics that have stopped for a reason that is gone."""
    _change(data, config, lambda links: links.resume(name, topic or (), accept_gap=accept_gap))
    put_done(output, "link", name, "resumed")


def promote(
    name: LinkArgument,
    topic: TopicsOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="First copy all that the source has now. Stop its producers before.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Promote at once, without the last offsets of groups: the source is away.")
    ] = False,
    timeout: WaitOption = 120.0,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """End copying: the topics take records of producers, at the next offsets. `resume` works until one is written.

    A link process copies the offsets of groups once more before that.
    """

    async def change(links: LinkChanges) -> None:
        from headwater.errors import NotReady

        await links.promote(name, topic or (), finish=wait, force=force)
        try:
            async with asyncio.timeout(timeout):
                while not await links.is_promoted(name, topic or ()):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            words = links.promotion_words(name, topic or ())
            raise NotReady(f"link {name} is not promoted after {timeout:g} s: {words}") from None

    _change(data, config, change)
    put_done(output, "link", name, "promoted")


def delete(
    name: LinkArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a link whose topics are all promoted or deleted. The topics stay."""
    _change(data, config, lambda links: links.delete(name))
    put_done(output, "link", name, "deleted")


def run(
    data: DataOption = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Address of health pages and metrics.")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure", help="Allow listeners beyond loopback without authentication, on a trusted network."
        ),
    ] = None,
    config: ConfigOption = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a link process, which copies what the links of the cluster name. Several of them share the partitions."""
    from headwater.app.link import serve
    from headwater.settings.settings import load

    environment: dict[str, str] | None = {} if supervised else None
    flags = {"data": data, "http": http, "security.insecure": insecure}
    serve_forever(serve(load(config, environment, flags), supervised=supervised))


def _change(data: str | None, config: str | None, change: Callable[[LinkChanges], Awaitable[T]]) -> T:
    """Change links as a member of the cluster, which may append to the ledger."""

    async def main(found: LedgerSession) -> T:
        from headwater.replica.link_changes import LinkChanges

        return await change(LinkChanges.of(found.domains, found.settings.links))

    return ask(data, config, main, member=True)
