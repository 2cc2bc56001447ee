"""Commands of domain 0 about the pace of brokers and their rotation."""

from __future__ import annotations

from typing import TypeAlias

from headwater.state.commands.base import Command


class Report(Command, frozen=True, tag="report"):
    """How long the writing broker has recently taken to answer, in microseconds; -1 if it does not know."""

    publish_us: int
    fetch_us: int


class SetRotation(Command, frozen=True, tag="rotation"):
    """Take a broker out of rotation, or back in. Clients are not sent to brokers that are out; at most a third is."""

    epoch: int
    out: bool


RotationCommand: TypeAlias = Report | SetRotation
