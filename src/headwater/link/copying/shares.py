"""Which process copies which partitions. Every decision follows from the leases in the ledger.

The partitions of a link are divided into shares. A share belongs to one of the processes that are present, by
rendezvous hashing, so all of them know without a word which one. A process takes the lease of a share that belongs to
it as soon as the lease is free, and gives up those that belong to others. Leases only prevent useless work: two
processes that copy the same partition do no harm, because `apply` accepts a unit at one end of the log only.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.state.machine import Lease

PRESENCE = "link-process/"
SHARE = "link/"
GIVEN_UP_MS = 1
"""The duration of a lease that is given up: the next moment of the ledger is after it."""


def presence_of(epoch: int) -> str:
    """The lease by which a process says that it copies links."""
    return f"{PRESENCE}{epoch}"


def lease_of(link: str, share: int) -> str:
    """The lease of a share."""
    return f"{SHARE}{link}/{share}"


def share_of(topic: bytes, partition: int, shares: int) -> int:
    """The share of a partition. The id of the topic and the partition alone decide."""
    return zlib.crc32(topic + partition.to_bytes(4, "big")) % shares


def present(leases: Mapping[str, Lease], now_ms: int) -> list[int]:
    """The epochs of the processes that copy links."""
    found = [lease for name, lease in leases.items() if name.startswith(PRESENCE) and lease.expires_ms > now_ms]
    return sorted({lease.holder for lease in found})


def owner_of(name: str, epochs: Iterable[int]) -> int:
    """The process to which a share belongs, by the name of its lease; 0 if there is none."""
    return max(epochs, key=lambda epoch: (_weight(epoch, name), epoch), default=0)


def _weight(epoch: int, name: str) -> bytes:
    """A hash. A CRC will not do: the CRCs of two epochs differ by the same bits for every name."""
    return hashlib.blake2b(f"{epoch}:{name}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process does about its leases."""

    take: tuple[str, ...]
    """Leases to take or to extend, the presence of the process first."""
    give: tuple[str, ...]
    """Leases to give up, after the copies under them have stopped."""


def plan(leases: Mapping[str, Lease], now_ms: int, epoch: int, links: Iterable[str], shares: int) -> Plan:
    """Decide which leases a process takes and gives up."""
    own = presence_of(epoch)
    epochs = sorted({*present(leases, now_ms), epoch})
    names = [lease_of(link, share) for link in links for share in range(shares)]
    take, give = [own], []
    for name in names:
        held = leases.get(name)
        free = held is None or held.holder == epoch or held.expires_ms <= now_ms
        if owner_of(name, epochs) == epoch:
            if free:
                take.append(name)
        elif held is not None and held.holder == epoch and held.expires_ms > now_ms:
            give.append(name)
    known = set(names)
    for name, held in leases.items():
        if name.startswith(SHARE) and name not in known and held.holder == epoch and held.expires_ms > now_ms:
            give.append(name)
    return Plan(tuple(take), tuple(give))


def held(leases: Mapping[str, Lease], now_ms: int, epoch: int, link: str, shares: int) -> frozenset[int]:
    """The shares of a link that a process holds at a time of the ledger."""
    found = set()
    for share in range(shares):
        lease = leases.get(lease_of(link, share))
        if lease is not None and lease.holder == epoch and lease.expires_ms > now_ms:
            found.add(share)
    return frozenset(found)
