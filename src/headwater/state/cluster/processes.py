"""The part of the state for the processes of the cluster: their epochs and builds."""

from __future__ import annotations

import base64
import hashlib

import msgspec

from headwater.state.cluster.domain import NO_NODE, ClusterDomain, Process
from headwater.state.commands.base import Accept, Fence, SetLevel
from headwater.state.commands.cluster import AllocateProducers, TakeEpoch
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result

MAX_PRODUCER_BLOCK = 100_000


def _take_epoch(state: ClusterDomain, epoch: int, command: TakeEpoch) -> Result:
    for process in state.processes.values():
        if process.name == command.process:
            return Done(process.epoch)
    if command.level < state.level:
        return Refused(Reason.INVALID, f"the cluster is at level {state.level}, which Headwater {state.build} knows")
    if not state.cluster_id:
        digest = hashlib.sha256(command.process.encode()).digest()[:16]
        state.cluster_id = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    number = state.next_epoch
    state.next_epoch += 1
    if command.node != NO_NODE:
        for older in [p.epoch for p in state.processes.values() if p.node == command.node]:
            _fence(state, epoch, Fence(older))
    state.processes[number] = Process(
        epoch=number,
        name=command.process,
        node=command.node,
        zone=command.zone,
        listeners=command.listeners,
        level=command.level,
        build=command.build,
    )
    state.roll("epoch", number)
    state.changed()
    return Done(number)


def _fence(state: ClusterDomain, epoch: int, command: Fence) -> Result:
    if command.epoch >= state.next_epoch:
        return Refused(Reason.UNKNOWN, f"epoch {command.epoch} was never assigned")
    return state.fence(epoch, command)


def _fenced(state: ClusterDomain, epoch: int) -> None:
    if state.processes.pop(epoch, None):
        state.changed()


def _set_level(state: ClusterDomain, epoch: int, command: SetLevel) -> Result:
    """Refuse a level that a live process does not know. Builds that do not know the level refuse it alike."""
    behind = [p for p in state.processes.values() if p.level < command.level]
    if behind:
        [first, *others] = behind
        more = f" and {len(others)} more" if others else ""
        return Refused(
            Reason.INVALID,
            f"level {command.level} needs Headwater {command.build} or later: {named(first)} runs {first.build}{more}",
        )
    return state.set_level(epoch, command)


def named(process: Process) -> str:
    """The name of a process in messages to users."""
    return f"broker {process.node}" if process.node != NO_NODE else f"the process of epoch {process.epoch}"


def _allocate_producers(state: ClusterDomain, epoch: int, command: AllocateProducers) -> Result:
    if not 0 < command.count <= MAX_PRODUCER_BLOCK:
        return Refused(Reason.INVALID, f"a block cannot have {command.count} producer ids")
    first = state.next_producer
    state.next_producer += command.count
    state.roll("producers", first)
    return Done(first)


def _accepted(state: ClusterDomain, command: Accept) -> None:
    state.next_epoch = max(state.next_epoch, command.epoch)
    state.next_producer = max(state.next_producer, command.producer)
    for process in list(state.processes):  # one that has taken its epoch, and written nothing since
        state.fence(0, Fence(process))


class ProcessesImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The processes of a cluster inside a checkpoint."""

    processes: list[Process]
    cluster_id: str
    next_epoch: int
    next_producer: int


def _unpack(state: ClusterDomain, image: ProcessesImage) -> None:
    state.processes = {process.epoch: process for process in image.processes}
    state.cluster_id = image.cluster_id
    state.next_epoch = image.next_epoch
    state.next_producer = image.next_producer


PART: Part[ClusterDomain, ProcessesImage] = Part(
    name="processes",
    commands={TakeEpoch: _take_epoch, Fence: _fence, SetLevel: _set_level, AllocateProducers: _allocate_producers},
    format=1,
    image=ProcessesImage,
    pack=lambda state: ProcessesImage(
        list(state.processes.values()), state.cluster_id, state.next_epoch, state.next_producer
    ),
    unpack=_unpack,
    empty=lambda: ProcessesImage([], "", 1, 1),
    fenced=_fenced,
    accepted=_accepted,
)
