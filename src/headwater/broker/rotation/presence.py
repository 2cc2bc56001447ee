"""Whether a process still listens at the addresses of a broker.

After a process was killed, its machine refuses connections to its ports. A check shows that in a millisecond, much
earlier than missing signs of life do. If the machine is gone, the process hangs or the network is cut, nothing refuses
connections, and only missing signs of life show it.
"""

from __future__ import annotations

import asyncio
import socket

from headwater.state.cluster.domain import Process
from headwater.state.commands.cluster import Listener

LOOK_SECONDS = 0.5
"""The time limit of a check. The checking process sends no signs of life in the meantime."""
MAX_ADDRESSES = 8
"""At most this many addresses of a name are tried."""


async def nobody_serves(member: Process) -> bool:
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
