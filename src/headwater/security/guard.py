"""Authorization: whether a principal may do an operation. For all but super users the rules of domain 0 decide."""

from __future__ import annotations

from headwater.settings.settings import Security
from headwater.state.cluster.access import SUPPORTED, THE_CLUSTER, Access, AclResource, Operation, bits

MAX_KEPT = 100_000
"""The number of decisions that are cached until a rule changes."""
_ANY_NAME = ""
"""No resource has this name, so it is the cache key for any resource."""


class Guard:
    """Decides, and caches its decisions until a rule changes."""

    def __init__(self, security: Security, access: Access) -> None:
        self.enforced = security.acls
        """Whether rules are enforced at all."""
        self._access = access
        self._by_default = security.allow_without_acls
        self._super_users = frozenset(name.strip() for name in security.super_users.split(";") if name.strip())
        self._kept: dict[tuple[str, str, int, int, str], bool] = {}
        self._version = access.version

    def __repr__(self) -> str:
        return f"<Guard, {'enforced' if self.enforced else 'off'}, {len(self._kept)} decisions kept>"

    def may(self, principal: str, host: str, operation: Operation, kind: AclResource, name: str) -> bool:
        """Whether an operation on a resource is allowed."""
        if not self.enforced or principal in self._super_users:
            return True
        key = (principal, host, operation, kind, name)
        allowed = self._remembered(key)
        if allowed is None:
            decided = self._access.decide(principal, host, operation, kind, name)
            allowed = self._kept[key] = self._by_default if decided is None else decided
        return allowed

    def may_any(self, principal: str, host: str, operation: Operation, kind: AclResource) -> bool:
        """Whether an operation is allowed on at least one resource of a kind."""
        if not self.enforced or principal in self._super_users or self._by_default:
            return True
        key = (principal, host, operation, kind, _ANY_NAME)
        allowed = self._remembered(key)
        if allowed is None:
            allowed = self._kept[key] = self._access.decide_any(principal, host, operation, kind)
        return allowed

    def _remembered(self, key: tuple[str, str, int, int, str]) -> bool | None:
        """The cached decision, if no rule has changed since."""
        if self._version != self._access.version or len(self._kept) >= MAX_KEPT:
            self._kept.clear()
            self._version = self._access.version
        return self._kept.get(key)

    def operations(self, principal: str, host: str, kind: AclResource, name: str = THE_CLUSTER) -> int:
        """All operations that are allowed on a resource, as the protocol's bit field."""
        return bits(o for o in SUPPORTED[kind] if self.may(principal, host, o, kind, name))
