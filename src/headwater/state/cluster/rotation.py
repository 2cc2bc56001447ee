"""Reports of brokers about their pace, and the brokers that are out of rotation. They are state of domain 0."""

from __future__ import annotations

import msgspec

from headwater.state.commands.rotation import Report, SetRotation
from headwater.state.results import Done, Reason, Refused, Result

MAX_OUT_SHARE = 3
"""At most one in this many brokers is out of rotation."""


class Health(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last report of a broker."""

    publish_us: int
    fetch_us: int
    reported_ms: int


class RotationImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Reports and rotation inside a checkpoint."""

    reports: dict[int, Health]
    out: dict[int, int]


class Rotation:
    """Reports by epoch, and the time since which an epoch is out of rotation. Fenced epochs are removed."""

    def __init__(self) -> None:
        self.reports: dict[int, Health] = {}
        self.out: dict[int, int] = {}

    def report(self, epoch: int, command: Report, now_ms: int) -> Result:
        """Store the report of a broker."""
        if min(command.publish_us, command.fetch_us) < -1:
            return Refused(Reason.INVALID, "a reported time is below zero")
        self.reports[epoch] = Health(command.publish_us, command.fetch_us, now_ms)
        return Done()

    def set(self, command: SetRotation, brokers: int, now_ms: int) -> Result:
        """Take a broker out of rotation, or back in."""
        if not command.out:
            self.out.pop(command.epoch, None)
        elif command.epoch not in self.out:
            if (len(self.out) + 1) * MAX_OUT_SHARE > brokers:
                return Refused(Reason.INVALID, f"{len(self.out)} of {brokers} brokers are out already")
            self.out[command.epoch] = now_ms
        return Done()

    def is_out_since(self, epoch: int, before_ms: int) -> bool:
        """Whether an epoch has been out of rotation since `before_ms` or longer."""
        since = self.out.get(epoch)
        return since is not None and since <= before_ms

    def forget(self, epoch: int) -> None:
        """Remove an epoch that was fenced."""
        self.reports.pop(epoch, None)
        self.out.pop(epoch, None)

    def image(self) -> RotationImage:
        return RotationImage(dict(self.reports), dict(self.out))

    def restore(self, image: RotationImage) -> None:
        self.reports, self.out = dict(image.reports), dict(image.out)
