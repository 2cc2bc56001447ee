"""What a ledger record of domain 0 may say about how brokers do; see `commands` for the rules."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Command(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of these commands."""


class Report(_Command, frozen=True, tag="report"):
    """How long the writer of this record takes to answer, of late. In microseconds; -1 where it does not know."""

    publish_us: int
    fetch_us: int


class SetRotation(_Command, frozen=True, tag="rotation"):
    """Clients are no longer sent to a broker, or are again. At most a third of the brokers can be out."""

    epoch: int
    out: bool


RotationCommand: TypeAlias = Report | SetRotation
