"""The part of the state for brokers' reports of their pace, and for rotation."""

from __future__ import annotations

from headwater.state.cluster.domain import NO_NODE, ClusterDomain
from headwater.state.cluster.rotation import RotationImage
from headwater.state.commands.rotation import Report, SetRotation
from headwater.state.machine import Part
from headwater.state.results import Reason, Refused, Result


def _report(state: ClusterDomain, epoch: int, command: Report) -> Result:
    process = state.processes.get(epoch)
    if process is None or process.node == NO_NODE:
        return Refused(Reason.INVALID, "only brokers report their pace")
    state.roll("report", epoch, command.publish_us, command.fetch_us)
    return state.rotation.report(epoch, command, state.clock_ms)


def _set_rotation(state: ClusterDomain, epoch: int, command: SetRotation) -> Result:
    process = state.processes.get(command.epoch)
    if process is None or process.node == NO_NODE:
        return Refused(Reason.UNKNOWN, f"epoch {command.epoch} does not belong to a broker")
    was = state.in_rotation(process)
    result = state.rotation.set(command, len(state.serving()), state.clock_ms)
    state.roll("rotation", command.epoch, state.in_rotation(process))
    if was != state.in_rotation(process):
        state.changed()
    return result


PART: Part[ClusterDomain, RotationImage] = Part(
    name="rotation",
    commands={Report: _report, SetRotation: _set_rotation},
    format=1,
    image=RotationImage,
    pack=lambda state: state.rotation.image(),
    unpack=lambda state, image: state.rotation.restore(image),
    empty=lambda: RotationImage({}, {}),
    fenced=lambda state, epoch: state.rotation.forget(epoch),
)
