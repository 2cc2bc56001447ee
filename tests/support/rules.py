"""Guards for tests: one that lets everybody do everything, and one that follows rules."""

from __future__ import annotations

from headwater.broker.guard import Guard
from headwater.config import Security
from headwater.metadata.access import Access, Operation, Pattern, Permission, ResourceKind
from headwater.metadata.access_commands import Acl, PutAcls

NO_RULES = Guard(Security(), Access())


def rule(principal: str, operation: Operation, name: str, kind: ResourceKind = ResourceKind.TOPIC) -> Acl:
    """That a user may do something to a thing of this name, from everywhere."""
    return Acl(kind, name, Pattern.LITERAL, principal, "*", operation, Permission.ALLOW)


def guarded(*rules: Acl, super_users: str = "") -> Guard:
    """A guard that follows rules."""
    access = Access()
    access.put_acls(PutAcls(rules))
    return Guard(Security(acls=True, super_users=super_users), access)
