"""The part of domain 0 that knows how brokers do, and which of them clients are not sent to for now."""

from __future__ import annotations

import msgspec

from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.rotation_commands import Report, SetRotation

MAX_OUT_SHARE = 3
"""At most one in so many brokers is out of rotation."""


class Health(msgspec.Struct, frozen=True, array_like=True):
    """What a broker last said of itself."""

    publish_us: int
    fetch_us: int
    reported_ms: int


class RotationImage(msgspec.Struct, array_like=True):
    """Reports and who is out, inside a checkpoint."""

    reports: dict[int, Health]
    out: dict[int, int]


class Rotation:
    """Reports by epoch, and since when an epoch is out. Epochs that end are forgotten."""

    def __init__(self) -> None:
        self.reports: dict[int, Health] = {}
        self.out: dict[int, int] = {}

    def report(self, epoch: int, command: Report, now_ms: int) -> Result:
        """Keep what a broker says of itself."""
        if min(command.publish_us, command.fetch_us) < -1:
            return Refused(Reason.INVALID, "a time below zero")
        self.reports[epoch] = Health(command.publish_us, command.fetch_us, now_ms)
        return Done()

    def set(self, command: SetRotation, brokers: int, now_ms: int) -> Result:
        """Take a broker out, or let it back in."""
        if not command.out:
            self.out.pop(command.epoch, None)
        elif command.epoch not in self.out:
            if (len(self.out) + 1) * MAX_OUT_SHARE > brokers:
                return Refused(Reason.INVALID, f"{len(self.out)} of {brokers} brokers are out already")
            self.out[command.epoch] = now_ms
        return Done()

    def is_out_since(self, epoch: int, before_ms: int) -> bool:
        """Whether an epoch has been out since that time or longer."""
        since = self.out.get(epoch)
        return since is not None and since <= before_ms

    def forget(self, epoch: int) -> None:
        """An epoch is over."""
        self.reports.pop(epoch, None)
        self.out.pop(epoch, None)

    def image(self) -> RotationImage:
        return RotationImage(dict(self.reports), dict(self.out))

    def restore(self, image: RotationImage) -> None:
        self.reports, self.out = dict(image.reports), dict(image.out)
