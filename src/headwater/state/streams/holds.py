"""The part of the state for holds: files and objects that outlive the queries that read them."""

from __future__ import annotations

import msgspec

from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored.holds import MAX_HOLDS, MAX_VERSIONS, Holds, PackedHold
from headwater.state.streams.tables import TopicTable

NO_HOLD = Refused(Reason.UNKNOWN, "the writer has no hold")


def take_hold(state: StreamsDomain, epoch: int, command: TakeHold) -> Result:
    """See `TakeHold`."""
    if state.held.get(epoch) is None and len(state.held) >= MAX_HOLDS:
        return Refused(Reason.FULL, f"there are {MAX_HOLDS} holds already")
    hold = state.held.take(epoch, state.clock_ms)
    state.roll("hold", epoch, hold.since_ms)
    return Done(hold.since_ms)


def move_hold(state: StreamsDomain, epoch: int, command: MoveHold) -> Result:
    """See `MoveHold`. Returns the time of the hold."""
    hold = state.held.get(epoch)
    if hold is None:
        return NO_HOLD
    if command.since_ms > state.clock_ms:
        return Refused(Reason.INVALID, f"a hold cannot move to {command.since_ms}: it is {state.clock_ms}")
    hold.since_ms = max(hold.since_ms, command.since_ms)
    state.roll("hold", epoch, hold.since_ms)
    return Done(hold.since_ms)


def hold_version(state: StreamsDomain, epoch: int, command: HoldVersion) -> Result:
    """See `HoldVersion`."""
    hold, name = state.held.get(epoch), (command.topic, command.version)
    if hold is None:
        return NO_HOLD
    if name in hold.versions:
        return Done()
    table = state.tables.get(command.topic)
    if table is None or table.dropped:
        return Refused(Reason.UNKNOWN, "the topic has no table")
    if not 0 <= command.version <= table.last_sequence:
        return Refused(Reason.UNKNOWN, f"there is no version {command.version}: the newest is {table.last_sequence}")
    if not is_whole(state, table, command.version):
        return Refused(Reason.STALE, f"version {command.version} has expired")
    if len(hold.versions) >= MAX_VERSIONS:
        return Refused(Reason.FULL, f"the writer holds {MAX_VERSIONS} versions already")
    hold.versions[name] = None
    state.roll("hold version", epoch, command.topic, command.version)
    return Done()


def release_versions(state: StreamsDomain, epoch: int, command: ReleaseVersions) -> Result:
    """See `ReleaseVersions`. Returns how many of them the hold had."""
    hold = state.held.get(epoch)
    if hold is None:
        return NO_HOLD
    gone = sum(hold.versions.pop((topic, version), False) is None for topic, version in command.versions)
    state.roll("release versions", epoch, gone)
    return Done(gone)


def is_whole(state: StreamsDomain, table: TopicTable, version: int) -> bool:
    """Whether all files of a version are there, and nobody can have begun to delete one of them.

    A deleter acts by the state that it has. So it does not suffice that a file is still known here: something must have
    kept it without a break since it was removed. A hold that is as old as the removal may have come after it.
    """
    changes, held = table.entries_after(version), state.held.versions(table.topic)
    if changes is None:  # the journal does not say which files the version had
        return version in held or any(follower.keeps(version) for follower in table.followers.values())
    later = {number for entry in changes for number in entry.added}
    oldest = state.held.oldest_ms
    for number in (number for entry in changes for number in entry.removed if number not in later):
        file = table.files.get(number)
        if file is None:
            return False
        kept = file.references or any(follower.needs(file) for follower in table.followers.values())
        in_time = oldest is not None and oldest < file.removed_ms
        if not kept and not in_time and not file.is_in(held):
            return False
    return True


# --- hooks and image -----------------------------------------------------------------------------------


class HoldsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The holds of a domain inside a checkpoint."""

    holds: list[PackedHold]


def _fenced(state: StreamsDomain, epoch: int) -> None:
    state.held.drop(epoch)


def _unpack(state: StreamsDomain, image: HoldsImage) -> None:
    state.held = Holds.unpack(image.holds)


PART: Part[StreamsDomain, HoldsImage] = Part(
    name="holds",
    commands={
        TakeHold: take_hold,
        MoveHold: move_hold,
        HoldVersion: hold_version,
        ReleaseVersions: release_versions,
    },
    format=1,
    image=HoldsImage,
    pack=lambda state: HoldsImage(state.held.pack()),
    unpack=_unpack,
    empty=lambda: HoldsImage([]),
    fenced=_fenced,
)
