"""Configs of consumer, share and streams groups. They can be set before the group exists."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headwater.configs.keys import INT_MAX, ConfigKey, Kind, boolean, checked_by, number, one_of
from headwater.errors import ConfigError

_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def _reset(value: str) -> str:
    if value in ("earliest", "latest") or _DURATION.fullmatch(value):
        return value
    raise ConfigError("The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.")


_SESSION = "How long a member may be silent before it is removed."
_HEARTBEAT = "How often members send heartbeats."
_ASSIGNMENT = "The shortest time between two assignments of the group."
_FAMILIES = ("consumer", "share", "streams")
_NUMBERS = {
    **{f"{family}.session.timeout.ms": (45_000, 45_000, 60_000, _SESSION) for family in _FAMILIES},
    **{f"{family}.heartbeat.interval.ms": (5_000, 5_000, 15_000, _HEARTBEAT) for family in _FAMILIES},
    **{f"{family}.assignment.interval.ms": (1_000, 0, 15_000, _ASSIGNMENT) for family in _FAMILIES},
    "share.delivery.count.limit": (5, 2, 10, "How often a record is delivered at most."),
    "share.record.lock.duration.ms": (
        30_000,
        15_000,
        60_000,
        "How long a delivered record waits for its acknowledgement.",
    ),
    "share.partition.max.record.locks": (2_000, 100, 4_000, "How many records of a partition can be locked at once."),
    "streams.num.standby.replicas": (0, 0, 2, "How many standby copies of each task's state there are."),
    "streams.initial.rebalance.delay.ms": (3_000, 0, INT_MAX, "How long the first assignment waits for more members."),
}
"""Default, smallest and largest value. In Kafka the limits are broker configs; here they have Kafka's defaults."""

_KEYS = [
    *(ConfigKey(name, Kind.INT, str(default), number(0, INT_MAX), doc, f"group.{name}")
      for name, (default, _, _, doc) in _NUMBERS.items()),
    ConfigKey("share.auto.offset.reset", Kind.STRING, "latest", _reset,
              "The offset at which a share group starts.", "share.auto.offset.reset"),
    ConfigKey("share.isolation.level", Kind.STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
              "Whether a share group sees records of open and aborted transactions.", "share.isolation.level"),
    ConfigKey("share.renew.acknowledge.enable", Kind.BOOLEAN, "true", boolean,
              "Whether members may renew their time for a record.", "share.renew.acknowledge.enable"),
]  # fmt: skip
KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


def checked(name: str, value: str) -> str:
    """Check a group config. Returns its canonical form, or raises a `ConfigError` in Kafka's words."""
    canonical = checked_by(KEYS, "group", name, value)
    if name in _NUMBERS:
        _, low, high, _ = _NUMBERS[name]
        family, _, rest = name.partition(".")
        if int(canonical) < low:
            raise ConfigError(f"{name} must be greater than or equal to group.{family}.min.{rest}")
        if int(canonical) > high:
            raise ConfigError(f"{name} must be less than or equal to group.{family}.max.{rest}")
    return canonical


def check_together(configs: Mapping[str, str]) -> None:
    """Check that session time-outs are longer than heartbeat intervals."""
    for family in _FAMILIES:
        session, heartbeat = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if value(configs, session) <= value(configs, heartbeat):
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def value(configs: Mapping[str, str], name: str) -> int:
    """A number of a group's configs, or its default if it is not set."""
    return int(configs.get(name, KEYS[name].default))
