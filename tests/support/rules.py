"""Guards for tests: one that allows everything, and one with rules."""

from __future__ import annotations

from headwater.security.guard import Guard
from headwater.settings.settings import Security
from headwater.state.cluster.access import Access, AclResource, Operation, Pattern, Permission
from headwater.state.commands.access import Acl, PutAcls

NO_RULES = Guard(Security(), Access())


def rule(principal: str, operation: Operation, name: str, kind: AclResource = AclResource.TOPIC) -> Acl:
    """A rule that allows a user an operation on a resource of this name, from every host."""
    return Acl(kind, name, Pattern.LITERAL, principal, "*", operation, Permission.ALLOW)


def guarded(*rules: Acl, super_users: str = "") -> Guard:
    """A guard with these rules."""
    access = Access()
    access.put_acls(PutAcls(rules))
    return Guard(Security(acls=True, super_users=super_users), access)
