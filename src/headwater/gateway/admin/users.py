"""Users and rules for a caller of the HTTP API, with the rights that Kafka's own APIs ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from headwater.errors import BadInput
from headwater.gateway.admin.changing import took
from headwater.gateway.problems import UNPROCESSABLE, Refusal
from headwater.gateway.services import Call, missing
from headwater.replica.users import commands_of
from headwater.state.cluster.access import AclResource, Filter, Keys, Operation, objection
from headwater.state.commands.access import Acl, DropAcls, DropUser, PutAcls
from headwater.state.results import Done
from headwater.wire.scram import MECHANISMS

MAX_RULES = 64
"""Rules of one request to add. With the longest names they still fit into one record, and so all are added or none."""


async def all_users(call: Call) -> Mapping[str, dict[int, Keys]]:
    """All users with their keys, if the caller may know them."""
    call.check(Operation.DESCRIBE, AclResource.CLUSTER)
    await call.services.catch_up()
    return call.services.state.access.users


async def find_user(call: Call, name: str) -> dict[int, Keys]:
    """The keys of a user, if the caller may know that there is one."""
    keys = (await all_users(call)).get(name)
    if keys is None:
        raise missing("user", name)
    return keys


async def put_user(call: Call, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> bool:
    """Store keys of a user for all mechanisms at once. Returns whether the user is new."""
    own = call.services
    call.check(Operation.ALTER, AclResource.CLUSTER)
    own.check_contact()
    await own.catch_up()
    new = name not in own.state.access.users
    # Salting is slow on purpose.
    commands = await asyncio.to_thread(commands_of, own.chance, name, mechanisms, password, iterations)
    for result in await own.cluster.submit(commands):
        took(result)
    return new


async def delete_user(call: Call, name: str, mechanisms: Sequence[str] | None) -> None:
    """Delete a user's keys for some mechanisms, or for all."""
    own = call.services
    call.check(Operation.ALTER, AclResource.CLUSTER)
    own.check_contact()
    await own.catch_up()
    known = own.state.access.users.get(name, {})
    wanted = sorted(known) if mechanisms is None else sorted({MECHANISMS[mechanism] for mechanism in mechanisms})
    if not known or any(number not in known for number in wanted):
        raise missing("user" if not known else "key of user", name)
    for result in await own.cluster.submit([DropUser(name, number) for number in wanted]):
        took(result)


def _check_rules(call: Call, operation: Operation) -> None:
    call.check(operation, AclResource.CLUSTER)
    if not call.services.guard.enforced:
        raise Refusal(UNPROCESSABLE, "this cluster has no rules: set `security.acls` to enforce them")


async def rules(call: Call, wanted: Filter) -> list[Acl]:
    """The rules that a filter matches."""
    _check_rules(call, Operation.DESCRIBE)
    await call.services.catch_up()
    return call.services.state.access.matching(wanted)


async def add_rules(call: Call, wanted: Sequence[Acl]) -> int:
    """Add rules, all or none. Returns how many are new."""
    own = call.services
    _check_rules(call, Operation.ALTER)
    if not 0 < len(wanted) <= MAX_RULES:
        raise BadInput(f"a request adds 1 to {MAX_RULES} rules")
    for rule in wanted:
        if flaw := objection(rule):
            raise BadInput(flaw)
    own.check_contact()
    [result] = await own.cluster.submit([PutAcls(tuple(wanted))])
    took(result)
    return result.value if isinstance(result, Done) else 0


async def delete_rules(call: Call, wanted: Filter) -> list[Acl]:
    """Delete the rules that a filter matches. Returns them."""
    own = call.services
    _check_rules(call, Operation.ALTER)
    if wanted == Filter():
        raise BadInput("name at least one property of the rules to delete")
    own.check_contact()
    await own.catch_up()
    found, most = own.state.access.matching(wanted), own.own.page_items
    if len(found) > most:
        raise Refusal(
            UNPROCESSABLE, f"{len(found)} rules match, and a request deletes at most {most}: narrow the filter"
        )
    for first in range(0, len(found), MAX_RULES):
        [result] = await own.cluster.submit([DropAcls(tuple(found[first : first + MAX_RULES]))])
        took(result)
    return found
