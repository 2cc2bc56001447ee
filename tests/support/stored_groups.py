"""Groups in the ledger, stored as their coordinators do it."""

from __future__ import annotations

import struct

import msgspec

from headwater.coordination.classic.members import FORMAT, ClassicMember, Head, encode_member
from headwater.state.commands.groups import ChangeGroup, ClaimShard
from headwater.state.results import Done
from headwater.state.streams.stored.groups import shard_of
from headwater.types import Domain
from tests.support.gateways import InGateway


async def store(found: InGateway, name: str, kind: str, head: bytes, members: dict[str, bytes]) -> None:
    """Store a group as a coordinator would."""
    replica = found.core.domains[Domain(1)]
    [claim] = await replica.submit([ClaimShard(shard_of(name))])
    assert isinstance(claim, Done) and claim.value is not None
    [done] = await replica.submit([ChangeGroup(claim.value, name, kind, head, members, ())])
    assert isinstance(done, Done)


async def classic(found: InGateway, name: str = "readers", assignment: bytes = b"") -> None:
    """Store a classic group with one member."""
    member = ClassicMember(
        id="m1", instance_id="one", client_id="app", client_host="/10.0.0.1", session_timeout_ms=1000,
        rebalance_timeout_ms=1000, protocols=[("range", b"")], assignment=assignment,
    )  # fmt: skip
    head = msgspec.msgpack.encode(Head(FORMAT, 1, "consumer", "range", "m1", True, 0))
    await store(found, name, "classic", head, {"m1": encode_member(member)})


def reads(topic: str, *partitions: int) -> bytes:
    """An assignment as consumers encode it."""
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}si", 3, 1, len(name), name, len(partitions))
    return head + struct.pack(f">{len(partitions)}i", *partitions) + struct.pack(">i", -1)
