"""Commands of domain 0 about access rules and users."""

from __future__ import annotations

from typing import TypeAlias

from headwater.state.commands.base import Command, Fields


class Acl(Fields, frozen=True, order=True):
    """One access rule, in Kafka's numbers. `state/cluster/access.py` has their names."""

    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class PutAcls(Command, frozen=True, tag="acls+"):
    """Add rules. Rules that exist already are kept. If there would be too many rules, none is added."""

    acls: tuple[Acl, ...]


class DropAcls(Command, frozen=True, tag="acls-"):
    """Remove rules. Returns how many of them existed."""

    acls: tuple[Acl, ...]


class PutUser(Command, frozen=True, tag="user+"):
    """Set a user's keys for one SCRAM mechanism. The password itself is not stored."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"PutUser({self.name!r}, mechanism={self.mechanism})"


class DropUser(Command, frozen=True, tag="user-"):
    """Remove a user's keys for one SCRAM mechanism."""

    name: str
    mechanism: int


AccessCommand: TypeAlias = PutAcls | DropAcls | PutUser | DropUser
