"""Finds the coordinator of a group in a running cluster, and moves its shards to another broker and back."""

from __future__ import annotations

import signal

from harness.patience import eventually
from harness.serving import run
from tests.support.running import Running

FIND_COORDINATOR = 10


def coordinator_of(server: Running, group: str, *ask: int) -> int:
    """The node that coordinates a group, according to some of the brokers."""

    async def find() -> int:
        async with server.client(*ask) as client:
            connection = await client.any_broker()
            answer = await client.retrying(
                lambda: connection.request(FIND_COORDINATOR, key_type=0, coordinator_keys=[group], newest=4)
            )
            node: int = answer.coordinators[0].node_id
            return node

    return run(find())


def fence(server: Running, node: int) -> None:
    """Have a broker fenced that lives: it is paused until the others have taken over. Then it takes a new epoch."""
    others = [number for number in range(1, server.brokers + 1) if number != node]
    process = server.broker(node)
    server.pause(process)
    try:
        eventually(lambda: node not in server.nodes(*others), "the paused broker is fenced", 60)
    finally:
        process.send_signal(signal.SIGCONT)
