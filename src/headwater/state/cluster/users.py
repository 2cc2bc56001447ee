"""The part of the state for access rules and users."""

from __future__ import annotations

import msgspec

from headwater.state.cluster.access import AccessImage
from headwater.state.cluster.domain import ClusterDomain
from headwater.state.commands.access import DropAcls, DropUser, PutAcls, PutUser
from headwater.state.machine import Part
from headwater.state.results import Result


def _put_acls(state: ClusterDomain, epoch: int, command: PutAcls) -> Result:
    state.roll("acls+", msgspec.msgpack.encode(command.acls))
    return state.access.put_acls(command)


def _drop_acls(state: ClusterDomain, epoch: int, command: DropAcls) -> Result:
    state.roll("acls-", msgspec.msgpack.encode(command.acls))
    return state.access.drop_acls(command)


def _put_user(state: ClusterDomain, epoch: int, command: PutUser) -> Result:
    state.roll("user+", command.name, command.mechanism, command.salt, command.stored_key)
    return state.access.put_user(command)


def _drop_user(state: ClusterDomain, epoch: int, command: DropUser) -> Result:
    state.roll("user-", command.name, command.mechanism)
    return state.access.drop_user(command)


PART: Part[ClusterDomain, AccessImage] = Part(
    name="access",
    commands={PutAcls: _put_acls, DropAcls: _drop_acls, PutUser: _put_user, DropUser: _drop_user},
    format=1,
    image=AccessImage,
    pack=lambda state: state.access.image(),
    unpack=lambda state, image: state.access.restore(image),
    empty=lambda: AccessImage([], {}, b""),
)
