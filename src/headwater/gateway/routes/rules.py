"""Rules (Kafka's ACLs): who may do what. Listing them with filters, adding and deleting them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import delete, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody, QueryParameter

from headwater.gateway.admin import users as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, bounded, paged
from headwater.gateway.services import TheCall
from headwater.state.cluster.access import ANYWHERE, THE_CLUSTER, AclResource, Filter, Operation, Pattern, Permission
from headwater.state.commands.access import Acl

Resource = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
Deed = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
]  # fmt: skip
Matching = Literal["LITERAL", "PREFIXED"]
Effect = Literal["ALLOW", "DENY"]

ByResource = Annotated[Resource | None, QueryParameter(description="Only rules about this kind of resource.")]
ByName = Annotated[str | None, QueryParameter(description="Only rules with this name of a resource.")]
ByPattern = Annotated[
    Literal["LITERAL", "PREFIXED", "MATCH"] | None,
    QueryParameter(description="Only rules with this pattern. `MATCH`: all rules that apply to the resource `name`."),
]
ByPrincipal = Annotated[str | None, QueryParameter(description="Only rules about this principal, such as `User:ann`.")]
ByHost = Annotated[str | None, QueryParameter(description="Only rules about this host.")]
ByOperation = Annotated[Deed | None, QueryParameter(description="Only rules about this operation.")]
ByPermission = Annotated[Effect | None, QueryParameter(description="Only rules that allow, or that deny.")]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule."""

    resource: Resource
    """The kind of resource that the rule is about."""
    name: str = THE_CLUSTER
    """The name of the resource, or its beginning; `*` for all. The cluster needs none."""
    pattern: Matching = "LITERAL"
    """Whether `name` is a name (`LITERAL`) or the beginning of names (`PREFIXED`)."""
    principal: str
    """Who it is about, such as `User:ann`; `User:*` for every user."""
    host: str = ANYWHERE
    """The address of the client; `*` for all."""
    operation: Deed
    """What the rule is about."""
    permission: Effect = "ALLOW"
    """Whether the rule allows or denies. A rule that denies wins over all that allow."""


class NewRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to add, all or none."""

    rules: list[Rule]
    """Up to 64 rules."""


class AddedRules(msgspec.Struct, frozen=True):
    """Rules that were added."""

    added: int
    """How many are new. The others were there already."""


class DeletedRules(msgspec.Struct, frozen=True):
    """Rules that were deleted."""

    deleted: list[Rule]
    """The rules."""


def wanted_rules(
    resource: ByResource = None,
    name: ByName = None,
    pattern: ByPattern = None,
    principal: ByPrincipal = None,
    host: ByHost = None,
    operation: ByOperation = None,
    permission: ByPermission = None,
) -> Filter:
    """The rules that the query of a call asks for."""
    return Filter(
        kind=AclResource[resource or "ANY"],
        name=name,
        pattern=Pattern[pattern or "ANY"],
        principal=principal,
        host=host,
        operation=Operation[operation or "ANY"],
        permission=Permission[permission or "ANY"],
    )


TheFilter = NamedDependency[Filter]
QUERY = {"wanted": Provide(wanted_rules, sync_to_thread=False)}


@get("/v1/rules", operation_id="listRules", tags=["rules"], dependencies=QUERY)
async def list_rules(
    call: TheCall, wanted: TheFilter, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[Rule]:
    """The rules that have all the given properties. The caller needs the right to DESCRIBE the cluster."""
    found = sorted(await admin.rules(call, wanted), key=_key)
    page, then = paged("rules", found, _key, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing([_rule(acl) for acl in page], then)


@post("/v1/rules", operation_id="addRules", tags=["rules"], status_code=200)
async def add_rules(call: TheCall, data: JSONBody[NewRules]) -> AddedRules:
    """Add rules, all or none. The caller needs the right to ALTER the cluster."""
    return AddedRules(await admin.add_rules(call, [_acl(rule) for rule in data.rules]))


@delete("/v1/rules", operation_id="deleteRules", tags=["rules"], status_code=200, dependencies=QUERY)
async def delete_rules(call: TheCall, wanted: TheFilter) -> DeletedRules:
    """Delete the rules that have all the given properties, at least one. The caller needs the right to ALTER the
    cluster."""
    return DeletedRules([_rule(acl) for acl in await admin.delete_rules(call, wanted)])


def _acl(rule: Rule) -> Acl:
    return Acl(
        AclResource[rule.resource],
        rule.name,
        Pattern[rule.pattern],
        rule.principal,
        rule.host,
        Operation[rule.operation],
        Permission[rule.permission],
    )


def _rule(acl: Acl) -> Rule:
    return msgspec.convert(
        {
            "resource": AclResource(acl.kind).name,
            "name": acl.name,
            "pattern": Pattern(acl.pattern).name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": Operation(acl.operation).name,
            "permission": Permission(acl.permission).name,
        },
        Rule,
    )


def _key(acl: Acl) -> str:
    """The place of a rule in a listing: by resource, then by principal."""
    words = (f"{acl.kind:02}", acl.name, str(acl.pattern), acl.principal, acl.host, f"{acl.operation:02}")
    return bounded("\0".join((*words, str(acl.permission))))


ROUTES = (list_rules, add_rules, delete_rules)
