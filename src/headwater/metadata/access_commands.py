"""What a ledger record may say about who may do what, and about users. See `commands` for the rules of commands."""

from __future__ import annotations

import msgspec


class _Command(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of the commands here."""


class Acl(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, order=True):
    """One rule, in Kafka's numbers: see `access` for their names."""

    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class PutAcls(_Command, frozen=True, tag="acls+"):
    """Add rules. Those that stand already stay. All or, where there would be too many, none."""

    acls: tuple[Acl, ...]


class DropAcls(_Command, frozen=True, tag="acls-"):
    """Remove rules; yields how many of them stood."""

    acls: tuple[Acl, ...]


class PutUser(_Command, frozen=True, tag="user+"):
    """Set a user's keys for one SCRAM mechanism. The password itself is nowhere."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"PutUser({self.name!r}, mechanism={self.mechanism})"


class DropUser(_Command, frozen=True, tag="user-"):
    """Remove a user's keys for one SCRAM mechanism."""

    name: str
    mechanism: int
