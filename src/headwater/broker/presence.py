"""Whether anybody is left where a broker said that it serves.

A process that was killed leaves a machine that refuses connections to its ports. That is known in a millisecond, and
sooner than silence could tell. A machine that is gone, a process that hangs and a network that is cut refuse nothing:
of those only silence tells.
"""

from __future__ import annotations

import asyncio
import socket

from headwater.metadata.cluster import Member
from headwater.metadata.commands import Listener

LOOK_SECONDS = 0.5
"""Who looks shows no signs of life meanwhile."""
MAX_ADDRESSES = 8
"""So many addresses of a name are tried."""


async def nobody_serves(member: Member) -> bool:
    """Whether all addresses of a member refuse connections. False if that is not certain."""
    if not member.listeners:
        return False
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return all([await _refuses(listener) for listener in member.listeners])
    except (OSError, TimeoutError):
        return False


async def _refuses(listener: Listener) -> bool:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found[:MAX_ADDRESSES]:
        with socket.socket(family, kind, protocol) as probe:
            probe.setblocking(False)
            try:
                await loop.sock_connect(probe, address)
            except ConnectionRefusedError:
                continue
            return False
    return bool(found)
