"""Commands about holds: what a process that reads for others keeps from deletion.

Each of them is about the writer's own hold, and changes nothing if it is applied again.
"""

from __future__ import annotations

import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command


class TakeHold(Command, frozen=True, tag="hold+"):
    """The writer keeps what is removed from now on. A hold that exists stays as it is. Returns its time."""


class MoveHold(Command, frozen=True, tag="hold>"):
    """The writer no longer needs what was removed before a time. A hold never moves back, or into the future."""

    since_ms: int


class HoldVersion(Command, frozen=True, tag="hold version"):
    """The writer keeps the files of a table's version. Refused if one of them may be deleted already."""

    topic: uuid.UUID
    version: int


class ReleaseVersions(Command, frozen=True, tag="hold versions-"):
    """The writer no longer needs these versions: (topic, version)."""

    versions: list[tuple[uuid.UUID, int]]


HoldsCommand: TypeAlias = TakeHold | MoveHold | HoldVersion | ReleaseVersions
