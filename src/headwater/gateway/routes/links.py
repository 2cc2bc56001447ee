"""Links: topics of another Kafka that are copied here. Creating, pausing, resuming, promoting and deleting them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from headwater.gateway.admin import links as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, paged
from headwater.gateway.services import TheCall
from headwater.replica.linked import LinkFacts, LinkLine
from headwater.state.commands.links import LinkSpec

LinkName = Annotated[str, PathParameter(description="The name of the link.")]
MAX_WAIT_SECONDS = 60
DEFAULT_WAIT_SECONDS = 10.0
Wait = Annotated[
    float, QueryParameter(ge=0, le=MAX_WAIT_SECONDS, description="How many seconds to wait for the promotion at most.")
]
ValidateOnly = Annotated[bool, QueryParameter(description="Only check the request.")]
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]


class NewLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link to create. It names topics or patterns, or both."""

    name: str
    """The name of the link: letters, digits, dots, dashes and underscores."""
    source: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=100)]
    """Addresses of the source's brokers, `HOST:PORT`."""
    topics: Names = ()
    """Names of topics to copy."""
    patterns: Names = ()
    """Regular expressions (RE2); topics whose whole name matches one are copied, also topics that come later."""
    groups: Names = ()
    """Regular expressions (RE2); the committed offsets of the groups whose whole name matches one are copied."""
    security: dict[str, str] = {}
    """How to connect to the source, by librdkafka's names. A secret is named by its file or its variable on the
    machines of link processes: `sasl.password.file`, `sasl.password.env`. The operator lists the
    directories and variables that may be named: `links.secret_directories`, `links.secret_variables`. Secrets
    themselves are refused."""
    options: dict[str, str] = {}
    """Options of the link, see `docs/guides/links.md`."""
    paused: bool = False
    """Whether nothing is copied before the link is resumed."""


class OfLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The topics of a link that a call is about."""

    topics: Names = ()
    """Names of topics here. By default all topics of the link."""


class Promoted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is promoted."""

    topics: Names = ()
    """Names of topics here. By default all topics of the link."""
    finish: bool = False
    """Whether to copy first all that the source has at the time of the call. Stop its producers before."""
    force: bool = False
    """Whether to promote at once, without the last offsets of groups: the source is away."""


class Resumed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is copied again."""

    topics: Names = ()
    """Names of topics here. By default the link and all of its topics."""
    accept_gap: bool | None = None
    """Whether to go on at the source's first record where the source has deleted records that were not copied yet, from
    now on. By default this stays as it is for the link."""


@get("/v1/links", operation_id="listLinks", tags=["links"])
async def list_links(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[LinkLine]:
    """All links, by name. The caller needs the right to DESCRIBE the cluster."""
    found = await admin.all_links(call)
    page, then = paged("links", found, _key, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing(page, then)


@post("/v1/links", operation_id="createLink", tags=["links"])
async def create_link(
    call: TheCall, data: JSONBody[NewLink], validate_only: ValidateOnly = False
) -> Response[LinkFacts]:
    """Create a link (201). The caller needs the right to ALTER the cluster.

    From then on link processes copy the topics, at the source's offsets. The topics are read-only until they are
    promoted. With `validate_only` the link is only checked (200); the source is not asked.
    """
    facts = await admin.create(call, _spec(data), dry=validate_only)
    return Response(facts, status_code=200 if validate_only else 201)


@get("/v1/links/{link:str}", operation_id="describeLink", tags=["links"])
async def describe_link(call: TheCall, link: LinkName) -> LinkFacts:
    """A link with its topics. The caller needs the right to DESCRIBE the cluster."""
    return await admin.find(call, link)


@post("/v1/links/{link:str}/pause", operation_id="pauseLink", tags=["links"], status_code=200)
async def pause_link(call: TheCall, link: LinkName, data: JSONBody[OfLink]) -> LinkFacts:
    """Stop copying a link, or some of its topics. The caller needs the right to ALTER the cluster.

    The topics stay read-only.
    """
    return await admin.pause(call, link, data.topics)


@post("/v1/links/{link:str}/resume", operation_id="resumeLink", tags=["links"], status_code=200)
async def resume_link(call: TheCall, link: LinkName, data: JSONBody[Resumed]) -> LinkFacts:
    """Copy again what was paused or has stopped. The caller needs the right to ALTER the cluster."""
    return await admin.resume(call, link, data.topics, accept_gap=data.accept_gap)


@post("/v1/links/{link:str}/promote", operation_id="promoteLink", tags=["links"], status_code=202)
async def promote_link(
    call: TheCall, link: LinkName, data: JSONBody[Promoted], wait: Wait = DEFAULT_WAIT_SECONDS
) -> Response[LinkFacts]:
    """End copying of topics: producers write to them from then on. The caller needs the right to ALTER the cluster.

    Records get the offsets that follow the copied ones. A link process copies the offsets of groups before that. The
    answer is 200 if the topics are promoted, and 202 if that still goes on: `linked` shows how far each topic is.
    """
    facts, done = await admin.promote(call, link, data.topics, finish=data.finish, force=data.force, wait_seconds=wait)
    return Response(facts, status_code=200 if done else 202)


@delete("/v1/links/{link:str}", operation_id="deleteLink", tags=["links"])
async def delete_link(call: TheCall, link: LinkName) -> None:
    """Delete a link whose topics are all promoted or deleted. The caller needs the right to ALTER the cluster.

    The topics stay. With other topics the answer is 409.
    """
    await admin.delete(call, link)


def _key(line: LinkLine) -> str:
    return line.name


def _spec(new: NewLink) -> LinkSpec:
    return LinkSpec(
        name=new.name,
        bootstrap=new.source,
        security=new.security,
        topics=new.topics,
        patterns=new.patterns,
        groups=new.groups,
        options=new.options,
        paused=new.paused,
    )


ROUTES = (list_links, create_link, describe_link, pause_link, resume_link, promote_link, delete_link)
