"""Access rules (ACLs): searching, creating and deleting them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody, QueryParameter

from headwater.gateway.admin import users as admin
from headwater.gateway.paging import bounded, paged
from headwater.gateway.problems import BAD_REQUEST, Refusal
from headwater.gateway.v3.errors import kafka_errors
from headwater.gateway.v3.frame import MOST_ITEMS, Frame, ListOf, Metadata, PageSize, PageToken, TheFrame
from headwater.state.cluster.access import AclResource, C, Filter, Operation, Pattern, Permission
from headwater.state.commands.access import Acl

_ACLS = "/clusters/{cluster_id:str}/acls"
_TEXT = 1_024


def _parameter(meaning: str) -> QueryParameter:
    return QueryParameter(description=meaning, max_length=_TEXT)


ResourceType = Annotated[str, _parameter("The kind of resource, such as `TOPIC`.")]
ResourceName = Annotated[str | None, _parameter("The name of the resource.")]
PatternType = Annotated[str, _parameter("`LITERAL`, `PREFIXED`, `MATCH` or `ANY`.")]
Principal = Annotated[str | None, _parameter("The user, such as `User:alice`.")]
Host = Annotated[str | None, _parameter("The address of the user, or `*`.")]
OperationName = Annotated[str, _parameter("The operation, such as `READ`.")]
PermissionName = Annotated[str, _parameter("`ALLOW`, `DENY` or `ANY`.")]


class AclFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule to create."""

    resource_type: str
    """The kind of resource, such as `TOPIC`."""
    resource_name: str
    """The name of the resource."""
    pattern_type: str
    """`LITERAL` or `PREFIXED`."""
    principal: str
    """The user, such as `User:alice`."""
    host: str
    """The address of the user; `*` for all."""
    operation: str
    """The operation, such as `READ`."""
    permission: str
    """`ALLOW` or `DENY`."""


class AclBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to create, all or none."""

    data: list[AclFields]
    """The rules."""


class AclData(msgspec.Struct, frozen=True):
    """A rule."""

    kind: str
    """Always `KafkaAcl`."""
    metadata: Metadata
    """The links of the rule."""
    cluster_id: str
    """The id of the cluster."""
    resource_type: str
    """The kind of resource, such as `TOPIC`."""
    resource_name: str
    """The name of the resource."""
    pattern_type: str
    """`LITERAL` or `PREFIXED`."""
    principal: str
    """The user, such as `User:alice`."""
    host: str
    """The address of the user; `*` for all."""
    operation: str
    """The operation, such as `READ`."""
    permission: str
    """`ALLOW` or `DENY`."""


class Deleted(msgspec.Struct, frozen=True):
    """Rules that were deleted."""

    data: list[AclData]
    """The rules."""


@get(_ACLS, operation_id="v3SearchAcls", tags=["REST Proxy"])
async def search_acls(
    frame: TheFrame,
    resource_type: ResourceType = "ANY",
    resource_name: ResourceName = None,
    pattern_type: PatternType = "ANY",
    principal: Principal = None,
    host: Host = None,
    operation: OperationName = "ANY",
    permission: PermissionName = "ANY",
    page_size: PageSize = MOST_ITEMS,
    page_token: PageToken = "",
) -> ListOf[AclData]:
    """The rules that match."""
    wanted = _filter(resource_type, resource_name, pattern_type, principal, host, operation, permission)
    with kafka_errors():
        found = await admin.rules(frame.call, wanted)
    some, then = paged("acls", sorted(found, key=_key), _key, limit=page_size, cursor=page_token, most=MOST_ITEMS)
    asked = {
        "resource_type": resource_type, "resource_name": resource_name, "pattern_type": pattern_type,
        "principal": principal, "host": host, "operation": operation, "permission": permission,
    }  # fmt: skip
    query: dict[str, str | int] = {name: value for name, value in asked.items() if value is not None}
    more: dict[str, str | int] = {**query, "page_size": page_size, "page_token": then} if then else {}
    return ListOf("KafkaAclList", frame.list_metadata(["acls"], more), [_acl(frame, acl) for acl in some])


@post(_ACLS, operation_id="v3CreateAcl", tags=["REST Proxy"], status_code=201)
async def create_acl(frame: TheFrame, data: JSONBody[AclFields]) -> Response[bytes]:
    """Create a rule."""
    acl = _wanted(data)
    with kafka_errors():
        await admin.add_rules(frame.call, [acl])
    return Response(b"", status_code=201, headers={"Location": _acl(frame, acl).metadata.link})


@post(f"{_ACLS}:batch", operation_id="v3CreateAcls", tags=["REST Proxy"], status_code=201)
async def create_acls(frame: TheFrame, data: JSONBody[AclBatch]) -> Response[bytes]:
    """Create rules, all or none."""
    wanted = [_wanted(fields) for fields in data.data]
    with kafka_errors():
        await admin.add_rules(frame.call, wanted)
    return Response(b"", status_code=201)


@delete(_ACLS, operation_id="v3DeleteAcls", tags=["REST Proxy"], status_code=200)
async def delete_acls(
    frame: TheFrame,
    resource_type: ResourceType = "UNKNOWN",
    resource_name: ResourceName = None,
    pattern_type: PatternType = "UNKNOWN",
    principal: Principal = None,
    host: Host = None,
    operation: OperationName = "UNKNOWN",
    permission: PermissionName = "UNKNOWN",
) -> Deleted:
    """Delete the rules that match. Kinds of resources, patterns, operations and permissions must be named."""
    wanted = _filter(resource_type, resource_name, pattern_type, principal, host, operation, permission)
    with kafka_errors():
        found = await admin.delete_rules(frame.call, wanted)
    return Deleted([_acl(frame, acl) for acl in found])


def _filter(
    kind: str,
    name: str | None,
    pattern: str,
    principal: str | None,
    host: str | None,
    operation: str,
    permission: str,
) -> Filter:
    return Filter(
        kind=_code(AclResource, "resource_type", kind),
        name=name,
        pattern=_code(Pattern, "pattern_type", pattern),
        principal=principal,
        host=host,
        operation=_code(Operation, "operation", operation),
        permission=_code(Permission, "permission", permission),
    )


def _wanted(fields: AclFields) -> Acl:
    return Acl(
        _code(AclResource, "resource_type", fields.resource_type),
        fields.resource_name,
        _code(Pattern, "pattern_type", fields.pattern_type),
        fields.principal,
        fields.host,
        _code(Operation, "operation", fields.operation),
        _code(Permission, "permission", fields.permission),
    )


def _code(kind: type[C], field: str, name: str) -> C:
    """The number of a name of Kafka."""
    found = kind.__members__.get(name.upper())
    if not found:
        names = ", ".join(one.name for one in kind if one)
        raise Refusal(BAD_REQUEST, f"{field} cannot be unspecified or UNKNOWN; it is one of {names}")
    return found


def _key(acl: Acl) -> str:
    """The key of a rule in a listing."""
    rest = (acl.principal, acl.host, f"{acl.operation:02}", f"{acl.permission:02}")
    return bounded("\0".join((f"{acl.kind:02}", acl.name, f"{acl.pattern:02}", *rest)))


def _acl(frame: Frame, acl: Acl) -> AclData:
    fields = {
        "resource_type": AclResource(acl.kind).name,
        "resource_name": acl.name,
        "pattern_type": Pattern(acl.pattern).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name,
        "permission": Permission(acl.permission).name,
    }
    link = Metadata(f"{frame.url('acls')}?{urlencode(fields, safe='*')}")
    return AclData("KafkaAcl", link, frame.cluster_id, **fields)


ROUTES = (search_acls, create_acl, create_acls, delete_acls)
