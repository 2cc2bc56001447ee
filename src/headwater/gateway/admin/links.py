"""Links for a caller of the HTTP API. A link copies what its source has, so its caller needs rights on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headwater.gateway.services import Call
from headwater.replica.link_changes import LinkChanges
from headwater.replica.linked import LinkFacts, LinkLine, facts_of, facts_of_spec, lines_of
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.links import LinkSpec

POLL_SECONDS = 0.1


async def all_links(call: Call) -> list[LinkLine]:
    """All links by name, if the caller may know them."""
    call.check(Operation.DESCRIBE, AclResource.CLUSTER)
    await call.services.catch_up()
    return lines_of(call.services.state)


async def find(call: Call, name: str) -> LinkFacts:
    """A link with its topics, if the caller may know that there is one."""
    call.check(Operation.DESCRIBE, AclResource.CLUSTER)
    await call.services.catch_up(*call.services.domains)
    return _facts(call, name)


async def create(call: Call, spec: LinkSpec, *, dry: bool) -> LinkFacts:
    """Create a link, or with `dry` only check it."""
    links = await _changing(call)
    links.check_new(spec)
    if dry:
        return facts_of_spec(spec, call.services.clock.wall_ms(), [])
    await links.create(spec)
    return _facts(call, spec.name)


async def pause(call: Call, name: str, topics: Sequence[str]) -> LinkFacts:
    """Stop copying a link, or some of its topics."""
    await (await _changing(call)).pause(name, topics)
    return _facts(call, name)


async def resume(call: Call, name: str, topics: Sequence[str], *, accept_gap: bool | None) -> LinkFacts:
    """Copy a link again, or some of its topics."""
    await (await _changing(call)).resume(name, topics, accept_gap=accept_gap)
    return _facts(call, name)


async def promote(
    call: Call, name: str, topics: Sequence[str], *, finish: bool, force: bool, wait_seconds: float
) -> tuple[LinkFacts, bool]:
    """Make topics of a link ordinary ones, and wait until they are. Says whether they are."""
    own, links = call.services, await _changing(call)
    await links.promote(name, topics, finish=finish, force=force)
    deadline = own.clock.monotonic() + wait_seconds
    if wait_seconds > 0:
        call.as_stream()
    while not (done := await links.is_promoted(name, topics)):
        left = deadline - own.clock.monotonic()
        if left <= 0 or own.stopping.is_set():
            break
        await asyncio.sleep(min(POLL_SECONDS, left))
    return _facts(call, name), done


async def delete(call: Call, name: str) -> None:
    """Delete a link whose topics are all promoted or deleted."""
    await (await _changing(call)).delete(name)


async def _changing(call: Call) -> LinkChanges:
    """Changes for a caller who may change them, after a look at the ledger's end."""
    own = call.services
    call.check(Operation.ALTER, AclResource.CLUSTER)
    own.check_contact()
    await own.catch_up(*own.domains)
    return LinkChanges.of(own.domains, own.settings.links)


def _facts(call: Call, name: str) -> LinkFacts:
    own = call.services
    return facts_of(own.state, own.domains, name)
