"""Many stories, several at a time: their names keep them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tests.differential.compare import differences, wavering
from tests.differential.peer import Peer, versions_of
from tests.differential.stories import STORIES
from tests.differential.story import POLL_SECONDS, Outcome, Transcript, tell

AT_ONCE = 8
START_SECONDS = 60.0
TIMES = 5
"""A story that differs is told again: Apache Kafka passes on what was created or deleted with a delay of its own. That
is forgiven to nobody else: our answers must be the same every time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a story: how the servers differ every time it is told, what they said the last time, and where our
    own answers were not the same each time."""

    outcome: Outcome
    differences: list[str]
    wavering: list[str]


async def tell_all(
    names: Iterable[str], addresses: tuple[str, str], expected: Container[str] = ()
) -> dict[str, Verdict]:
    """Stories by name, told to Apache Kafka and to us; those that are expected to differ only once."""
    versions = await versions_of(addresses[0])
    for address in addresses:
        await _wait_for_coordinators(address)
    await _wait_for_transactions(addresses[0])
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, Verdict]:
        async with turns:
            return name, await _tell_patiently(name, addresses, versions, expected)

    return dict(await asyncio.gather(*map(one, names)))


async def _wait_for_coordinators(address: str) -> None:
    """Apache Kafka makes the topic of its groups, and room for producers, when it is first asked for one of them."""
    groups = [f"warm-up-{number}" for number in range(32)]
    async with Peer(address) as peer, asyncio.timeout(START_SECONDS):
        while True:
            await peer.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": groups})
            answer = await peer.ask("describe_groups", 5, {"groups": groups})
            fresh = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            producer = await peer.ask("init_producer_id", 4, fresh)
            if not any(one.error_code.value for one in (producer, *answer.groups)):
                return
            await asyncio.sleep(POLL_SECONDS)  # polls for a state; nothing counts on its length


async def _wait_for_transactions(kafka: str) -> None:
    """Apache Kafka makes the topic of its transactions when it is first asked for one of them."""
    keys = [f"warm-up-{number}" for number in range(32)]
    async with Peer(kafka) as peer, asyncio.timeout(START_SECONDS):
        while True:
            await peer.ask("find_coordinator", 4, {"key_type": 1, "coordinator_keys": keys})
            answer = await peer.ask("describe_transactions", 0, {"transactional_ids": keys})
            if {found.error_code.name for found in answer.transaction_states} == {"transactional_id_not_found"}:
                return
            await asyncio.sleep(POLL_SECONDS)  # polls for a state; nothing counts on its length


async def _tell_patiently(
    name: str, addresses: tuple[str, str], versions: Mapping[str, range], expected: Container[str]
) -> Verdict:
    ours: list[Transcript] = []
    for _ in range(1 if name in expected else TIMES):
        outcome = await tell(name, STORIES[name], addresses, versions)
        ours.append(outcome.ours)
        found = differences(outcome)
        if outcome.kafka.broken is None and not found:
            break
    return Verdict(outcome, found, wavering(ours))
