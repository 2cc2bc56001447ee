"""Access rules (Kafka's ACLs) and the keys of users. They are state of domain 0.

A rule that denies overrides all rules that allow. A rule that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE.
A rule that allows ALTER_CONFIGS also allows DESCRIBE_CONFIGS. A rule that denies implies nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TypeVar

import msgspec

from headwater.state.commands.access import Acl, DropAcls, DropUser, PutAcls, PutUser
from headwater.state.results import Done, Reason, Refused, Result

MAX_ACLS = 100_000
MAX_USERS = 100_000
MAX_TEXT = 1_024
"""The limit of resource names, principals, hosts and user names, in characters."""
MAX_KEY_BYTES = 64
MAX_SALT_BYTES = 256
MAX_ITERATIONS = 16_384
MIN_ITERATIONS = 4_096

ANYBODY = "User:*"
ANYWHERE = "*"
EVERY_NAME = "*"
THE_CLUSTER = "kafka-cluster"
ANONYMOUS = "User:ANONYMOUS"


class _Code(IntEnum):
    """A number of the protocol. An unknown number becomes `UNKNOWN`, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> _Code:
        return cls(0)


class AclResource(_Code):
    """The kind of resource that a rule applies to."""

    UNKNOWN, ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(8)


class Operation(_Code):
    """What is done to a resource."""

    UNKNOWN, ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(9)
    CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)
    CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = range(13, 16)


class Pattern(_Code):
    """How the name of a rule is compared. ANY and MATCH occur in filters only."""

    UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = range(5)


class Permission(_Code):
    """Whether a rule allows or denies."""

    UNKNOWN, ANY, DENY, ALLOW = range(4)


C = TypeVar("C", bound=_Code)
_O = Operation

SUPPORTED: dict[AclResource, tuple[Operation, ...]] = {
    AclResource.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    AclResource.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    ),
    AclResource.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    AclResource.DELEGATION_TOKEN: (_O.DESCRIBE,),
    AclResource.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations of each kind of resource."""

_ALLOWING: dict[int, frozenset[int]] = {
    **{operation: frozenset({operation, _O.ALL}) for operation in Operation},
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.ALL, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALL, _O.ALTER_CONFIGS}),
}
"""For each operation, the operations of rules that allow it."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of rules. `None` and ANY match all rules."""

    kind: int = AclResource.ANY
    name: str | None = None
    pattern: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def takes(self, acl: Acl) -> bool:
        """Whether the filter matches a rule."""
        return (
            self.kind in (AclResource.ANY, acl.kind)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        if acl.pattern == Pattern.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == EVERY_NAME

    @property
    def known(self) -> bool:
        """Whether all numbers of the filter are known."""
        return bool(
            AclResource(self.kind)
            and Pattern(self.pattern)
            and Operation(self.operation)
            and Permission(self.permission)
        )


def objection(acl: Acl) -> str:
    """Why a rule is invalid; empty if it is valid."""
    if AclResource(acl.kind) in (AclResource.UNKNOWN, AclResource.ANY):
        return f"Invalid resourceType {AclResource(acl.kind).name}"
    if Pattern(acl.pattern) not in (Pattern.LITERAL, Pattern.PREFIXED):
        return f"Invalid patternType {Pattern(acl.pattern).name}"
    if Operation(acl.operation) in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {Operation(acl.operation).name}"
    if Permission(acl.permission) not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {Permission(acl.permission).name}"
    if not acl.name:
        return "Resource name should not be empty"
    if acl.kind == AclResource.CLUSTER and acl.name != THE_CLUSTER:
        return f"The only valid name for the CLUSTER resource is {THE_CLUSTER}"
    kind, colon, name = acl.principal.partition(":")
    if not kind or not colon or not name:
        return f"Could not parse principal from `{acl.principal[:100]}` (expected `Type:name`)"
    if not acl.host:
        return "A rule needs a host; `*` means all hosts"
    if max(len(acl.name), len(acl.principal), len(acl.host)) > MAX_TEXT:
        return f"Names in a rule have at most {MAX_TEXT} characters"
    return ""


class Keys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A user's keys for one SCRAM mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Keys(iterations={self.iterations})"


class AccessImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A checkpoint of rules and users."""

    acls: list[Acl]
    users: dict[str, dict[int, Keys]]
    pepper: bytes

    def __repr__(self) -> str:
        return f"AccessImage({len(self.acls)} rules, {len(self.users)} users)"


class Access:
    """All rules and users."""

    def __init__(self) -> None:
        self.users: dict[str, dict[int, Keys]] = {}
        """Keys by user and mechanism."""
        self.pepper = b""
        """A secret of all brokers, derived from the first user's key. Salts of unknown users are derived from it."""
        self.version = 0
        """Rises with every change, so that callers can cache decisions. It is not part of the state."""
        self._acls: dict[Acl, None] = {}
        self._literal: dict[tuple[int, str], dict[Acl, None]] = {}
        self._prefixed: dict[tuple[int, str], dict[Acl, None]] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """By kind: how many prefixed rules have a name of each length."""

    def __repr__(self) -> str:
        return f"<Access with {len(self._acls)} rules, {len(self.users)} users>"

    # --- asking ----------------------------------------------------------------------------------------

    def acls(self) -> Iterator[Acl]:
        """All rules."""
        return iter(self._acls)

    def matching(self, wanted: Filter) -> list[Acl]:
        """The rules that a filter matches, sorted."""
        return sorted(acl for acl in self._acls if wanted.takes(acl))

    def about(self, kind: int, name: str) -> Iterator[Acl]:
        """The rules that apply to a resource."""
        yield from self._literal.get((kind, name), ())
        if name != EVERY_NAME:
            yield from self._literal.get((kind, EVERY_NAME), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool | None:
        """Whether an operation is allowed. `None` if no rule at all applies to this resource."""
        allowing = _ALLOWING[operation]
        found = allowed = False
        for acl in self.about(kind, name):
            found = True
            if not _is_for(acl, principal, host):
                continue
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif acl.operation in allowing:
                allowed = True
        return allowed if found else None

    def decide_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether an operation is allowed on at least one resource of a kind, existing or not."""
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[Acl] = []
        allowing = _ALLOWING[operation]
        for acl in self._acls:
            if acl.kind != kind or not _is_for(acl, principal, host):
                continue
            if acl.permission == Permission.ALLOW:
                if acl.operation in allowing:
                    allowed.append(acl)
            elif acl.operation in (operation, Operation.ALL):
                if acl.pattern == Pattern.LITERAL and acl.name == EVERY_NAME:
                    return False
                (denied_prefixes if acl.pattern == Pattern.PREFIXED else denied_names).add(acl.name)
        for acl in allowed:
            if acl.pattern == Pattern.LITERAL and acl.name == EVERY_NAME:
                return True
            covered = any(acl.name[:end] in denied_prefixes for end in range(1, len(acl.name) + 1))
            if not covered and (acl.pattern == Pattern.PREFIXED or acl.name not in denied_names):
                return True
        return False

    # --- changing ----------------------------------------------------------------------------------------

    def put_acls(self, command: PutAcls) -> Result:
        """Add rules."""
        for acl in command.acls:
            if objection(acl):
                return Refused(Reason.INVALID, objection(acl))
        fresh = dict.fromkeys(acl for acl in command.acls if acl not in self._acls)
        if len(self._acls) + len(fresh) > MAX_ACLS:
            return Refused(Reason.INVALID, f"there can be {MAX_ACLS} rules")
        for acl in fresh:
            self._add(acl)
        self.version += 1
        return Done(len(fresh))

    def drop_acls(self, command: DropAcls) -> Result:
        """Remove rules."""
        stood = [acl for acl in dict.fromkeys(command.acls) if acl in self._acls]
        for acl in stood:
            self._remove(acl)
        self.version += 1
        return Done(len(stood))

    def put_user(self, command: PutUser) -> Result:
        """Set a user's keys for one mechanism."""
        keys = Keys(command.iterations, command.salt, command.stored_key, command.server_key)
        sizes_fit = (
            0 < len(command.name) <= MAX_TEXT
            and 0 < len(keys.salt) <= MAX_SALT_BYTES
            and 0 < len(keys.stored_key) <= MAX_KEY_BYTES
            and 0 < len(keys.server_key) <= MAX_KEY_BYTES
            and MIN_ITERATIONS <= keys.iterations <= MAX_ITERATIONS
        )
        if not sizes_fit:
            return Refused(Reason.INVALID, "a name, a salt, keys or iterations are out of bounds")
        if command.name not in self.users and len(self.users) >= MAX_USERS:
            return Refused(Reason.INVALID, f"there can be {MAX_USERS} users")
        if not self.pepper:
            self.pepper = hashlib.sha256(b"pepper" + keys.server_key).digest()
        self.users.setdefault(command.name, {})[command.mechanism] = keys
        self.version += 1
        return Done()

    def drop_user(self, command: DropUser) -> Result:
        """Remove a user's keys for one mechanism."""
        keys = self.users.get(command.name, {})
        if keys.pop(command.mechanism, None) is None:
            return Refused(Reason.UNKNOWN, "there is no such user credential")
        if not keys:
            del self.users[command.name]
        self.version += 1
        return Done()

    def _add(self, acl: Acl) -> None:
        self._acls[acl] = None
        index = self._prefixed if acl.pattern == Pattern.PREFIXED else self._literal
        index.setdefault((acl.kind, acl.name), {})[acl] = None
        if acl.pattern == Pattern.PREFIXED:
            lengths = self._lengths.setdefault(acl.kind, {})
            lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1

    def _remove(self, acl: Acl) -> None:
        del self._acls[acl]
        index = self._prefixed if acl.pattern == Pattern.PREFIXED else self._literal
        rules = index[(acl.kind, acl.name)]
        del rules[acl]
        if not rules:
            del index[(acl.kind, acl.name)]
        if acl.pattern == Pattern.PREFIXED:
            lengths = self._lengths[acl.kind]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    # --- checkpoints -------------------------------------------------------------------------------------

    def image(self) -> AccessImage:
        """Rules, users and pepper, for a checkpoint."""
        return AccessImage(list(self._acls), self.users, self.pepper)

    def restore(self, image: AccessImage) -> None:
        """The inverse of `image`."""
        for acl in list(self._acls):
            self._remove(acl)
        for acl in image.acls:
            self._add(acl)
        self.version += 1
        self.users = image.users
        self.pepper = image.pepper


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANYBODY) and acl.host in (host, ANYWHERE)


def bits(operations: Iterable[int]) -> int:
    """Operations as the protocol's bit field, a signed 32-bit number."""
    field = 0
    for operation in operations:
        field |= 1 << operation
    return field - (1 << 32) if field >= 1 << 31 else field
